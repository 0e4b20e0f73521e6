"""The steps in a job's life: queued, launched, stopped, finished."""

from __future__ import annotations

from headway.domain.records import NOBODY
from headway.live.core import messages
from headway.live.core.events import AnyInstruction, Launch, Slot, Stop
from headway.live.core.job_state import Trigger
from headway.live.core.jobs import LiveJob
from headway.live.core.lease_rules import SECOND_NS
from headway.live.core.observations import Observations
from headway.live.core.state import CoreState

FIRST_PAUSE_NS, LONGEST_PAUSE_NS = SECOND_NS, 60 * SECOND_NS
"""Pauses of a job that keeps failing."""
MAX_FINISHED = 1_000
"""Finished jobs that are remembered; then the one that finished first is forgotten."""


def enqueue(state: CoreState, job: LiveJob) -> None:
    """Add a job to the queue."""
    state.enqueue(job)
    state.update_key(job)


def launch(
    state: CoreState, job: LiveJob, slots: tuple[Slot, ...], instructions: list[AnyInstruction]
) -> None:
    """Begin an attempt at a queued job on these slots."""
    job.apply(Trigger.LAUNCH)
    state.leave_queue(job)
    job.attempts += 1
    _occupy(state, job, slots)
    state.counts.launches += 1
    instructions.append(Launch(job_id=job.job_id, attempt=job.attempts, slots=slots))


def restore(state: CoreState, job: LiveJob, slots: tuple[Slot, ...], iterations: int) -> None:
    """Resume an attempt that an earlier scheduler launched on these slots."""
    job.apply(Trigger.RESTORE)
    job.iterations, job.running_ns = iterations, state.now_ns
    _occupy(state, job, slots)


def _occupy(state: CoreState, job: LiveJob, slots: tuple[Slot, ...]) -> None:
    job.started_ns = state.now_ns
    state.arrays.place(job, slots, state.now_ns)
    state.update_key(job)


def stop(state: CoreState, job: LiveJob, reason: str, instructions: list[AnyInstruction]) -> None:
    """Stop the current attempt: it leaves the network now, and its slots when it has exited."""
    if not job.accepts(Trigger.STOP):
        return
    release_requests(state, job)
    job.apply(Trigger.STOP)
    job.reason = reason
    state.arrays.retire(job)
    instructions.append(Stop(job_id=job.job_id, attempt=job.attempts, reason=reason))


def free_slots(state: CoreState, job: LiveJob) -> None:
    """Release the slots of an attempt that has exited, and what it asked for or was granted."""
    release_requests(state, job)
    if job.observations.trains:
        observe_anew(state, job)
    state.arrays.free(job)
    state.room_made = True


def observe_anew(state: CoreState, job: LiveJob) -> None:
    """Restart the observations of a job's neighbours: it begins to compete with them, or ends."""
    nodes = set(job.node_names)
    for other in state.arrays.placed.values():
        if other is not job and not nodes.isdisjoint(other.node_names):
            other.observations.restart()


def retry(state: CoreState, job: LiveJob, reason: str, started: bool) -> None:
    """Queue a job for another attempt; it must have no slots."""
    job.apply(Trigger.RETRY)
    job.unstarted += not started
    job.reason = reason
    job.iterations, job.observations = 0, Observations()
    job.started_ns = NOBODY
    state.arrays.describe(job)
    enqueue(state, job)


def back_off(state: CoreState, job: LiveJob, ran_ns: int) -> None:
    """Let a queued job pause before its next attempt if it keeps failing.

    The first restart is at once; each pause is twice as long as the one before. An attempt that ran
    for longer than any pause starts the count anew.
    """
    job.failures = 1 if ran_ns > LONGEST_PAUSE_NS else job.failures + 1
    if job.failures > 1:
        doublings = min(job.failures - 2, 16)
        job.ready_ns = state.now_ns + min(FIRST_PAUSE_NS << doublings, LONGEST_PAUSE_NS)
        state.pausing[job.number] = job
        del state.fresh[job.number]


def end_pauses(state: CoreState) -> None:
    """Show jobs whose pause is over to the placement policy again."""
    for job in [job for job in state.pausing.values() if job.ready_ns <= state.now_ns]:
        del state.pausing[job.number]
        state.fresh[job.number] = job


def finish(state: CoreState, job: LiveJob, trigger: Trigger, reason: str) -> None:
    """Move a job to a final state; it must have no slots."""
    job.apply(trigger)
    state.leave_queue(job)
    state.pausing.pop(job.number, None)
    job.reason, job.finished_ns = reason, state.now_ns
    state.arrays.remove(job)
    state.finished[job.job_id] = job
    if len(state.finished) > MAX_FINISHED:
        oldest = next(iter(state.finished))
        del state.finished[oldest], state.jobs[oldest]


def release_requests(state: CoreState, job: LiveJob) -> None:
    """Drop all messages and computations that a job asked for or was granted."""
    state.forget_stuck(job)
    messages.drop_all(state, job)
    for rank in list(job.computations):
        state.turns.drop(job, rank)
