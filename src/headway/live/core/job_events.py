"""Handlers of events about jobs and the policy; each returns whether the event fits the state."""

from __future__ import annotations

from headway.domain.limits import HORIZON_NS, MAX_ITERATIONS, MAX_PRIORITY, whole
from headway.live.core import lifecycle
from headway.live.core.events import (
    NEVER_STARTED,
    AnyInstruction,
    JobCancelled,
    JobExited,
    JobRestored,
    JobStarted,
    JobSubmitted,
    PolicyChanged,
    PriorityChanged,
    Tick,
)
from headway.live.core.job_state import JobState, Trigger
from headway.live.core.jobs import MAX_ATTEMPTS, NEVER_NS, check_spec
from headway.live.core.state import CoreState


def job_submitted(state: CoreState, event: JobSubmitted, _: list[AnyInstruction]) -> bool:
    """Queue a new job."""
    if event.job_id in state.jobs:
        return False
    check_spec(event.spec)
    lifecycle.enqueue(state, state.add_job(event.job_id, event.spec, state.now_ns))
    return True


def job_restored(state: CoreState, event: JobRestored, instructions: list[AnyInstruction]) -> bool:
    """Queue a job of an earlier scheduler, or resume it on its slots; stop it if one is gone."""
    if event.job_id in state.jobs:
        return False
    check_spec(event.spec)
    whole(event.submitted_ns, "submitted_ns", 0, HORIZON_NS)
    whole(event.attempts, "attempts", 1 if event.slots else 0, MAX_ATTEMPTS)
    whole(event.unstarted, "unstarted", 0, event.attempts)
    whole(event.iterations, "iterations", 0, MAX_ITERATIONS)
    job = state.add_job(event.job_id, event.spec, event.submitted_ns)
    job.attempts, job.unstarted = event.attempts, event.unstarted
    state.placement_paused |= event.hold
    if not event.slots:
        lifecycle.enqueue(state, job)
        return True
    slots = state.arrays.usable(job, event.slots)
    lifecycle.restore(state, job, slots, event.iterations)
    if slots != event.slots or len(slots) != job.spec.gpus:
        lifecycle.stop(state, job, "its slots are no longer available", instructions)
    return True


def job_cancelled(
    state: CoreState, event: JobCancelled, instructions: list[AnyInstruction]
) -> bool:
    """Stop a job's attempt, or take the job off the queue."""
    job = state.jobs.get(event.job_id)
    if job is None or job.finished or job.cancelled:
        return False
    job.cancelled = True
    if job.state is JobState.QUEUED:
        lifecycle.finish(state, job, Trigger.CANCEL, "cancelled")
    else:
        lifecycle.stop(state, job, "cancelled", instructions)
    return True


def priority_changed(state: CoreState, event: PriorityChanged, _: list[AnyInstruction]) -> bool:
    """Give a job another priority: the order of the queue, the network and the turns changes."""
    job = state.jobs.get(event.job_id)
    whole(event.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
    if job is None or job.finished or event.priority == job.spec.priority:
        return False
    state.set_priority(job, event.priority)
    if job.state is not JobState.STOPPING:
        state.update_key(job)
    return True


def job_started(state: CoreState, event: JobStarted, _: list[AnyInstruction]) -> bool:
    """Mark an attempt as running."""
    job = state.job_of_attempt(event.job_id, event.attempt)
    if job is None or not job.accepts(Trigger.START):
        return False
    job.apply(Trigger.START)
    job.running_ns = state.now_ns
    return True


def job_exited(state: CoreState, event: JobExited, _: list[AnyInstruction]) -> bool:
    """Free an attempt's slots; its job is finished or queued again."""
    job = state.job_of_attempt(event.job_id, event.attempt)
    if job is None:
        return False
    stopping, ran_ns = job.state is JobState.STOPPING, state.now_ns - job.started_ns
    lifecycle.free_slots(state, job)
    reason = event.reason or (f"exit code {event.code}" if event.code else "")
    if stopping:
        reason = job.reason
    started = event.code != NEVER_STARTED
    if job.cancelled:
        lifecycle.finish(state, job, Trigger.CANCEL, reason)
    elif event.code == 0:
        if (latest_ns := job.observations.latest_ns) is not None:
            state.overheads.exited(state.now_ns - latest_ns)
        lifecycle.finish(state, job, Trigger.SUCCEED, event.reason)
    elif started and job.attempts - job.unstarted > job.spec.retries:
        lifecycle.finish(state, job, Trigger.FAIL, reason)
    else:
        lifecycle.retry(state, job, reason, started)
        if started and not stopping:
            lifecycle.back_off(state, job, ran_ns)
    return True


def policy_changed(state: CoreState, event: PolicyChanged, _: list[AnyInstruction]) -> bool:
    """Switch to another policy and show it all jobs and messages."""
    state.set_policy(event.policy)
    for job in state.arrays.rows:
        if job is not None and job.state is not JobState.STOPPING:
            state.update_key(job)
    for job in state.waiting.values():
        job.wake_ns = NEVER_NS
    state.unasked.update(state.waiting)
    state.room_made = True
    for job in state.arrays.placed.values():
        job.observations.restart()
    return True


def tick(state: CoreState, _: Tick, __: list[AnyInstruction]) -> bool:
    """Resume placement; everything else follows from the time."""
    state.placement_paused = False
    return True
