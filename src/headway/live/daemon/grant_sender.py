"""Sends grants to workers through the gate, and measures how long each request took."""

from __future__ import annotations

import time
from typing import Protocol

from headway.live.core.events import AnyEvent, GrantMessage, GrantTurn, MessageReady
from headway.live.daemon.metrics import Metrics
from headway.live.executors import Attempt


class GrantGate(Protocol):
    """The part of the gate that the scheduler calls."""

    @property
    def connected(self) -> int:
        """The number of connected workers."""

    def grant(self, job_id: str, attempt: int, request: int, rank: int = 0) -> bool:
        """Allow a worker to start a message or a computation."""

    def refuse(self, job_id: str, attempt: int, text: str, rank: int | None = None) -> None:
        """Disconnect a rank, or all ranks, of an attempt, which then continues ungated."""


class GrantSender:
    """The scheduler's way to the workers; `gate` is set once both exist."""

    def __init__(self, metrics: Metrics) -> None:
        self.gate: GrantGate | None = None
        self._metrics = metrics
        # When each pending message request arrived, by attempt and request.
        self._requested_ns: dict[tuple[str, int], dict[int, int]] = {}

    @property
    def workers(self) -> int:
        """The number of connected workers."""
        return 0 if self.gate is None else self.gate.connected

    def requested(self, job_id: str, attempt: int, request: int) -> None:
        """Start measuring a message request."""
        self._requested_ns.setdefault((job_id, attempt), {})[request] = time.perf_counter_ns()

    def withdrawn(self, job_id: str, attempt: int, request: int | None = None) -> None:
        """Stop measuring a request that ended ungranted, or all requests of an attempt."""
        if request is None:
            self._requested_ns.pop((job_id, attempt), None)
        elif requests := self._requested_ns.get((job_id, attempt)):
            requests.pop(request, None)

    def grant(self, grant: GrantMessage, cause: AnyEvent) -> None:
        """Grant a message; `cause` is the event that led to it."""
        if self.gate is not None:
            self.gate.grant(grant.job_id, grant.attempt, grant.request)
        pending = self._requested_ns.get((grant.job_id, grant.attempt))
        requested_ns = None if pending is None else pending.pop(grant.request, None)
        if requested_ns is None:
            return
        seconds = (time.perf_counter_ns() - requested_ns) / 1e9
        if _is_request_for(cause, grant):
            self._metrics.gate_latency.observe(seconds)
        else:
            self._metrics.admission_wait.observe(seconds)

    def grant_turn(self, grant: GrantTurn) -> None:
        """Grant a rank's turn to compute."""
        if self.gate is not None:
            self.gate.grant(grant.job_id, grant.attempt, grant.request, grant.rank)

    def refuse_rank(self, attempt: Attempt, rank: int, why: str) -> None:
        """Disconnect one rank of an attempt."""
        if self.gate is not None:
            self.gate.refuse(attempt.job_id, attempt.number, why, rank)

    def release(self, attempt: Attempt, why: str) -> None:
        """Disconnect an attempt's workers: they continue ungated, waiting for no grant."""
        self.withdrawn(attempt.job_id, attempt.number)
        if self.gate is not None:
            self.gate.refuse(attempt.job_id, attempt.number, why)


def _is_request_for(cause: AnyEvent, grant: GrantMessage) -> bool:
    return (
        type(cause) is MessageReady
        and cause.request == grant.request
        and cause.job_id == grant.job_id
        and cause.attempt == grant.attempt
    )
