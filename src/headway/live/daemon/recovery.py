"""Restores the nodes, and the jobs an earlier scheduler left behind, when the scheduler starts."""

from __future__ import annotations

import msgspec

from headway.live import operator_log
from headway.live.core.events import NEVER_STARTED, JobCancelled, JobRestored, Tick
from headway.live.core.job_state import ACTIVE, JobState
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.job_record import JobRecord
from headway.live.executors import Attempt, AttemptEnd

LOST = 1
"""Exit code of an attempt that the executor does not know."""


async def restore(daemon: Daemon) -> None:
    """Restore running and queued jobs; nothing is placed before all of them are known.

    Launches are recorded before they happen, so the executor can say of every recorded attempt
    whether it is running, has ended or never started.
    """
    daemon.hold_ends()
    for node in await daemon.executor.start(daemon):
        daemon.node_up(node)
    unfinished = daemon.registry.unfinished()
    active = {Attempt(one.job_id, one.attempts): one for one in unfinished if one.state in ACTIVE}
    running = set(await daemon.executor.recover(list(active)))
    # An attempt found running may have ended in the meantime.
    ends = {ended.attempt: ended for ended in daemon.release_ends()}
    for attempt in active.keys() - running - ends.keys():
        ends[attempt] = AttemptEnd(attempt, LOST, "not found after a restart of the scheduler")
    never_started = {one.job_id for one, ended in ends.items() if ended.code == NEVER_STARTED}
    # Restore jobs that hold slots first, so that no queued job appears to hold them.
    for attempt, record in active.items():
        if record.job_id not in never_started:
            _restore(daemon, record, attempt)
    for record in unfinished:
        if record.job_id in never_started:
            _restore(daemon, msgspec.structs.replace(record, unstarted=record.unstarted + 1))
        elif record.state not in ACTIVE:
            _restore(daemon, record)
    for attempt, ended in ends.items():
        if attempt in active and attempt.job_id not in never_started:
            daemon.conclude_attempt(ended)
    daemon.pipeline.handle(Tick(at_ns=daemon.clock.now_ns()))
    if unfinished:
        operator_log.info("jobs restored", running=len(running), unfinished=len(unfinished))


def _restore(daemon: Daemon, record: JobRecord, attempt: Attempt | None = None) -> None:
    """Restore a job in the core: running as `attempt`, or queued without one."""
    if attempt is not None:
        daemon.attempts.take_over(attempt)
    daemon.pipeline.handle(
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
        reason = "could not be restored after a restart; see the scheduler's log"
        daemon.registry.update(record.job_id, state=JobState.FAILED, reason=reason, slots=())
        if attempt is not None:
            daemon.attempts.stop(attempt)
    elif record.cancelled:
        daemon.pipeline.handle(JobCancelled(at_ns=daemon.clock.now_ns(), job_id=record.job_id))
