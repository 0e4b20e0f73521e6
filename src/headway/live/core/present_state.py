"""The present state, for a simulation to continue from: unfinished jobs, nodes, settings."""

from __future__ import annotations

import msgspec

from headway.domain.records import NOBODY
from headway.gate.frames import MeasuredBucket
from headway.live.core.events import Slot
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob
from headway.live.core.state import CoreState
from headway.live.core.status import MessageView, WaitingView, message_view, waiting_view
from headway.network.contention import NetworkModel

ESTIMATES = ("forward_ns", "backward_ns", "gradient_bytes")
"""Fields of a job that are declared, measured, or unknown."""


class PresentNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node and the number of its slots."""

    node: str
    slots: int
    memory_bytes: int
    draining: bool


class MeasuredIteration(msgspec.Struct, frozen=True, kw_only=True):
    """A job's average iteration, as its rank 0 measured it."""

    forward_ns: int
    optimizer_ns: int
    buckets: tuple[MeasuredBucket, ...]


class ObservedPace(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's recent iterations and messages took; None is unknown.

    `message_factor` is how many times longer messages were in flight than by the network model.
    """

    iteration_ns: int | None = None
    message_factor: float | None = None


class PresentJob(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished job: its needs, its progress and its estimates.

    `iterations` are those of the current attempt. Times and bytes are the scheduler's estimates,
    those named in `unknown` mere defaults; `measured` is None until the job has measured its
    iterations. A job that `takes_turns` computes alone on its slots. `unsent_bytes` is what its
    iteration has yet to send, with the present message. An `ungated` job does not ask the gate, so
    nobody knows its iterations.
    """

    job_id: str
    state: JobState
    gpus: int
    priority: int
    memory_bytes: int
    submitted_ns: int
    started_ns: int | None
    iterations: int
    total_iterations: int | None
    slots: tuple[Slot, ...]
    message: MessageView | None
    waiting: WaitingView | None
    unsent_bytes: int
    forward_ns: int
    backward_ns: int
    gradient_bytes: int
    unknown: tuple[str, ...]
    measured: MeasuredIteration | None
    takes_turns: bool = False
    ungated: bool = False
    observed: ObservedPace = ObservedPace()


class PresentState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a simulation needs to continue from the present.

    Jobs need `start_ns` before their first iteration and `exit_ns` after their last one, on
    average; 0 while that is not known.
    """

    clock_ns: int
    policy: str
    network: NetworkModel
    nodes: list[PresentNode]
    jobs: list[PresentJob]
    start_ns: int = 0
    exit_ns: int = 0


def unknown(job: LiveJob) -> tuple[str, ...]:
    """Return which of a job's times and bytes are neither declared nor measured."""
    return tuple(
        name for name in ESTIMATES if getattr(job.spec, name) is None and name not in job.measured
    )


def present_job(state: CoreState, job: LiveJob, ungated: bool = False) -> PresentJob:
    """Return what a simulation needs to know of a job."""
    profile = job.profile
    return PresentJob(
        job_id=job.job_id,
        state=job.state,
        gpus=job.spec.gpus,
        priority=job.spec.priority,
        memory_bytes=job.spec.memory_bytes,
        submitted_ns=job.submitted_ns,
        started_ns=None if job.started_ns == NOBODY else job.started_ns,
        iterations=job.iterations,
        total_iterations=job.spec.iterations,
        slots=job.slots,
        message=None if job.granted is None else message_view(state, job),
        waiting=waiting_view(job) if job.number in state.waiting else None,
        unsent_bytes=job.first_request.unsent_bytes if job.requests else 0,
        forward_ns=job.forward_ns,
        backward_ns=job.backward_ns,
        gradient_bytes=job.gradient_bytes,
        unknown=unknown(job),
        measured=None
        if profile is None
        else MeasuredIteration(
            forward_ns=profile.forward_ns,
            optimizer_ns=profile.optimizer_ns,
            buckets=profile.buckets,
        ),
        takes_turns=job.takes_turns,
        ungated=ungated,
        observed=ObservedPace(
            iteration_ns=job.observations.iteration_ns,
            message_factor=job.observations.message_factor,
        ),
    )


def unfinished_jobs(state: CoreState) -> list[LiveJob]:
    """Return the jobs that are not finished, in order of submission."""
    return [job for job in state.jobs.values() if not job.finished]


def present_nodes(state: CoreState) -> list[PresentNode]:
    """Return all nodes in the order in which they were added."""
    return [
        PresentNode(
            node=node.name,
            slots=node.gpus,
            memory_bytes=node.memory_bytes,
            draining=node.draining,
        )
        for node in state.arrays.nodes.values()
    ]
