"""The scheduler: whatever the gate, the executor and users say becomes an event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from headway.domain.errors import HeadwayError
from headway.live import operator_log
from headway.live.core.core import Core
from headway.live.core.events import (
    ComputeDone,
    ComputeReady,
    IterationDone,
    JobCancelled,
    JobSpec,
    JobSubmitted,
    MessageDone,
    MessageReady,
    NodeDrained,
    NodeLost,
    NodeUp,
    PolicyChanged,
    WorkerLost,
)
from headway.live.core.job_state import ACTIVE
from headway.live.core.rules import Rules
from headway.live.daemon.clock import Clock
from headway.live.daemon.event_log import EventLog
from headway.live.daemon.event_loop import Steps
from headway.live.daemon.job_records import JobRecord
from headway.live.daemon.store import Store
from headway.live.executors import Attempt, Executor, ExecutorNode

BEAT_S = 10.0
"""How often iteration counts and the clock are saved."""
STOP_PATIENCE_S = 30.0

POLICY, DRAINED = "policy", "drained"
"""Names of values in the store."""


class RefusedError(HeadwayError):
    """A request that cannot be done now; `status` is HTTP's word for why."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class Daemon(Steps):
    """Listens to the gate and the executor, and to users by way of the API."""

    def __init__(
        self,
        core: Core,
        policy: str,
        store: Store,
        events: EventLog,
        clock: Clock,
        executor: Executor,
        environment: Callable[[Attempt], Mapping[str, str]],
    ) -> None:
        super().__init__(core, store, events, clock, executor, environment)
        self.policy = policy
        self.nodes: dict[str, ExecutorNode] = {}
        self.drained: set[str] = set(msgspec.json.decode(store.meta.get(DRAINED, "[]")))

    # What the gate says.

    def worker_attached(self, job: str, attempt: int, rank: int) -> None:
        """Take a worker's word that its attempt runs; let go of one that is to end, or over."""
        one = Attempt(job, attempt)
        self.attempts.started(one)
        if not self.attempts.wanted(one):
            over = "being stopped" if one in self.attempts else "over"
            self.let_go(one, f"this attempt is {over}")
        elif rank >= self.book.records[job].spec.gpus and self.gate is not None:
            self.gate.refuse(job, attempt, f"the job has no slot for rank {rank}", rank)

    def message_ready(
        self, job: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        """Decide when a message may start."""
        asked_ns = time.perf_counter_ns()
        self._asked.setdefault((job, attempt), {})[request] = asked_ns
        self._asking = (job, attempt, request)
        self.handle(
            MessageReady(
                at_ns=self.clock.now_ns(),
                job_id=job,
                attempt=attempt,
                request=request,
                message_bytes=message_bytes,
                unsent_bytes=unsent_bytes,
            )
        )
        self._asking = None

    def message_done(self, job: str, attempt: int, request: int) -> None:
        """Take note that a message has ended."""
        if requests := self._asked.get((job, attempt)):
            requests.pop(request, None)
        now_ns = self.clock.now_ns()
        self.handle(MessageDone(at_ns=now_ns, job_id=job, attempt=attempt, request=request))

    def compute_ready(self, job: str, attempt: int, rank: int, request: int) -> None:
        """Decide when a rank may compute."""
        now_ns = self.clock.now_ns()
        self.handle(
            ComputeReady(at_ns=now_ns, job_id=job, attempt=attempt, rank=rank, request=request)
        )

    def compute_done(self, job: str, attempt: int, rank: int, request: int) -> None:
        """Take note that a rank's computation has ended."""
        now_ns = self.clock.now_ns()
        self.handle(
            ComputeDone(at_ns=now_ns, job_id=job, attempt=attempt, rank=rank, request=request)
        )

    def iteration_done(
        self,
        job: str,
        attempt: int,
        iterations: int,
        forward_ns: int,
        backward_ns: int,
        gradient_bytes: int,
    ) -> None:
        """Take note of a job's progress; 0 is what is not known."""
        self.handle(
            IterationDone(
                at_ns=self.clock.now_ns(),
                job_id=job,
                attempt=attempt,
                iterations=iterations,
                forward_ns=forward_ns or None,
                backward_ns=backward_ns or None,
                gradient_bytes=gradient_bytes or None,
            )
        )

    def worker_lost(self, job: str, attempt: int, rank: int) -> None:
        """Free what a rank asked for or was granted."""
        if rank == 0:
            self._asked.pop((job, attempt), None)
        self.handle(WorkerLost(at_ns=self.clock.now_ns(), job_id=job, attempt=attempt, rank=rank))

    # What the executor says.

    def node_up(self, node: ExecutorNode) -> None:
        """Use a node, unless it is to be drained."""
        operator_log.info(
            "node came", node=node.name, gpus=node.gpus, memory_bytes=node.memory_bytes
        )
        self.nodes[node.name] = node
        at_ns = self.clock.now_ns()
        draining = node.name in self.drained
        self.handle(
            NodeUp(at_ns=at_ns, node=node.name, gpus=node.gpus, memory_bytes=node.memory_bytes)
        )
        if draining:
            self.handle(NodeDrained(at_ns=at_ns, node=node.name, draining=True))
        self.hub.tell("node", {"node": node.name, "up": True, "draining": draining})

    def node_lost(self, name: str) -> None:
        """Do without a node."""
        operator_log.warning("node lost", node=name)
        self.nodes.pop(name, None)
        self.handle(NodeLost(at_ns=self.clock.now_ns(), node=name))
        self.hub.tell("node", {"node": name, "up": False, "draining": name in self.drained})

    # What users want.

    async def submit(self, spec: JobSpec) -> JobRecord:
        """Put a job into the queue; on return it is on the disk."""
        if self.attempts.closing:
            raise RefusedError(503, "the scheduler is ending.")
        record = await self.book.enter(spec)
        operator_log.info("job submitted", job=record.job_id, gpus=spec.gpus, name=spec.name)
        self.handle(JobSubmitted(at_ns=self.clock.now_ns(), job_id=record.job_id, spec=spec))
        return self.book.records[record.job_id]

    def cancel(self, job: str) -> JobRecord:
        """End a job, wherever it is."""
        record = self.record(job)
        if record.finished:
            raise RefusedError(409, f"job {job} is {record.state} already.")
        operator_log.info("job cancelled", job=job)
        self.book.update(job, cancelled=True)
        self.handle(JobCancelled(at_ns=self.clock.now_ns(), job_id=job))
        return self.book.records[job]

    def drain(self, node: str, draining: bool) -> None:
        """Give a node no new jobs, or give it them again."""
        if node not in self.nodes:
            raise RefusedError(404, f"there is no node {node}.")
        operator_log.info("node drained" if draining else "node undrained", node=node)
        (self.drained.add if draining else self.drained.discard)(node)
        self.store.set(DRAINED, msgspec.json.encode(sorted(self.drained)).decode())
        self.handle(NodeDrained(at_ns=self.clock.now_ns(), node=node, draining=draining))
        self.hub.tell("node", {"node": node, "up": True, "draining": draining})

    async def choose_policy(self, policy: str) -> None:
        """Let another policy decide from now on."""
        # Compiled here, in a thread, so that the loop finds it done.
        await asyncio.to_thread(Rules, policy)
        operator_log.info("policy chosen", policy=policy)
        self.handle(PolicyChanged(at_ns=self.clock.now_ns(), policy=policy))
        self.policy = policy
        self.store.set(POLICY, policy)
        self.hub.tell("policy", {"policy": policy})

    def record(self, job: str) -> JobRecord:
        """Return what is known of a job."""
        found = self.book.records.get(job)
        if found is None:
            raise RefusedError(404, f"there is no job {job}.")
        return found

    # Beginning and end.

    async def beat(self) -> None:
        """Save progress and the clock every few seconds, for as long as this is awaited."""
        while True:
            await asyncio.sleep(BEAT_S)
            self.save_progress()

    def save_progress(self) -> None:
        """Save how many iterations jobs have done, and the clock."""
        for job in [one.job_id for one in self.book.records.values() if one.state in ACTIVE]:
            self._note_job(job)
        self.store.set(POLICY, self.policy)

    async def end_jobs(self) -> None:
        """Cancel all jobs that run and wait until they have ended; the queue stays as it is."""
        self.attempts.closing = True
        for record in list(self.book.records.values()):
            if record.state in ACTIVE:
                self.cancel(record.job_id)
        deadline = time.monotonic() + STOP_PATIENCE_S
        while self.attempts and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """End everything that is under way here, and leave jobs running."""
        self.hub.close()
        if self._wake is not None:
            self._wake.cancel()
        await self.attempts.settle()
        self.save_progress()
