"""The cluster as people see it: jobs, nodes, and why a job waits."""

from __future__ import annotations

import msgspec

from headway.domain.limits import HORIZON_NS
from headway.domain.records import NOBODY
from headway.live.core.events import JobSpec, Slot
from headway.live.core.job_state import JobState
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.lease_rules import SECOND_NS
from headway.live.core.state import CoreState

_MEGABYTE = 2**20


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """An all-reduce in flight; `left_bytes` is the network model's estimate."""

    job_id: str
    message_bytes: int
    since_ns: int
    left_bytes: int


class WaitingView(msgspec.Struct, frozen=True, kw_only=True):
    """An all-reduce that waits for admission."""

    job_id: str
    message_bytes: int
    since_ns: int


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """A slot of a node, the jobs on it, and the job that has the turn to compute.

    Jobs that do not ask before they compute have no turns.
    """

    index: int
    free_bytes: int
    jobs: tuple[str, ...]
    computing: str | None


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node: its slots, the messages on its network, and those that wait for admission there."""

    node: str
    memory_bytes: int
    draining: bool
    slots: tuple[SlotView, ...]
    messages: tuple[MessageView, ...]
    waiting: tuple[WaitingView, ...]


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job: its specification, progress and estimates.

    `measured` names the estimates (the last three fields) that come from its own iterations. The
    others are the specification's, or defaults.
    """

    job_id: str
    spec: JobSpec
    state: JobState
    why: str
    reason: str
    submitted_ns: int
    started_ns: int | None
    finished_ns: int | None
    attempts: int
    iterations: int
    slots: tuple[Slot, ...]
    message: MessageView | None
    waiting: WaitingView | None
    stuck: str
    measured: tuple[str, ...]
    forward_ns: int
    backward_ns: int
    gradient_bytes: int


def jobs(state: CoreState) -> list[JobView]:
    """Return all known jobs in order of submission."""
    return [_job(state, job) for job in sorted(state.jobs.values(), key=lambda job: job.number)]


def _job(state: CoreState, job: LiveJob) -> JobView:
    return JobView(
        job_id=job.job_id,
        spec=job.spec,
        state=job.state,
        why=_why(state, job),
        reason=job.reason,
        submitted_ns=job.submitted_ns,
        started_ns=None if job.started_ns == NOBODY else job.started_ns,
        finished_ns=None if job.finished_ns == NOBODY else job.finished_ns,
        attempts=job.attempts,
        iterations=job.iterations,
        slots=job.slots,
        message=None if job.granted is None else _message(state, job),
        waiting=_waiting(job) if job.number in state.waiting else None,
        stuck=job.stuck,
        measured=tuple(sorted(job.measured)),
        forward_ns=job.forward_ns,
        backward_ns=job.backward_ns,
        gradient_bytes=job.gradient_bytes,
    )


def _message(state: CoreState, job: LiveJob) -> MessageView:
    return MessageView(
        job_id=job.job_id,
        message_bytes=job.first_request.message_bytes,
        since_ns=int(state.arrays.message_columns["start_ns"][job.row]),
        left_bytes=round(state.arrays.bytes_left(job)),
    )


def _waiting(job: LiveJob) -> WaitingView:
    return WaitingView(
        job_id=job.job_id,
        message_bytes=job.first_request.message_bytes,
        since_ns=job.waiting_since_ns,
    )


def nodes(state: CoreState) -> list[NodeView]:
    """Return all nodes in the order in which they were added."""
    arrays = state.arrays
    holders: dict[Slot, list[str]] = {}
    for job in arrays.placed.values():
        for slot in job.slots:
            holders.setdefault(slot, []).append(job.job_id)
    sending = [job for job in arrays.placed.values() if job.granted is not None]
    waiting = sorted(state.waiting.values(), key=lambda job: job.order)
    return [
        NodeView(
            node=node.name,
            memory_bytes=node.memory_bytes,
            draining=node.draining,
            slots=tuple(
                SlotView(
                    index=index,
                    free_bytes=int(arrays.cluster.gpus.free_bytes[node.first_gpu + index]),
                    jobs=tuple(holders.get(Slot(node.name, index), ())),
                    computing=_computing(state, Slot(node.name, index)),
                )
                for index in range(node.gpus)
            ),
            messages=tuple(_message(state, job) for job in sending if node.name in job.node_names),
            waiting=tuple(_waiting(job) for job in waiting if node.name in job.node_names),
        )
        for node in arrays.nodes.values()
    ]


def _computing(state: CoreState, slot: Slot) -> str | None:
    turn = state.turns.holders.get(slot)
    return None if turn is None else turn[0].job_id


def why(state: CoreState, job_id: str) -> str:
    """Return a sentence on what a job does or waits for."""
    job = state.jobs.get(job_id)
    return f"there is no job {job_id}." if job is None else _why(state, job)


def _why(state: CoreState, job: LiveJob) -> str:
    if job.state is JobState.QUEUED:
        return _why_queued(state, job)
    if job.finished or job.state is JobState.STOPPING:
        return f"{job.state}." if job.reason in ("", job.state) else f"{job.state}: {job.reason}."
    if job.number in state.waiting:
        return _why_not_admitted(state, job)
    where = ", ".join(job.node_names)
    if job.stuck:
        return f"stuck on {where}: {job.stuck}; {_when_stopped(state, job)}."
    if job.state is JobState.STARTING:
        return f"starting on {where}."
    if job.granted is not None:
        size_bytes, left_bytes = job.first_request.message_bytes, state.arrays.bytes_left(job)
        left = f"about {_mb(left_bytes)} left" if left_bytes else "longer than predicted"
        return f"running on {where}; sending {_mb(size_bytes)}, {left}."
    held_back = ""
    if job.ports and job.requests:
        held_back = "; its all-reduce waits until all ranks have computed"
    return f"running on {where}{held_back}{_why_no_turn(state, job)}."


def _when_stopped(state: CoreState, job: LiveJob) -> str:
    if job.stop_ns == NEVER_NS:
        return "no other job waits for it"
    left_s = max(0, job.stop_ns - state.now_ns) / SECOND_NS
    return f"no other job waits for it, and it is stopped in {left_s:,.0f} s"


def _why_no_turn(state: CoreState, job: LiveJob) -> str:
    """Name the jobs that compute on the slots for which a job's ranks wait."""
    waits = [
        f"rank {rank} waits while job {_computing(state, job.slots[rank])} computes on "
        f"{job.slots[rank].node}:{job.slots[rank].index}"
        for rank, requests in sorted(job.computations.items())
        if not next(iter(requests.values()))
    ]
    return "".join(f"; {one}" for one in waits)


def _why_queued(state: CoreState, job: LiveJob) -> str:
    """Say what a queued job needs and how much of it is free."""
    arrays, wanted = state.arrays, job.spec.gpus
    kind = "to itself" if job.exclusive else f"with {_mb(job.spec.memory_bytes)}"
    needs = f"needs {wanted:,} slot{'s' * (wanted > 1)} {kind}"
    if job.reason:
        needs = f"last attempt failed ({job.reason}); {needs}"
    total = sum(
        node.gpus for node in arrays.nodes.values() if node.memory_bytes >= job.spec.memory_bytes
    )
    if total < wanted:
        return f"{needs}; the cluster has {total:,} of that size."
    free = len(arrays.candidates(job))
    if free >= wanted:
        failure = f" ({state.rules.failure})" if state.rules.failure else ""
        return (
            f"{needs}; {_are(free)} free, but placement policy {state.rules.placement_name} "
            f"keeps it queued{failure}."
        )
    draining = [node.name for node in arrays.nodes.values() if node.draining]
    uncounted = f" (not counting draining nodes: {', '.join(draining)})" if draining else ""
    return f"{needs}; {_are(free)} free{uncounted}."


def _why_not_admitted(state: CoreState, job: LiveJob) -> str:
    """Name the messages in the way of a job's next message."""
    contention = []
    for name in job.node_names:
        others = [
            f"job {other.job_id}, about {_mb(state.arrays.bytes_left(other))} left"
            for other in state.arrays.placed.values()
            if other.granted is not None and name in other.node_names
        ]
        if others:
            count = f"{len(others)} message{'s' * (len(others) > 1)}"
            contention.append(f"{count} on {name} ({'; '.join(others)})")
    beside = ", ".join(contention) or "no message on its nodes"
    until = ""
    if job.wake_ns <= HORIZON_NS:
        until = f" before {job.wake_ns / 1e9:,.3f} s on the scheduler's clock"
    return (
        f"its all-reduce of {_mb(job.first_request.message_bytes)} waits: {beside}; "
        f"{state.rules.admission_name} does not admit it{until}."
    )


def _are(count: int) -> str:
    return f"{count:,} is" if count == 1 else f"{count:,} are"


def _mb(size_bytes: float) -> str:
    if size_bytes < 1000 * _MEGABYTE:
        return f"{size_bytes / _MEGABYTE:,.4g} MB"
    return f"{size_bytes / _MEGABYTE:,.0f} MB"
