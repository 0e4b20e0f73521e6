"""Checks a soak against the journal that its jobs wrote and against the event logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from soaking.plan import Plan

KILLS = ("kill-worker", "kill-shim", "kill-stop")


class Line(NamedTuple):
    """A line of the journal; `at_ns` is CLOCK_MONOTONIC."""

    what: str
    number: int
    job: str
    attempt: int
    rank: int
    pid: int
    at_ns: int
    detail: str


def parse_line(text: str) -> Line:
    """Parse a line."""
    what, number, job, attempt, rank, pid, at_ns, detail = text.split()
    return Line(what, int(number), job, int(attempt), int(rank), int(pid), int(at_ns), detail)


@dataclass
class Fate:
    """A job's end as the scheduler reports it, and what the soak did to it."""

    plan: Plan
    job: str
    cancel_requested: bool = False
    cancel_confirmed: bool = False
    shims_killed: set[int] = field(default_factory=set)
    ended: dict[str, Any] | None = None
    ended_ns: int = 0
    """When this was seen, on CLOCK_MONOTONIC."""


def check_jobs(fates: Iterable[Fate], journal: Iterable[Line]) -> list[str]:
    """Return everything that is wrong with the jobs."""
    by_number: dict[int, list[Line]] = defaultdict(list)
    for line in journal:
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
            yield f"attempt {line.attempt} started while process {line.detail} was still running"
        if line.job != fate.job:
            yield f"also ran as job {line.job}"
    late = [line for line in starts if line.at_ns > fate.ended_ns]
    if late:
        yield f"attempt {late[0].attempt} was started after the job was {state}"
    if started and started[-1] > fate.ended["attempts"]:
        yield f"attempt {started[-1]} ran, but only {fate.ended['attempts']} are recorded"
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
            yield f"attempt {attempt} succeeded, but the job was retried"
        if attempt not in whole and attempt not in causes and not fate.cancel_requested:
            yield f"attempt {attempt} ended for no reason"
    if state == "done" and (not started or started[-1] not in whole):
        yield "is done although its last attempt did not succeed"
    if state == "failed" and len(causes) < retries + 1:
        yield (
            f"failed after {len(causes)} attempts with a cause, with {retries} retries: "
            f"{fate.ended['reason']}"
        )
    if state == "cancelled" and not fate.cancel_requested:
        yield "is cancelled although nobody requested it"
    if fate.cancel_confirmed and state != "cancelled":
        yield f"is {state} although its cancellation was confirmed"


def _causes(fate: Fate, lines: list[Line]) -> set[int]:
    """Return the attempts that had a cause to fail."""
    found = set(fate.shims_killed)
    for line in lines:
        if line.what in KILLS or (line.what == "end" and not line.detail.startswith("0/")):
            found.add(line.attempt)
    return found


class Life(NamedTuple):
    """What the event log of one run of the scheduler shows."""

    events: int
    last_ticks: int
    """How many of the events are Ticks at the end, with nothing after them."""
    grants: int
    held: int
    """Grants still held at the end."""
    freed_ns: dict[tuple[str, int], int]
    """How long grants of killed workers were held after the kill."""
    late: int
    """How many of these were only freed by the end of the whole attempt."""
    problems: list[str]


Killed = Mapping[tuple[str, int], int]
"""When rank 0 of an attempt was killed, by job and attempt; on CLOCK_MONOTONIC."""


def check_life(log: Path, killed: Killed, offset_ns: int | None, jobs: Collection[str]) -> Life:
    """Replay the decisions of a run of the scheduler, and follow every grant.

    `offset_ns` is CLOCK_MONOTONIC minus the scheduler's clock, if known.
    """
    from headway.live.core.events import (
        GrantMessage,
        JobExited,
        MessageDone,
        Stop,
        Tick,
        WorkerLost,
    )
    from headway.live.daemon.event_log.reader import open_event_log
    from headway.live.replay import replay

    problems = []
    replayed = replay(log)
    if replayed.difference is not None:
        problems.append(f"{log.name}: line {replayed.difference.line} does not replay")
    events = last_ticks = grants = late = 0
    held: dict[tuple[str, int], set[int]] = defaultdict(set)
    freed_ns: dict[tuple[str, int], int] = {}
    with open_event_log(log) as lines:
        for entry in lines:
            events += 1
            event = entry.event
            last_ticks = last_ticks + 1 if isinstance(event, Tick) else 0
            who = (str(getattr(event, "job_id", "")), int(getattr(event, "attempt", 0)))
            if who[0] and who[0] not in jobs:
                problems.append(f"{log.name}: has a job {who[0]} that nobody submitted")
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
    still_held = sum(map(len, held.values()))
    return Life(events, last_ticks, grants, still_held, freed_ns, late, problems)
