"""Requests to send messages: waiting for admission, granted, withdrawn.

Of a job on several nodes, one message at a time competes for the network; its other requests wait
behind it. On a single node messages meet no others and are granted at once.
"""

from __future__ import annotations

from headway.live.core.events import AnyInstruction, GrantMessage
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.state import CoreState


def request_admission(state: CoreState, job: LiveJob) -> None:
    """Put a job's first request up for admission, unless its gradients are incomplete."""
    if job.awaits_gradients:
        return
    state.arrays.ready(job, *job.first_request)
    job.waiting_since_ns, job.wake_ns = state.now_ns, NEVER_NS
    state.waiting[job.number] = state.unasked[job.number] = job


def resume_admission(state: CoreState, job: LiveJob) -> None:
    """Put up for admission a request that was held back while a rank computed."""
    if (
        job.ports
        and job.requests
        and job.granted is None
        and job.overdue is None
        and job.number not in state.waiting
    ):
        request_admission(state, job)


def withdraw_first(state: CoreState, job: LiveJob) -> None:
    """Take a job's first message off the network, or withdraw its waiting request."""
    if job.granted is None:
        state.waiting.pop(job.number, None)
        state.unasked.pop(job.number, None)
        state.arrays.withdraw(job)
        return
    take_off(state, job)


def take_off(state: CoreState, job: LiveJob) -> None:
    """Take a job's message off the network, and end its lease."""
    job.granted, job.lease_ns = None, NEVER_NS
    state.rates_current = False
    state.arrays.finish(job)


def drop_all(state: CoreState, job: LiveJob) -> None:
    """Drop all messages that a job asked for or was granted."""
    if job.ports and job.requests:
        withdraw_first(state, job)
    job.requests.clear()
    job.overdue = None


def begin_lease(state: CoreState, job: LiveJob) -> None:
    """Begin the lease of a message that was admitted.

    The message is expected to take as long as the network model predicts, and no less than the
    slowest one of its job so far: the model may be wrong about this network.
    """
    job.granted_ns = state.now_ns
    if state.lease_rules is None:
        return
    network, k = state.arrays.network, len(state.arrays.sending)
    cost = k * network.b_ns_per_byte + (k - 1) * network.eta_ns_per_byte
    predicted_ns = network.a_ns + int(job.first_request.message_bytes * cost)
    job.leased_ns = state.lease_rules.lease_ns(max(predicted_ns, job.slowest_ns))
    job.lease_ns = state.now_ns + job.leased_ns
    state.lease_check_ns = min(state.lease_check_ns, job.lease_ns)


def measure(state: CoreState, job: LiveJob) -> None:
    """Observe how long a message took, and learn how long the next ones may take.

    A rank that hung once must not make all further leases long: each at most doubles.
    """
    flight_ns = state.now_ns - job.granted_ns
    if job.granted is not None:
        size_bytes = job.first_request.message_bytes
        job.observations.message_ended(state.arrays.sent_by_model(job), size_bytes)
    if state.lease_rules is not None:
        most_ns = 2 * job.leased_ns // state.lease_rules.factor
        job.slowest_ns = max(job.slowest_ns, min(flight_ns, most_ns))


def grant(state: CoreState, job: LiveJob, request: int, instructions: list[AnyInstruction]) -> None:
    """Instruct the gate to grant a request."""
    state.counts.grants += 1
    instructions.append(GrantMessage(job_id=job.job_id, attempt=job.attempts, request=request))
