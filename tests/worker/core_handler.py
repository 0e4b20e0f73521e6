"""A gate's handler that lets a real core decide."""

from __future__ import annotations

import time
from typing import Any

from gate.threaded_gate import Recorder
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


class CoreHandler(Recorder):
    """Schedules jobs that all share the same slots, one slot on each node.

    The test runs the jobs' processes. `problems` holds the violated invariants of the core.
    """

    def __init__(self, policy: str, nodes: int, jobs: str) -> None:
        super().__init__()
        self.core = Core(policy, NetworkModel())
        self.problems: list[AssertionError] = []
        for node in range(nodes):
            self.handle(NodeUp, node=f"n{node}", gpus=1, memory_bytes=100)
        for job in jobs:
            spec = JobSpec(command=("train",), gpus=nodes, memory_bytes=10)
            self.handle(JobSubmitted, job_id=job, spec=spec)

    def handle(self, kind: Any, **fields: Any) -> None:
        for instruction in self.core.handle(kind(at_ns=time.monotonic_ns(), **fields)):
            if isinstance(instruction, GrantMessage):
                self.gate.grant(instruction.job_id, instruction.attempt, instruction.request)
            elif isinstance(instruction, GrantTurn):
                self.gate.grant(
                    instruction.job_id, instruction.attempt, instruction.request, instruction.rank
                )
        try:
            self.core.validate()
        except AssertionError as problem:
            self.problems.append(problem)

    def message_ready(
        self, job_id: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        self.calls.append(("ready", job_id, attempt, request, message_bytes, unsent_bytes))
        sizes = {"message_bytes": message_bytes, "unsent_bytes": unsent_bytes}
        self.handle(MessageReady, job_id=job_id, attempt=attempt, request=request, **sizes)

    def message_done(self, job_id: str, attempt: int, request: int) -> None:
        super().message_done(job_id, attempt, request)
        self.handle(MessageDone, job_id=job_id, attempt=attempt, request=request)

    def compute_ready(self, job_id: str, attempt: int, rank: int, request: int) -> None:
        self.calls.append(("compute", job_id, attempt, rank, request))
        self.handle(ComputeReady, job_id=job_id, attempt=attempt, rank=rank, request=request)

    def compute_done(self, job_id: str, attempt: int, rank: int, request: int) -> None:
        super().compute_done(job_id, attempt, rank, request)
        self.handle(ComputeDone, job_id=job_id, attempt=attempt, rank=rank, request=request)

    def worker_lost(self, job_id: str, attempt: int, rank: int, hung: bool) -> None:
        super().worker_lost(job_id, attempt, rank, hung)
        self.handle(WorkerLost, job_id=job_id, attempt=attempt, rank=rank, hung=hung)
