"""A gate's listener that asks a real core, and tells workers what it answers."""

from __future__ import annotations

import time
from typing import Any

from gate.gates import Recorder
from headway.gate.server import Gate
from headway.live.core.core import Core
from headway.live.core.events import (
    ComputeDone,
    ComputeReady,
    GrantMessage,
    GrantTurn,
    JobSpec,
    JobSubmitted,
    MessageDone,
    MessageReady,
    NodeUp,
    WorkerLost,
)
from headway.network.contention import NetworkModel


class Scheduler(Recorder):
    """Decides about jobs that all share the same slots, one on each of so many nodes.

    The jobs' processes are the test's own affair. `problems` holds what the core's check has found.
    """

    def __init__(self, gate: Gate, policy: str, nodes: int, jobs: str) -> None:
        super().__init__()
        self.gate = gate
        self.core = Core(policy, NetworkModel())
        self.problems: list[AssertionError] = []
        for node in range(nodes):
            self.tell(NodeUp, node=f"n{node}", gpus=1, memory_bytes=100)
        for job in jobs:
            spec = JobSpec(command=("train",), gpus=nodes, memory_bytes=10)
            self.tell(JobSubmitted, job_id=job, spec=spec)

    def tell(self, kind: Any, **fields: Any) -> None:
        assert self.gate is not None
        for told in self.core.handle(kind(at_ns=time.monotonic_ns(), **fields)):
            if isinstance(told, GrantMessage):
                self.gate.grant(told.job_id, told.attempt, told.request)
            elif isinstance(told, GrantTurn):
                self.gate.grant(told.job_id, told.attempt, told.request, told.rank)
        try:
            self.core.validate()
        except AssertionError as problem:
            self.problems.append(problem)

    def message_ready(
        self, job: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        self.heard.append(("ready", job, attempt, request, message_bytes, unsent_bytes))
        sizes = {"message_bytes": message_bytes, "unsent_bytes": unsent_bytes}
        self.tell(MessageReady, job_id=job, attempt=attempt, request=request, **sizes)

    def message_done(self, job: str, attempt: int, request: int) -> None:
        super().message_done(job, attempt, request)
        self.tell(MessageDone, job_id=job, attempt=attempt, request=request)

    def compute_ready(self, job: str, attempt: int, rank: int, request: int) -> None:
        self.heard.append(("compute", job, attempt, rank, request))
        self.tell(ComputeReady, job_id=job, attempt=attempt, rank=rank, request=request)

    def compute_done(self, job: str, attempt: int, rank: int, request: int) -> None:
        super().compute_done(job, attempt, rank, request)
        self.tell(ComputeDone, job_id=job, attempt=attempt, rank=rank, request=request)

    def worker_lost(self, job: str, attempt: int, rank: int) -> None:
        super().worker_lost(job, attempt, rank)
        self.tell(WorkerLost, job_id=job, attempt=attempt, rank=rank)
