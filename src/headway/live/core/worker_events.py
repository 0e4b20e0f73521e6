"""Handlers of reports from workers; each returns whether the event fits the state.

Workers are not trusted: nothing that they report can make a handler raise.
"""

from __future__ import annotations

from headway.domain.limits import LONGEST_NS, MAX_BYTES, MAX_ITERATIONS
from headway.gate.protocol import MAX_BUCKETS, MAX_OPEN_REQUESTS
from headway.live.core import leases, lifecycle, messages
from headway.live.core.events import (
    AnyInstruction,
    ComputeDone,
    ComputeReady,
    IterationDone,
    IterationProfiled,
    MessageDone,
    MessageReady,
    WorkerLost,
)
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob, MessageRequest
from headway.live.core.state import CoreState

PROFILE_INTERVAL_NS = 1_000_000_000
"""Profiles that come sooner are ignored: one may be long, and each is in the event log."""


def iteration_done(
    state: CoreState, event: IterationDone, instructions: list[AnyInstruction]
) -> bool:
    """Record a job's progress and measurements."""
    job = state.job_of_attempt(event.job_id, event.attempt)
    if job is None or not job.iterations < event.iterations <= MAX_ITERATIONS:
        return False
    first = job.iterations == 0
    job.iterations = event.iterations
    if job.overdue is None:
        leases.progressed(state, job, instructions)
    _observe(state, job)
    # A steady placement policy has decided by the defaults: show it queued jobs again.
    state.room_made |= job.measure(event)
    if first:
        work_ns = job.iterations * (job.forward_ns + job.backward_ns)
        state.overheads.began(state.now_ns - job.started_ns - work_ns)
    if job.state is not JobState.STOPPING:
        state.arrays.estimate(job)
        state.update_key(job)
    return True


def _observe(state: CoreState, job: LiveJob) -> None:
    """Observe a job's iterations; when they begin, restart its neighbours' observations."""
    trained = job.observations.trains
    job.observations.iterated(state.now_ns, job.iterations)
    if job.observations.trains and not trained:
        lifecycle.observe_anew(state, job)


def iteration_profiled(state: CoreState, event: IterationProfiled, _: list[AnyInstruction]) -> bool:
    """Record a job's average iteration, for `headway replay`; no decision depends on it."""
    job = state.job_of_attempt(event.job_id, event.attempt)
    if job is None or not 0 < len(event.buckets) <= MAX_BUCKETS:
        return False
    if job.profile is not None and state.now_ns - job.profile.at_ns < PROFILE_INTERVAL_NS:
        return False
    times_ns = (event.forward_ns, event.optimizer_ns, *(one.backward_ns for one in event.buckets))
    if not all(0 <= time_ns <= LONGEST_NS for time_ns in times_ns):
        return False
    if not all(0 <= one.bucket_bytes <= MAX_BYTES for one in event.buckets):
        return False
    job.profile = event
    return True


def message_ready(
    state: CoreState, event: MessageReady, instructions: list[AnyInstruction]
) -> bool:
    """Grant a message of a job on one node; put any other up for admission, in order."""
    job = state.job_of_attempt(event.job_id, event.attempt)
    if (
        job is None
        or job.state is JobState.STOPPING
        or event.request in job.requests
        or len(job.requests) >= MAX_OPEN_REQUESTS
        or not 0 <= event.message_bytes <= MAX_BYTES
    ):
        return False
    unsent_bytes = max(event.unsent_bytes, event.message_bytes)
    job.requests[event.request] = MessageRequest(event.message_bytes, unsent_bytes)
    if not job.ports:
        messages.grant(state, job, event.request, instructions)
    elif len(job.requests) == 1:
        messages.request_admission(state, job)
    return True


def message_done(state: CoreState, event: MessageDone, instructions: list[AnyInstruction]) -> bool:
    """Take a message off the network; the job's next one is put up for admission."""
    job = state.job_of_attempt(event.job_id, event.attempt)
    if job is None or event.request not in job.requests:
        return False
    first = next(iter(job.requests)) == event.request
    if event.request in (job.granted, job.overdue):
        messages.measure(state, job)
        job.overdue = None
    if job.overdue is None:
        leases.progressed(state, job, instructions)
    del job.requests[event.request]
    if job.ports and first:
        messages.withdraw_first(state, job)
        if job.requests:
            messages.request_admission(state, job)
    return True


def compute_ready(
    state: CoreState, event: ComputeReady, instructions: list[AnyInstruction]
) -> bool:
    """Queue a rank's request for a turn to compute."""
    job = state.job_of_attempt(event.job_id, event.attempt)
    if job is None or job.state is JobState.STOPPING:
        return False
    if not state.turns.request(job, event.rank, event.request):
        return False
    job.takes_turns = True
    if event.rank == job.stuck_rank:
        leases.progressed(state, job, instructions)
    if job.number in state.waiting and job.awaits_gradients:
        # The rank was between two passes, so its gradients are not complete.
        messages.withdraw_first(state, job)
    return True


def compute_done(state: CoreState, event: ComputeDone, _: list[AnyInstruction]) -> bool:
    """End a rank's turn."""
    job = state.job_of_attempt(event.job_id, event.attempt)
    if job is None or not state.turns.complete(job, event.rank, event.request):
        return False
    messages.resume_admission(state, job)
    return True


def worker_lost(state: CoreState, event: WorkerLost, instructions: list[AnyInstruction]) -> bool:
    """Release what a disconnected rank asked for or was granted; rank 0 sends the messages."""
    job = state.job_of_attempt(event.job_id, event.attempt)
    if job is None:
        return False
    if event.rank == 0:
        messages.drop_all(state, job)
    state.turns.drop(job, event.rank)
    messages.resume_admission(state, job)
    if event.hung:
        leases.mark_stuck(
            state, job, f"rank {event.rank} does not respond", instructions, event.rank
        )
    return True
