"""What must be true of a soak, read from the ledger that its jobs wrote and from the event logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from soaking.plan import Plan

KILLS = ("kill-worker", "kill-shim")


class Line(NamedTuple):
    """A line of the ledger; `at_ns` is CLOCK_MONOTONIC."""

    what: str
    number: int
    job: str
    attempt: int
    rank: int
    pid: int
    at_ns: int
    detail: str


def line_from(text: str) -> Line:
    """Read a line."""
    what, number, job, attempt, rank, pid, at_ns, detail = text.split()
    return Line(what, int(number), job, int(attempt), int(rank), int(pid), int(at_ns), detail)


@dataclass
class Fate:
    """What the soak knows of a job: how the scheduler says it ended, and what was done to it."""

    plan: Plan
    job: str
    cancel_asked: bool = False
    cancel_answered: bool = False
    shims_killed: set[int] = field(default_factory=set)
    ended: dict[str, Any] | None = None
    ended_ns: int = 0
    """When this was seen, on CLOCK_MONOTONIC."""


def check_jobs(fates: Iterable[Fate], ledger: Iterable[Line]) -> list[str]:
    """Return what is wrong with any job."""
    by_number: dict[int, list[Line]] = defaultdict(list)
    for line in ledger:
        by_number[line.number].append(line)
    return [
        f"job {fate.job} ({fate.plan.name}): {problem}"
        for fate in fates
        for problem in _check_job(fate, by_number[fate.plan.number])
    ]


def _check_job(fate: Fate, lines: list[Line]) -> Iterator[str]:
    if fate.ended is None:
        yield "has not ended"
        return
    state, retries = fate.ended["state"], fate.plan.spec["retries"]
    starts = [line for line in lines if line.what == "start"]
    started = sorted({line.attempt for line in starts})
    if len({(line.attempt, line.rank) for line in starts}) < len(starts):
        yield "a process of an attempt was started twice"
    for line in lines:
        if line.what == "overlap":
            yield f"attempt {line.attempt} began while process {line.detail} of it lived"
        if line.job != fate.job:
            yield f"also ran as job {line.job}"
    late = [line for line in starts if line.at_ns > fate.ended_ns]
    if late:
        yield f"attempt {late[0].attempt} was started after the job was {state}"
    if started and started[-1] > fate.ended["attempts"]:
        yield f"attempt {started[-1]} was made, of {fate.ended['attempts']} that are known"
    if len(started) > retries + 1:
        yield f"{len(started)} attempts with {retries} retries"

    causes = _causes(fate, lines)
    ranks = fate.plan.spec["gpus"]
    whole = [
        attempt
        for attempt in started
        if sum(line.what == "end" and line.detail.startswith("0/") for line in lines if
               line.attempt == attempt) == ranks
    ]  # fmt: skip
    for attempt in started:
        if attempt in whole and attempt not in fate.shims_killed and attempt != started[-1]:
            yield f"attempt {attempt} succeeded, and the job was started again"
        if attempt not in whole and attempt not in causes and not fate.cancel_asked:
            yield f"attempt {attempt} ended although nothing befell it"
    if state == "done" and (not started or started[-1] not in whole):
        yield "is done although its last attempt did not succeed"
    if state == "failed" and len(causes) < retries + 1:
        yield (
            f"failed after {len(causes)} attempts that had a reason to, with {retries} retries: "
            f"{fate.ended['reason']}"
        )
    if state == "cancelled" and not fate.cancel_asked:
        yield "is cancelled although nobody asked for that"
    if fate.cancel_answered and state != "cancelled":
        yield f"is {state} although its cancelling was answered"


def _causes(fate: Fate, lines: list[Line]) -> set[int]:
    """Return the attempts that had a reason to fail."""
    found = set(fate.shims_killed)
    for line in lines:
        if line.what in KILLS or (line.what == "end" and not line.detail.startswith("0/")):
            found.add(line.attempt)
    return found


class Life(NamedTuple):
    """What the log of one life of the scheduler says."""

    events: int
    grants: int
    held: int
    """Grants that nothing ended."""
    freed_ns: dict[tuple[str, int], int]
    """How long grants of killed workers were held after the kill."""
    late: int
    """How many of these were freed by the end of the whole attempt alone."""
    problems: list[str]


Killed = Mapping[tuple[str, int], int]
"""When rank 0 of an attempt was killed, by job and attempt; on CLOCK_MONOTONIC."""


def check_life(log: Path, killed: Killed, offset_ns: int | None, jobs: Collection[str]) -> Life:
    """Repeat a life's decisions, and follow every grant.

    `offset_ns` is CLOCK_MONOTONIC less the scheduler's clock, where that is known.
    """
    from headway.live.core.events import GrantMessage, JobExited, MessageDone, Stop, WorkerLost
    from headway.live.daemon.event_log.reader import open_event_log
    from headway.live.replay import replay

    problems = []
    repeated = replay(log)
    if repeated.difference is not None:
        problems.append(f"{log.name}: line {repeated.difference.line} would be decided otherwise")
    events = grants = late = 0
    held: dict[tuple[str, int], set[int]] = defaultdict(set)
    freed_ns: dict[tuple[str, int], int] = {}
    with open_event_log(log) as lines:
        for entry in lines:
            events += 1
            event = entry.event
            who = (str(getattr(event, "job_id", "")), int(getattr(event, "attempt", 0)))
            if who[0] and who[0] not in jobs:
                problems.append(f"{log.name}: knows of a job {who[0]}, which nobody submitted")
            if isinstance(event, MessageDone):
                held[who].discard(event.request)
            ends = isinstance(event, WorkerLost | JobExited)
            if ends and held.pop(who, set()) and who in killed and offset_ns is not None:
                freed_ns[who] = event.at_ns + offset_ns - killed[who]
                late += isinstance(event, JobExited)
            for one in entry.instructions:
                if isinstance(one, GrantMessage):
                    grants += 1
                    held[one.job_id, one.attempt].add(one.request)
                elif isinstance(one, Stop):
                    held.pop((one.job_id, one.attempt), None)
    return Life(events, grants, sum(map(len, held.values())), freed_ns, late, problems)
