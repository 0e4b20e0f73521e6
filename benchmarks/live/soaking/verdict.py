"""The results of a soak: problems and figures."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from scheduler_process import becomes_true

from soaking.check import Life, check_jobs, check_life
from soaking.drive import Soak
from soaking.scheduler import TIMEOUT_S, leftover_processes

FEWEST_TO_FIT = 100
"""Jobs in one run of the scheduler needed to fit the trend of its memory."""
MAX_BYTES_PER_JOB = 32 * 1024
"""The scheduler remembers finished jobs with their submissions: some kilobytes each."""
MAX_NEW_DESCRIPTORS = 4
KEPT_ATTEMPTS = 1000


@dataclass
class Verdict:
    """Problems, and figures to print."""

    problems: list[str] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)


def judge(soak: Soak, verdict: Verdict) -> None:
    """Check a soak whose jobs have all ended, stopping its scheduler."""
    last = os.readlink(soak.scheduler.state / "events.jsonl")
    _judge_idle(soak, verdict)
    status, used = soak.scheduler.client.status(), soak.scheduler.descriptors()
    soak.scheduler.stop()
    _count(soak, verdict)
    _judge_logs(soak, verdict, last, status)
    _judge_memory(soak, verdict)
    # A restarted scheduler with nothing to do must start nothing.
    soak.scheduler.start()
    unused = soak.scheduler.descriptors()
    soak.scheduler.stop()
    verdict.rows["its open files, idle, after its last life and fresh"] = f"{used}, {unused}"
    if used > unused + MAX_NEW_DESCRIPTORS:
        verdict.problems.append(f"the scheduler has {used} files open; a fresh one has {unused}")
    soak.read()
    verdict.problems += check_jobs(soak.fates.values(), soak.journal)
    if left := leftover_processes(soak.folder):
        verdict.problems.append(f"{len(left)} processes are left over")
    _judge_files(soak, verdict)


def _judge_idle(soak: Soak, verdict: Verdict) -> None:
    """Check that no slot or grant is held or waited for."""
    client = soak.scheduler.client

    def still_held() -> str:
        status, nodes = client.status(), client.nodes()
        counts = {
            "messages on nodes": sum(len(node["messages"]) for node in nodes),
            "waiting messages": sum(len(node["waiting"]) for node in nodes),
            "slots held": sum(bool(one["jobs"]) for node in nodes for one in node["slots"]),
            "workers at the gate": status["workers"],
            # With the database, jobs whose end a killed scheduler did not log are forgotten.
            "jobs too many": max(0, sum(status["jobs"].values()) - soak.ended),
        }
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count)

    if not becomes_true(lambda: not still_held(), TIMEOUT_S):
        verdict.problems.append(f"all jobs have ended, but there are {still_held()}")


def _count(soak: Soak, verdict: Verdict) -> None:
    states = Counter(fate.ended["state"] for fate in soak.fates.values() if fate.ended)
    lines = Counter(line.what for line in soak.journal)
    starts = {(line.number, line.attempt) for line in soak.journal if line.what == "start"}
    own = sum(line.what == "end" and not line.detail.startswith("0/") for line in soak.journal)
    whole = [line for line in soak.journal if line.what == "end" and line.detail.startswith("0/")]
    first = [line for line in whole if line.rank == 0]
    asked = sum(soak.fates[line.job].plan.instructions["iterations"] for line in first)
    granted = sum(int(line.detail.partition("/")[2]) for line in whole)
    at_start = sum(len(fate.shims_killed) for fate in soak.fates.values())
    verdict.rows |= {
        "jobs done, failed, cancelled": ", ".join(
            str(states[state]) for state in ("done", "failed", "cancelled")
        ),
        "attempts, and processes of them": f"{len(starts)}, {lines['start']}",
        "attempts that failed on their own": str(own),
        "messages of workers that succeeded, granted and ungated": (
            f"{granted:,}, {asked - granted:,}"
        ),
        "workers killed": str(lines["kill-worker"]),
        "ranks stopped": str(lines["kill-stop"]),
        "jobs that flooded their log and the gate": str(
            sum(fate.plan.instructions["floods"] for fate in soak.fates.values())
        ),
        "times that the disk was full": (
            str(soak.full_disks) if soak.scheduler.small_disk else "none: this needs root"
        ),
        "databases lost": "1",
        "shims killed, and those at their start": f"{lines['kill-shim'] + at_start}, {at_start}",
        "scheduler killed, and its lives": f"{soak.scheduler.kills}, {soak.scheduler.lives}",
    }


def _judge_logs(soak: Soak, verdict: Verdict, last: str, status: dict[str, int]) -> None:
    killed = {
        (line.job, line.attempt): line.at_ns
        for line in soak.journal
        if line.what in ("kill-worker", "kill-shim")
        and (line.rank == 0 or line.what == "kill-shim")
    }
    lives: dict[str, Life] = {}
    for log in sorted(soak.scheduler.state.glob("events-*.jsonl")):
        offset_ns = soak.offsets_ns.get(log.name, (0, None))[1]
        lives[log.name] = check_life(log, killed, offset_ns, soak.fates)
        verdict.problems += lives[log.name].problems
    ended = lives[last]
    for what, reported, logged in (
        ("grants", status["grants"], ended.grants),
        ("grants held", 0, ended.held),
    ):
        if reported != logged:
            verdict.problems.append(
                f"the scheduler reports {reported} {what}, but its log has {logged}"
            )
    accepted = status["events"] - status["ignored_events"]
    # The end of a lease that nobody holds any more may wake the scheduler after this status.
    if not accepted <= ended.events or ended.events - ended.last_ticks > status["events"]:
        verdict.problems.append(
            f"the scheduler accepted {accepted} of {status['events']} events, but its log has "
            f"{ended.events}"
        )
    freed = [one for life in lives.values() for one in life.freed_ns.values()]
    late = sum(life.late for life in lives.values())
    # The connection ends with the worker, the attempt only after its other processes: a busy
    # scheduler rarely sees both at once.
    if late > 1 + len(freed) // 10:
        verdict.problems.append(
            f"{late} of {len(freed)} grants of killed workers were only freed at the end of the "
            "attempt"
        )
    verdict.rows |= {
        "logs that were repeated, and their events": (
            f"{len(lives)}, {sum(life.events for life in lives.values()):,}"
        ),
        "grants": f"{sum(life.grants for life in lives.values()):,}",
        "grants held by killed workers": str(len(freed)),
        "longest from a worker's kill to its freed grant": f"{max(freed, default=0) / 1e6:.0f} ms",
    }


def _judge_memory(soak: Soak, verdict: Verdict) -> None:
    """Fit the memory of the last run over the jobs that ended in it, except the first fifth."""
    samples = [one for one in soak.samples if one.life == soak.samples[-1].life]
    first, last = samples[0], samples[-1]
    verdict.rows["its memory in its last life, begin and end"] = (
        f"{first.memory_bytes / 1e6:.1f} MB, {last.memory_bytes / 1e6:.1f} MB"
    )
    most_bytes = max(one.memory_bytes for one in soak.samples)
    verdict.rows["its most in any life"] = f"{most_bytes / 1e6:.1f} MB"
    seen = last.ended - first.ended
    if seen < FEWEST_TO_FIT:
        return
    warm = [one for one in samples if one.ended >= first.ended + seen // 5]
    slope, _ = statistics.linear_regression(
        [one.ended for one in warm], [one.memory_bytes for one in warm]
    )
    verdict.rows[f"its growth over the last {last.ended - warm[0].ended} jobs"] = (
        f"{slope:,.0f} bytes a job"
    )
    if slope > MAX_BYTES_PER_JOB:
        verdict.problems.append(f"the scheduler's memory grows by {slope:,.0f} bytes a job")


def _judge_files(soak: Soak, verdict: Verdict) -> None:
    """Check that only logs, a limited number of attempt folders and a few files are left."""
    state = soak.scheduler.state
    attempts = len(os.listdir(state / "attempts"))
    others = [path for path in state.iterdir() if not _is_log(path)]
    verdict.rows["folders of attempts, other files"] = f"{attempts}, {len(others)}"
    if attempts > KEPT_ATTEMPTS or len(others) > 12:
        verdict.problems.append(
            f"{attempts} attempt folders and {len(others)} other files are left"
        )


def _is_log(path: Path) -> bool:
    return path.name.startswith("events-")
