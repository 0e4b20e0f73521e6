"""The cluster as people see it: jobs, nodes and messages."""

from __future__ import annotations

import msgspec

from headway.domain.records import NOBODY
from headway.live.core.events import JobSpec, Slot
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob
from headway.live.core.reasons import InFlight, why_job
from headway.live.core.state import CoreState


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


class MessageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An all-reduce in flight, or why it waits for admission; then `left_bytes` is None."""

    job_id: str
    message_bytes: int
    since_ns: int
    left_bytes: int | None
    why: str


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
        why=why_job(state, job),
        reason=job.reason,
        submitted_ns=job.submitted_ns,
        started_ns=None if job.started_ns == NOBODY else job.started_ns,
        finished_ns=None if job.finished_ns == NOBODY else job.finished_ns,
        attempts=job.attempts,
        iterations=job.iterations,
        slots=job.slots,
        message=None if job.granted is None else message_view(state, job),
        waiting=waiting_view(job) if job.number in state.waiting else None,
        stuck=job.stuck,
        measured=tuple(sorted(job.measured)),
        forward_ns=job.forward_ns,
        backward_ns=job.backward_ns,
        gradient_bytes=job.gradient_bytes,
    )


def message_view(state: CoreState, job: LiveJob) -> MessageView:
    """Return the message of a job that is in flight."""
    return MessageView(
        job_id=job.job_id,
        message_bytes=job.first_request.message_bytes,
        since_ns=int(state.arrays.message_columns["start_ns"][job.row]),
        left_bytes=round(state.arrays.bytes_left(job)),
    )


def waiting_view(job: LiveJob) -> WaitingView:
    """Return the message of a job that waits for admission."""
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
                    computing=state.turns.job_on(Slot(node.name, index)),
                )
                for index in range(node.gpus)
            ),
            messages=tuple(
                message_view(state, job) for job in sending if node.name in job.node_names
            ),
            waiting=tuple(waiting_view(job) for job in waiting if node.name in job.node_names),
        )
        for node in arrays.nodes.values()
    ]


def messages(state: CoreState, now_ns: int) -> list[MessageStatus]:
    """Return the messages in flight in order of their grants, then those that wait, in order."""
    arrays = state.arrays
    in_flight = zip(arrays.sending, *arrays.progress(now_ns), strict=True)
    found = [
        MessageStatus(
            job_id=job.job_id,
            message_bytes=job.first_request.message_bytes,
            since_ns=since_ns,
            left_bytes=round(left_bytes),
            why="",
        )
        for job, since_ns, left_bytes in in_flight
    ]
    waiting = sorted(state.waiting.values(), key=lambda job: job.order)
    beside = InFlight(state, {name for job in waiting for name in job.node_names})
    return found + [
        MessageStatus(
            job_id=job.job_id,
            message_bytes=job.first_request.message_bytes,
            since_ns=job.waiting_since_ns,
            left_bytes=None,
            why=beside.why_not_admitted(job),
        )
        for job in waiting
    ]
