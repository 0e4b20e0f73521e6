"""A scheduler's start: nodes, and the jobs that an earlier scheduler knew."""

from __future__ import annotations

from headway.live import notices
from headway.live.daemon import Daemon
from headway.live.events import JobCancelled, JobRestored
from headway.live.executors import Attempt, Ended
from headway.live.executors.ranks import NEVER_STARTED
from headway.live.records import ACTIVE, JobRecord

LOST = 1


async def restore(daemon: Daemon) -> None:
    """Take over: first jobs that run, so that nobody gets their seats, then those that wait.

    An attempt that was to be started when the scheduler was killed has been recorded: the executor
    knows whether it runs, has ended, or never began.
    """
    daemon.hold_ends()
    for node in await daemon.executor.start(daemon):
        daemon.node_came(node)
    unfinished = [one for one in daemon.book.records.values() if not one.finished]
    active = {Attempt(one.job, one.attempts): one for one in unfinished if one.state in ACTIVE}
    running = set(await daemon.executor.recover(list(active)))
    ends = {ended.attempt: ended for ended in daemon.release_ends()}
    never = {attempt.job for attempt, ended in ends.items() if ended.code == NEVER_STARTED[0]}
    for attempt, record in active.items():
        if attempt in running:
            _restore(daemon, record, attempt)
    for attempt, record in active.items():
        if attempt not in running and record.job not in never:
            _restore(daemon, record, attempt)
            lost = Ended(attempt, LOST, "it was nowhere to be found after a restart")
            daemon.attempt_ended(ends.get(attempt, lost))
    for record in unfinished:
        if record.state not in ACTIVE or record.job in never:
            _restore(daemon, record)
    if unfinished:
        notices.info("jobs taken over", running=len(running), unfinished=len(unfinished))


def _restore(daemon: Daemon, record: JobRecord, attempt: Attempt | None = None) -> None:
    """Tell the core of a job: with an attempt where that runs, else waiting."""
    if attempt is not None:
        daemon.attempts.take_over(attempt)
    daemon.handle(
        JobRestored(
            at_ns=daemon.clock.now_ns(),
            job=record.job,
            spec=record.spec,
            submitted_ns=record.submitted_ns,
            attempts=record.attempts,
            iterations=record.iterations,
            seats=() if attempt is None else record.seats,
        )
    )
    if record.cancelled:
        daemon.handle(JobCancelled(at_ns=daemon.clock.now_ns(), job=record.job))
