"""Turns what workers say at the gate into events."""

from __future__ import annotations

from headway.gate.frames import Profile
from headway.live.core.events import (
    ComputeDone,
    ComputeReady,
    IterationDone,
    IterationProfiled,
    MessageDone,
    MessageReady,
    WorkerLost,
)
from headway.live.daemon.attempts import Attempts
from headway.live.daemon.clock import Clock
from headway.live.daemon.event_pipeline import EventPipeline
from headway.live.daemon.grant_sender import GrantSender
from headway.live.daemon.job_registry import JobRegistry
from headway.live.executors import Attempt


class GateEvents:
    """The gate's handler."""

    def __init__(
        self,
        pipeline: EventPipeline,
        clock: Clock,
        registry: JobRegistry,
        attempts: Attempts,
        grants: GrantSender,
    ) -> None:
        self._pipeline, self._clock = pipeline, clock
        self._registry, self._attempts, self._grants = registry, attempts, grants

    def worker_attached(self, job_id: str, attempt: int, rank: int) -> None:
        """Mark the attempt as started; disconnect a worker whose attempt is stopping or over."""
        one = Attempt(job_id, attempt)
        self._attempts.started(one)
        self._attempts.attached(one)
        if not self._attempts.wanted(one):
            state = "being stopped" if one in self._attempts else "over"
            self._grants.release(one, f"this attempt is {state}")
        elif rank >= self._registry[job_id].spec.gpus:
            self._grants.refuse_rank(one, rank, f"the job has no slot for rank {rank}")

    def message_ready(
        self, job_id: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        """Handle a worker's request to start a message."""
        self._grants.requested(job_id, attempt, request)
        self._pipeline.handle(
            MessageReady(
                at_ns=self._clock.now_ns(),
                job_id=job_id,
                attempt=attempt,
                request=request,
                message_bytes=message_bytes,
                unsent_bytes=unsent_bytes,
            )
        )

    def message_done(self, job_id: str, attempt: int, request: int) -> None:
        """Handle the end of a message."""
        self._grants.withdrawn(job_id, attempt, request)
        now_ns = self._clock.now_ns()
        self._pipeline.handle(
            MessageDone(at_ns=now_ns, job_id=job_id, attempt=attempt, request=request)
        )

    def compute_ready(self, job_id: str, attempt: int, rank: int, request: int) -> None:
        """Handle a rank's request to compute."""
        now_ns = self._clock.now_ns()
        self._pipeline.handle(
            ComputeReady(at_ns=now_ns, job_id=job_id, attempt=attempt, rank=rank, request=request)
        )

    def compute_done(self, job_id: str, attempt: int, rank: int, request: int) -> None:
        """Handle the end of a rank's computation."""
        now_ns = self._clock.now_ns()
        self._pipeline.handle(
            ComputeDone(at_ns=now_ns, job_id=job_id, attempt=attempt, rank=rank, request=request)
        )

    def iteration_done(
        self,
        job_id: str,
        attempt: int,
        iterations: int,
        forward_ns: int,
        backward_ns: int,
        gradient_bytes: int,
    ) -> None:
        """Handle a job's progress report; 0 means unknown."""
        self._pipeline.handle(
            IterationDone(
                at_ns=self._clock.now_ns(),
                job_id=job_id,
                attempt=attempt,
                iterations=iterations,
                forward_ns=forward_ns or None,
                backward_ns=backward_ns or None,
                gradient_bytes=gradient_bytes or None,
            )
        )

    def profiled(self, job_id: str, attempt: int, profile: Profile) -> None:
        """Handle a job's report of its average iteration."""
        self._pipeline.handle(
            IterationProfiled(
                at_ns=self._clock.now_ns(),
                job_id=job_id,
                attempt=attempt,
                forward_ns=profile.forward_ns,
                optimizer_ns=profile.optimizer_ns,
                buckets=profile.buckets,
            )
        )

    def worker_lost(self, job_id: str, attempt: int, rank: int, hung: bool = False) -> None:
        """Free everything that a disconnected rank had requested or been granted."""
        if rank == 0:
            self._grants.withdrawn(job_id, attempt)
        now_ns = self._clock.now_ns()
        self._pipeline.handle(
            WorkerLost(at_ns=now_ns, job_id=job_id, attempt=attempt, rank=rank, hung=hung)
        )
