"""A scheduler's start: nodes, and the jobs that an earlier scheduler knew."""

from __future__ import annotations

import msgspec

from headway.live import operator_log
from headway.live.core.events import NEVER_STARTED, JobCancelled, JobRestored, Tick
from headway.live.core.job_state import ACTIVE, JobState
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.job_records import JobRecord
from headway.live.executors import Attempt, AttemptEnd

LOST = 1


async def restore(daemon: Daemon) -> None:
    """Take over the jobs that run and those that wait; nobody is placed before all are known.

    An attempt that was to be started when the scheduler was killed has been recorded: the executor
    knows whether it runs, has ended, or never began.
    """
    daemon.hold_ends()
    for node in await daemon.executor.start(daemon):
        daemon.node_up(node)
    unfinished = [one for one in daemon.book.records.values() if not one.finished]
    active = {Attempt(one.job_id, one.attempts): one for one in unfinished if one.state in ACTIVE}
    running = set(await daemon.executor.recover(list(active)))
    # One that ran when it was found may have ended since.
    ends = {ended.attempt: ended for ended in daemon.release_ends()}
    for attempt in active.keys() - running - ends.keys():
        ends[attempt] = AttemptEnd(attempt, LOST, "it was nowhere to be found after a restart")
    never = {one.job_id for one, ended in ends.items() if ended.code == NEVER_STARTED}
    # First those that have slots, so that nobody else is taken to have them.
    for attempt, record in active.items():
        if record.job_id not in never:
            _restore(daemon, record, attempt)
    for record in unfinished:
        if record.job_id in never:
            _restore(daemon, msgspec.structs.replace(record, unstarted=record.unstarted + 1))
        elif record.state not in ACTIVE:
            _restore(daemon, record)
    for attempt, ended in ends.items():
        if attempt in active and attempt.job_id not in never:
            daemon.conclude(ended)
    daemon.handle(Tick(at_ns=daemon.clock.now_ns()))
    if unfinished:
        operator_log.info("jobs taken over", running=len(running), unfinished=len(unfinished))


def _restore(daemon: Daemon, record: JobRecord, attempt: Attempt | None = None) -> None:
    """Tell the core of a job: with an attempt where that runs, else waiting."""
    if attempt is not None:
        daemon.attempts.take_over(attempt)
    daemon.handle(
        JobRestored(
            at_ns=daemon.clock.now_ns(),
            job_id=record.job_id,
            spec=record.spec,
            submitted_ns=record.submitted_ns,
            attempts=record.attempts,
            iterations=record.iterations,
            slots=() if attempt is None else record.slots,
            unstarted=record.unstarted,
            hold=True,
        )
    )
    if daemon.core.job(record.job_id) is None:
        reason = "it could not be taken over after a restart; the scheduler's notices say why"
        daemon.book.update(record.job_id, state=JobState.FAILED, reason=reason, slots=())
        if attempt is not None:
            daemon.attempts.stop(attempt)
    elif record.cancelled:
        daemon.handle(JobCancelled(at_ns=daemon.clock.now_ns(), job_id=record.job_id))
