"""Rebuilds the records of jobs whose database was lost, from the event log and their processes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from headway.domain.errors import HeadwayError, InputError
from headway.domain.records import NOBODY
from headway.live import operator_log
from headway.live.core.core import Core
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob
from headway.live.daemon.event_log.parts import log_runs, open_run
from headway.live.daemon.job_record import JobRecord
from headway.live.executors import LaunchedAttempt


class Rebuilt(msgspec.Struct):
    """What is known of an earlier scheduler: its jobs by id, and its clock."""

    jobs: dict[str, JobRecord] = {}
    clock_ns: int = 0


def refuse_unknown(unknown: Sequence[LaunchedAttempt], database: Path) -> None:
    """Raise InputError if attempts run that the database does not know."""
    if unknown:
        names = ", ".join(f"{one.attempt.job_id}.{one.attempt.number}" for one in unknown[:10])
        more = f" and {len(unknown) - 10:,} more" if len(unknown) > 10 else ""
        raise InputError(
            f"does not know the attempts {names}{more}, which are running: it was lost, or is an "
            "old copy. Restore it, start with --adopt to rebuild their jobs from the event log and "
            "the processes, or with --forget to end them.",
            source=str(database),
        )


def rebuild(event_log: Path, unknown: Iterable[LaunchedAttempt]) -> Rebuilt:
    """Return all jobs that are in the event log, and those of attempts that are running.

    Each run begins with the jobs that are not finished: of earlier runs, only finished ones count.
    """
    found = Rebuilt()
    for run in sorted(log_runs(event_log)):
        later = _replayed(event_log, run)
        found.clock_ns = max(found.clock_ns, later.clock_ns)
        if later.jobs:
            ended = {job_id: one for job_id, one in found.jobs.items() if one.finished}
            found.jobs = ended | later.jobs
    for one in unknown:
        if one.spec is None:
            continue
        job_id = one.attempt.job_id
        known = found.jobs.get(job_id) or JobRecord(
            job_id=job_id,
            spec=one.spec,
            state=JobState.RUNNING,
            submitted_ns=found.clock_ns,
            submitted_at=time.time(),
        )
        found.jobs[job_id] = msgspec.structs.replace(
            known, state=JobState.RUNNING, attempts=one.attempt.number, slots=one.slots
        )
    return found


def _replayed(event_log: Path, run: int) -> Rebuilt:
    """Return the jobs at the end of a run, as far as its log can be read."""
    found = Rebuilt()
    try:
        with open_run(event_log, run) as log:
            header = log.header
            core = Core(header.policy, header.network, header.seed, header.leases)
            for entry in log:
                core.handle(entry.event)
                found.clock_ns = max(found.clock_ns, entry.event.at_ns)
    except HeadwayError as error:
        operator_log.warning("event log cannot be read to its end", run=run, problem=str(error))
        if not found.clock_ns:
            return found
    found.jobs = {job.job_id: _record(job, found.clock_ns) for job in _numbered(core.state.jobs)}
    return found


def _numbered(jobs: dict[str, LiveJob]) -> Iterator[LiveJob]:
    return (job for job_id, job in jobs.items() if job_id.isascii() and job_id.isdecimal())


def _record(job: LiveJob, clock_ns: int) -> JobRecord:
    now = time.time()

    def at(time_ns: int) -> float | None:
        return None if time_ns == NOBODY else now - max(0, clock_ns - time_ns) / 1e9

    return JobRecord(
        job_id=job.job_id,
        spec=job.spec,
        state=job.state,
        submitted_ns=job.submitted_ns,
        submitted_at=at(job.submitted_ns) or now,
        attempts=job.attempts,
        unstarted=job.unstarted,
        slots=job.slots,
        iterations=job.iterations,
        reason=job.reason,
        cancelled=job.cancelled,
        started_ns=None if job.started_ns == NOBODY else job.started_ns,
        started_at=at(job.started_ns),
        ended_ns=None if job.finished_ns == NOBODY else job.finished_ns,
        ended_at=at(job.finished_ns),
    )
