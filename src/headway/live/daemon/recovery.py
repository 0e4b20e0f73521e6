"""Restores the nodes, and the jobs an earlier scheduler left behind, when the scheduler starts."""

from __future__ import annotations

import asyncio
from enum import StrEnum

import msgspec

from headway.live import operator_log
from headway.live.core.events import NEVER_STARTED, JobCancelled, JobRestored, Tick
from headway.live.core.job_state import ACTIVE, JobState
from headway.live.daemon.adoption import rebuild, refuse_unknown
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.job_record import JobRecord
from headway.live.daemon.state_folder import StateFolder
from headway.live.executors import Attempt, AttemptEnd
from headway.live.executors.attempt_folders import last_job
from headway.live.executors.attempt_tracker import NEVER_STARTED_OUTCOME

LOST = 1
"""Exit code of an attempt that has run and of which the executor finds nothing."""


class Unknown(StrEnum):
    """What to do about attempts that run and are not in the database."""

    REFUSE = "refuse"
    ADOPT = "adopt"
    FORGET = "forget"


async def restore(
    daemon: Daemon, folder: StateFolder | None = None, unknown: Unknown = Unknown.FORGET
) -> None:
    """Restore running and queued jobs; nothing is placed before all of them are known.

    Launches are recorded before they happen, so the executor can say of every recorded attempt
    whether it is running, has ended or never started. Attempts without a record are adopted as
    `unknown` says; `folder` holds the log from which their jobs are rebuilt.

    Raises:
        InputError: There are such attempts, and `unknown` is REFUSE; nothing has changed.
    """
    daemon.hold_ends()
    nodes = await daemon.executor.start(daemon)
    if folder is not None:
        await _settle_unknown(daemon, folder, unknown)
    for node in nodes:
        daemon.node_up(node)
    unfinished = daemon.registry.unfinished()
    active = {Attempt(one.job_id, one.attempts): one for one in unfinished if one.state in ACTIVE}
    running = set(await daemon.executor.recover(list(active)))
    # An attempt found running may have ended in the meantime.
    ends = {ended.attempt: ended for ended in daemon.release_ends()}
    for attempt in active.keys() - running - ends.keys():
        ends[attempt] = _end_without_trace(attempt, active[attempt])
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


def _end_without_trace(attempt: Attempt, record: JobRecord) -> AttemptEnd:
    """Return how an attempt ended of which there are no processes and no files.

    Launches are recorded before anything of them exists, and that they have started after that.
    """
    if record.state is JobState.STARTING:
        return AttemptEnd(attempt, *NEVER_STARTED_OUTCOME)
    reason = "not found after a restart of the scheduler: no processes and no folder"
    return AttemptEnd(attempt, LOST, reason)


async def _settle_unknown(daemon: Daemon, folder: StateFolder, unknown: Unknown) -> None:
    """Refuse, adopt or forget the attempts that run without a record."""
    records = daemon.registry.records()
    # Earlier attempts of known jobs are ended by the executor: only the latest may run.
    known = {Attempt(one.job_id, n) for one in records for n in range(1, one.attempts + 1)}
    found = await daemon.executor.find_unknown(known)
    names = [f"{one.attempt.job_id}.{one.attempt.number}" for one in found]
    if unknown is Unknown.REFUSE:
        refuse_unknown(found, folder.database)
        if not records and last_job(folder.attempts):
            operator_log.warning(
                "no jobs are stored, but this folder has been used before; "
                "--adopt rebuilds jobs that were queued from the event log"
            )
    elif unknown is Unknown.FORGET and names:
        operator_log.warning("ending unknown attempts", attempts=names)
    elif unknown is Unknown.ADOPT:
        rebuilt = await asyncio.to_thread(rebuild, folder.event_log, found)
        daemon.clock.advance_to(rebuilt.clock_ns)
        stored = {one.job_id: one.attempts for one in records}
        # What the database knows is newer, unless an attempt runs that it does not know.
        later = [one for one in rebuilt.jobs.values() if one.attempts > stored.get(one.job_id, -1)]
        daemon.registry.adopt(later)
        operator_log.warning("jobs adopted", jobs=len(later), attempts=names)


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
