"""What people see of a live cluster: jobs, nodes, and why something waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headway.domain.records import NOBODY
from headway.live.core.events import JobSpec, Slot
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob

if TYPE_CHECKING:
    from headway.live.core.core import Core

_MEGABYTE = 2**20


class Counts(msgspec.Struct):
    """What has happened since the core began; ignored events are among the events."""

    events: int = 0
    ignored: int = 0
    launches: int = 0
    grants: int = 0
    turns: int = 0


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """An all-reduce on the network; what it has left is the contention model's estimate."""

    job_id: str
    message_bytes: int
    since_ns: int
    left_bytes: int


class WaitingView(msgspec.Struct, frozen=True, kw_only=True):
    """An all-reduce that has not been admitted."""

    job_id: str
    message_bytes: int
    since_ns: int


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or slot, of a node, the jobs that hold it, and whose turn it is to compute.

    Jobs that do not ask before they compute have no turns.
    """

    index: int
    free_bytes: int
    jobs: tuple[str, ...]
    computing: str | None


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node: its slots, the messages on its network, and those that wait to be there."""

    node: str
    memory_bytes: int
    draining: bool
    slots: tuple[SlotView, ...]
    messages: tuple[MessageView, ...]
    waiting: tuple[WaitingView, ...]


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job: what was asked for, how it stands, and what it is taken to need.

    `measured` names which of the last three come from its own iterations; what is neither there nor
    in the spec is supposed.
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
    measured: tuple[str, ...]
    forward_ns: int
    backward_ns: int
    gradient_bytes: int


def jobs(core: Core) -> list[JobView]:
    """Return all jobs that are known, in the order of submission."""
    return [view_of(core, job) for job in sorted(core.known.values(), key=lambda job: job.number)]


def view_of(core: Core, job: LiveJob) -> JobView:
    """Return what people see of a job."""
    return JobView(
        job_id=job.job_id,
        spec=job.spec,
        state=job.state,
        why=_why(core, job),
        reason=job.reason,
        submitted_ns=job.submitted_ns,
        started_ns=None if job.started_ns == NOBODY else job.started_ns,
        finished_ns=None if job.finished_ns == NOBODY else job.finished_ns,
        attempts=job.attempts,
        iterations=job.iterations,
        slots=job.slots,
        message=None if job.granted is None else _message(core, job),
        waiting=_waiting(job) if job.number in core.waiting else None,
        measured=tuple(sorted(job.measured)),
        forward_ns=job.forward_ns,
        backward_ns=job.backward_ns,
        gradient_bytes=job.gradient_bytes,
    )


def _message(core: Core, job: LiveJob) -> MessageView:
    return MessageView(
        job_id=job.job_id,
        message_bytes=next(iter(job.requests.values()))[0],
        since_ns=int(core.view.columns["message_start_ns"][job.row]),
        left_bytes=round(core.view.bytes_left(job)),
    )


def _waiting(job: LiveJob) -> WaitingView:
    return WaitingView(
        job_id=job.job_id,
        message_bytes=next(iter(job.requests.values()))[0],
        since_ns=job.waiting_since_ns,
    )


def nodes(core: Core) -> list[NodeView]:
    """Return all nodes, in the order in which they came."""
    view = core.view
    holders: dict[Slot, list[str]] = {}
    for job in view.placed.values():
        for slot in job.slots:
            holders.setdefault(slot, []).append(job.job_id)
    sending = [job for job in view.placed.values() if job.granted is not None]
    waiting = sorted(core.waiting.values(), key=lambda job: job.order)
    return [
        NodeView(
            node=node.name,
            memory_bytes=node.memory_bytes,
            draining=node.draining,
            slots=tuple(
                SlotView(
                    index=index,
                    free_bytes=int(view.cluster.gpus.free_bytes[node.first_gpu + index]),
                    jobs=tuple(holders.get(Slot(node.name, index), ())),
                    computing=_computing(core, Slot(node.name, index)),
                )
                for index in range(node.gpus)
            ),
            messages=tuple(_message(core, job) for job in sending if node.name in job.node_names),
            waiting=tuple(_waiting(job) for job in waiting if node.name in job.node_names),
        )
        for node in view.nodes.values()
    ]


def _computing(core: Core, slot: Slot) -> str | None:
    turn = core.turns.holders.get(slot)
    return None if turn is None else turn[0].job_id


def why(core: Core, job_id: str) -> str:
    """Return, in a sentence, how a job stands and what it waits for."""
    job = core.known.get(job_id)
    return f"there is no job {job_id}." if job is None else _why(core, job)


def _why(core: Core, job: LiveJob) -> str:
    if job.state == JobState.QUEUED:
        return _why_queued(core, job)
    if job.state == JobState.STOPPING:
        return f"being stopped: {job.reason}."
    if job.over:
        return f"{job.state}: {job.reason}." if job.reason else f"{job.state}."
    where = ", ".join(job.node_names)
    if job.number in core.waiting:
        return _why_waiting(core, job)
    if job.state == JobState.STARTING:
        return f"being started on {where}."
    if job.granted is not None:
        size_bytes, left_bytes = _message(core, job).message_bytes, core.view.bytes_left(job)
        return f"running on {where}; sends {_mb(size_bytes)}, about {_mb(left_bytes)} left."
    sends = "; sends when all ranks have computed" if job.ports and job.requests else ""
    return f"running on {where}{sends}{_why_no_turn(core, job)}."


def _why_no_turn(core: Core, job: LiveJob) -> str:
    """Name those whose computations a job's ranks wait for."""
    waits = [
        f"rank {rank} waits for job {_computing(core, job.slots[rank])} on "
        f"{job.slots[rank].node}:{job.slots[rank].index}"
        for rank, requests in sorted(job.computations.items())
        if not next(iter(requests.values()))
    ]
    return "".join(f"; {one}" for one in waits)


def _why_queued(core: Core, job: LiveJob) -> str:
    """Say what a queued job lacks, and who has it."""
    view, wanted = core.view, job.spec.gpus
    kind = "to itself" if job.alone else f"with {_mb(job.spec.memory_bytes)}"
    needs = f"needs {wanted:,} slot{'s' * (wanted > 1)} {kind}"
    before = f"failed before ({job.reason}); " if job.reason else ""
    large = sum(
        node.gpus for node in view.nodes.values() if node.memory_bytes >= job.spec.memory_bytes
    )
    if large < wanted:
        return f"{before}{needs}; the cluster has {large:,} of that size in all."
    free = len(view.candidates(job))
    if free >= wanted:
        failed = f" ({core.rules.failure})" if core.rules.failure else ""
        return (
            f"{before}{needs}; {_are(free)} free, and the placement "
            f"{core.rules.placement_name} leaves it queued{failed}."
        )
    closed = [node.name for node in view.nodes.values() if node.draining]
    drains = f" (not counting {', '.join(closed)}: no new jobs there)" if closed else ""
    return f"{before}{needs}; {_are(free)} free{drains}."


def _why_waiting(core: Core, job: LiveJob) -> str:
    """Say who is in the way of a message."""
    size_bytes = next(iter(job.requests.values()))[0]
    parts = []
    for name in job.node_names:
        others = [
            f"job {other.job_id}, about {_mb(core.view.bytes_left(other))} left"
            for other in core.view.placed.values()
            if other.granted is not None and name in other.node_names
        ]
        if others:
            count = f"{len(others)} message{'s' * (len(others) > 1)}"
            parts.append(f"{count} on {name} ({'; '.join(others)})")
    there = ", ".join(parts) or "no message on its nodes"
    ahead = f"; not before {job.wake_ns:,} ns" if job.wake_ns <= 2**62 else ""
    return (
        f"its all-reduce of {_mb(size_bytes)} waits: {there}; "
        f"{core.rules.admission_name} has not admitted it{ahead}."
    )


def _are(count: int) -> str:
    return f"{count:,} is" if count == 1 else f"{count:,} are"


def _mb(size_bytes: float) -> str:
    return (
        f"{size_bytes / _MEGABYTE:,.4g} MB"
        if size_bytes < 1000 * _MEGABYTE
        else (f"{size_bytes / _MEGABYTE:,.0f} MB")
    )
