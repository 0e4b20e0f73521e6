"""Leases: a grant that lasts too long counts as over for all other jobs.

A job whose ranks hang keeps its grant to send or its turn to compute. When the lease is over, the
job is stuck until it makes progress. A job that stays stuck too long is stopped.
"""

from __future__ import annotations

from headway.live.core import lifecycle, messages
from headway.live.core.events import AnyInstruction, GrantTurn, ReportStuck, Slot
from headway.live.core.job_state import JobState
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.lease_rules import SECOND_NS
from headway.live.core.state import CoreState

STOPPED = "stuck for too long"


def expire(state: CoreState, instructions: list[AnyInstruction]) -> None:
    """End all leases that are over, stop jobs that are stuck for too long, and find what is next.

    Without rules nothing is ever due.
    """
    if state.lease_check_ns > state.now_ns:
        return
    for job in list(state.arrays.sending):
        if job.lease_ns <= state.now_ns:
            _end_message(state, job, instructions)
    for slot, lease_ns in list(state.turns.leases.items()):
        if lease_ns <= state.now_ns:
            _end_turn(state, slot, instructions)
    for job in list(state.stuck.values()):
        if job.stop_ns <= state.now_ns:
            lifecycle.stop(state, job, f"{STOPPED}: {job.stuck}", instructions)
    due = [job.lease_ns for job in state.arrays.sending]
    due += state.turns.leases.values()
    due += [job.stop_ns for job in state.stuck.values()]
    state.lease_check_ns = min(due, default=NEVER_NS)


def begin_turns(state: CoreState) -> None:
    """Begin the leases of the turns that were given on shared slots."""
    for slot in state.turns.unleased:
        if state.lease_rules is not None:
            job, _ = state.turns.holders[slot]
            lease_ns = state.lease_rules.lease_ns(max(job.forward_ns, job.backward_ns))
            state.turns.leases[slot] = state.now_ns + lease_ns
            state.lease_check_ns = min(state.lease_check_ns, state.now_ns + lease_ns)
    state.turns.unleased.clear()


def mark_stuck(
    state: CoreState,
    job: LiveJob,
    problem: str,
    instructions: list[AnyInstruction],
    rank: int | None = None,
) -> None:
    """Mark a running job as stuck, unless it is already; `rank` is the one that hangs, if known."""
    rules = state.lease_rules
    if rules is None or job.stuck or job.state is JobState.STOPPING:
        return
    job.stuck, job.stuck_rank = problem, rank
    job.stop_ns = state.now_ns + rules.stuck_ns if rules.stuck_ns else NEVER_NS
    state.stuck[job.number] = job
    state.lease_check_ns = min(state.lease_check_ns, job.stop_ns)
    instructions.append(ReportStuck(job_id=job.job_id, attempt=job.attempts, problem=problem))


def progressed(state: CoreState, job: LiveJob, instructions: list[AnyInstruction]) -> None:
    """Unmark a job that has made progress."""
    if job.stuck:
        state.forget_stuck(job)
        instructions.append(ReportStuck(job_id=job.job_id, attempt=job.attempts, problem=""))


def _end_message(state: CoreState, job: LiveJob, instructions: list[AnyInstruction]) -> None:
    """Take an overdue message off the network; the job's other requests wait for its end."""
    overdue = job.granted
    messages.take_off(state, job)
    job.overdue = overdue
    mark_stuck(
        state,
        job,
        f"its all-reduce has not ended after {job.leased_ns / SECOND_NS:.3g} s; a rank may hang",
        instructions,
    )


def _end_turn(state: CoreState, slot: Slot, instructions: list[AnyInstruction]) -> None:
    """Release an overdue turn; what its rank has asked for since is granted, and waits for it."""
    job, rank = state.turns.holders[slot]
    for request, granted in job.computations[rank].items():
        if not granted:
            instructions.append(
                GrantTurn(job_id=job.job_id, attempt=job.attempts, rank=rank, request=request)
            )
    state.turns.drop(job, rank)
    mark_stuck(
        state,
        job,
        f"rank {rank} has kept its turn to compute on {slot.node}:{slot.index} for too long",
        instructions,
        rank,
    )
    messages.resume_admission(state, job)
