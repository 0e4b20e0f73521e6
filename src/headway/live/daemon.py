"""The scheduler: real events go to the core, and what the core wants is done.

One event loop owns everything here. An event goes through the same steps whatever it is:

1. the core decides;
2. grants go out, before anything else: a job waits for them;
3. event and instructions go to the log;
4. jobs that have changed are saved;
5. the other instructions are carried out: a launch only when it is on the disk, so that a scheduler
   that is killed knows at its next start what may be running.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from headway.domain.errors import HeadwayError
from headway.live import log, notices
from headway.live.clock import Clock
from headway.live.core import Core
from headway.live.eventlog import EventLog
from headway.live.events import (
    AnyEvent,
    AnyInstruction,
    Grant,
    IterationDone,
    JobCancelled,
    JobExited,
    JobSpec,
    JobStarted,
    JobSubmitted,
    Launch,
    MessageDone,
    MessageReady,
    NodeDrained,
    NodeLost,
    NodeUp,
    PolicyChanged,
    Stop,
    Tick,
    WakeAt,
    WorkerLost,
)
from headway.live.executors import Attempt, Ended, Executor, Node
from headway.live.hub import Hub
from headway.live.ledger import Ledger
from headway.live.metrics import Metrics
from headway.live.records import ACTIVE, JobRecord
from headway.live.store import Store

BEAT_S = 10.0
"""How often iteration counts and the clock are saved."""
STOP_PATIENCE_S = 30.0
NEVER_STARTED = 143

POLICY, DRAINED = "policy", "drained"
"""Names of values in the store."""


class Refused(HeadwayError):
    """A request that cannot be done now; `status` is HTTP's word for why."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class Grants(Protocol):
    """What the scheduler needs of a gate."""

    @property
    def connected(self) -> int:
        """The number of workers that are connected."""

    def grant(self, job: str, attempt: int, request: int) -> bool:
        """Let a worker start a message."""

    def refuse(self, job: str, attempt: int, text: str) -> None:
        """Let a worker go, which then goes on unasked."""


class Daemon:
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
        self.core, self.policy, self.store, self.events = core, policy, store, events
        self.executor = executor
        self.hub, self.metrics, self.clock = Hub(), Metrics(), clock
        self.ledger = Ledger(store, clock, self.hub, self.metrics)
        self.nodes: dict[str, Node] = {}
        self.drained: set[str] = set(msgspec.json.decode(store.meta.get(DRAINED, "[]")))
        self.closing = False
        self.gate: Grants | None = None
        self._environment = environment
        self._live: set[Attempt] = set()  # launched or taken over, and not ended
        self._starting: set[Attempt] = set()  # of those: not known to have started
        self._unwanted: set[Attempt] = set()  # to be stopped as soon as they have started
        self._held: list[Ended] | None = None  # ends that wait until their jobs are restored
        self._asked: dict[tuple[str, int], dict[int, int]] = {}  # when, by attempt and request
        self._now_asking: tuple[str, int, int] | None = None
        self._busy = False
        self._later: deque[AnyEvent] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake_ns = 0
        self._wake: asyncio.TimerHandle | None = None

    # What the gate says.

    def worker_attached(self, job: str, attempt: int) -> None:
        """Take a worker's word that its attempt runs; let go of one that is over."""
        if Attempt(job, attempt) not in self._live:
            if self.gate is not None:
                self.gate.refuse(job, attempt, "this attempt is over")
            return
        self._started(Attempt(job, attempt))

    def message_ready(
        self, job: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        """Decide when a message may start."""
        asked_ns = time.perf_counter_ns()
        self._asked.setdefault((job, attempt), {})[request] = asked_ns
        self._now_asking = (job, attempt, request)
        self.handle(
            MessageReady(
                at_ns=self.clock.now_ns(),
                job=job,
                attempt=attempt,
                request=request,
                message_bytes=message_bytes,
                unsent_bytes=unsent_bytes,
            )
        )
        self._now_asking = None

    def message_done(self, job: str, attempt: int, request: int) -> None:
        """Take note that a message has ended."""
        if requests := self._asked.get((job, attempt)):
            requests.pop(request, None)
        now_ns = self.clock.now_ns()
        self.handle(MessageDone(at_ns=now_ns, job=job, attempt=attempt, request=request))

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
                job=job,
                attempt=attempt,
                iterations=iterations,
                forward_ns=forward_ns or None,
                backward_ns=backward_ns or None,
                gradient_bytes=gradient_bytes or None,
            )
        )

    def worker_lost(self, job: str, attempt: int) -> None:
        """Free what a job asked for or was granted."""
        self._asked.pop((job, attempt), None)
        self.handle(WorkerLost(at_ns=self.clock.now_ns(), job=job, attempt=attempt))

    # What the executor says.

    def attempt_ended(self, ended: Ended) -> None:
        """Take note that all processes of an attempt are gone."""
        if self._held is not None:
            self._held.append(ended)
            return
        attempt = ended.attempt
        self._live.discard(attempt)
        self._starting.discard(attempt)
        self._unwanted.discard(attempt)
        self._asked.pop((attempt.job, attempt.number), None)
        notices.info(
            "attempt ended",
            job=attempt.job,
            attempt=attempt.number,
            code=ended.code,
            reason=ended.reason,
        )
        self.handle(
            JobExited(
                at_ns=self.clock.now_ns(),
                job=attempt.job,
                attempt=attempt.number,
                code=ended.code,
                reason=ended.reason,
            )
        )

    def node_came(self, node: Node) -> None:
        """Use a node, unless it is to be drained."""
        notices.info("node came", node=node.name, gpus=node.gpus, memory_bytes=node.memory_bytes)
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
        notices.warning("node lost", node=name)
        self.nodes.pop(name, None)
        self.handle(NodeLost(at_ns=self.clock.now_ns(), node=name))
        self.hub.tell("node", {"node": name, "up": False, "draining": name in self.drained})

    # What users want.

    async def submit(self, spec: JobSpec) -> JobRecord:
        """Put a job into the queue; on return it is on the disk."""
        if self.closing:
            raise Refused(503, "the scheduler is ending.")
        record = await self.ledger.enter(spec)
        notices.info("job submitted", job=record.job, gpus=spec.gpus, name=spec.name)
        self.handle(JobSubmitted(at_ns=self.clock.now_ns(), job=record.job, spec=spec))
        return self.ledger.records[record.job]

    def cancel(self, job: str) -> JobRecord:
        """End a job, wherever it is."""
        record = self.record(job)
        if record.finished:
            raise Refused(409, f"job {job} is {record.state} already.")
        notices.info("job cancelled", job=job)
        self.ledger.update(job, cancelled=True)
        self.handle(JobCancelled(at_ns=self.clock.now_ns(), job=job))
        return self.ledger.records[job]

    def drain(self, node: str, draining: bool) -> None:
        """Give a node no new jobs, or give it them again."""
        if node not in self.nodes:
            raise Refused(404, f"there is no node {node}.")
        notices.info("node drained" if draining else "node undrained", node=node)
        (self.drained.add if draining else self.drained.discard)(node)
        self.store.set(DRAINED, msgspec.json.encode(sorted(self.drained)).decode())
        self.handle(NodeDrained(at_ns=self.clock.now_ns(), node=node, draining=draining))
        self.hub.tell("node", {"node": node, "up": True, "draining": draining})

    async def choose_policy(self, policy: str) -> None:
        """Let another policy decide from now on."""
        await asyncio.to_thread(prepare_policy, policy)
        notices.info("policy chosen", policy=policy)
        self.handle(PolicyChanged(at_ns=self.clock.now_ns(), policy=policy))
        self.policy = policy
        self.store.set(POLICY, policy)
        self.hub.tell("policy", {"policy": policy})

    def record(self, job: str) -> JobRecord:
        """Return what is known of a job."""
        found = self.ledger.records.get(job)
        if found is None:
            raise Refused(404, f"there is no job {job}.")
        return found

    # Steps of an event.

    def handle(self, event: AnyEvent) -> None:
        """Take an event through its steps; one that comes in the middle of another's waits."""
        if self._busy:
            self._later.append(event)
            return
        self._busy = True
        try:
            self._handle(event)
            while self._later:
                self._handle(self._later.popleft())
        finally:
            self._busy = False

    def _handle(self, event: AnyEvent) -> None:
        instructions = self._decide(event)
        others: list[AnyInstruction] = []
        for instruction in instructions:
            if type(instruction) is Grant:
                self._grant(instruction)
            else:
                others.append(instruction)
        self.events.add(log.line(event, instructions))
        if others or type(event) not in _QUICK:
            self._note(event, others)
            for instruction in others:
                self._carry_out(instruction)

    def _decide(self, event: AnyEvent) -> list[AnyInstruction]:
        try:
            return self.core.handle(event)
        except Exception as error:
            notices.failure("an event could not be handled", error, of=type(event).__name__)
        if isinstance(event, MessageReady):
            # Training goes on, whatever is wrong with a policy.
            return [Grant(job=event.job, attempt=event.attempt, request=event.request)]
        return []

    def _grant(self, grant: Grant) -> None:
        if self.gate is not None:
            self.gate.grant(grant.job, grant.attempt, grant.request)
        asked_ns = self._asked.get((grant.job, grant.attempt), {}).pop(grant.request, None)
        if asked_ns is not None:
            seconds = (time.perf_counter_ns() - asked_ns) / 1e9
            at_once = self._now_asking == (grant.job, grant.attempt, grant.request)
            (self.metrics.gate if at_once else self.metrics.wait).add(seconds)

    def _note(self, event: AnyEvent, instructions: list[AnyInstruction]) -> None:
        """Save the jobs that an event has changed."""
        jobs = {getattr(event, "job", None)}
        jobs |= {getattr(one, "job", None) for one in instructions}
        if self.closing:
            # A launch that is not carried out leaves its job in the queue, for the next scheduler.
            jobs -= {one.job for one in instructions if isinstance(one, Launch)}
        for job in jobs:
            if job is not None and job in self.ledger.records:
                self._note_job(job)

    def _note_job(self, job: str) -> None:
        view = self.core.job(job)
        if view is not None:
            self.ledger.update(
                job,
                state=view.state,
                attempts=view.attempts,
                seats=view.seats,
                iterations=view.iterations,
                reason=view.reason,
            )

    def _carry_out(self, instruction: AnyInstruction) -> None:
        if isinstance(instruction, Launch):
            if not self.closing:
                attempt = Attempt(instruction.job, instruction.attempt)
                self._live.add(attempt)
                self._starting.add(attempt)
                self.spawn(self._launch(attempt, instruction))
        elif isinstance(instruction, Stop):
            self.spawn(self._stop(Attempt(instruction.job, instruction.attempt)))
        elif isinstance(instruction, WakeAt):
            self._wake_at(instruction.at_ns)

    async def _launch(self, attempt: Attempt, launch: Launch) -> None:
        await self.store.saved()
        if self.closing:
            return
        if attempt in self._unwanted:
            self.attempt_ended(Ended(attempt, NEVER_STARTED, "stopped before it started"))
            return
        notices.info(
            "attempt starts",
            job=attempt.job,
            attempt=attempt.number,
            seats=[f"{seat.node}:{seat.slot}" for seat in launch.seats],
        )
        spec = self.ledger.records[attempt.job].spec
        await self.executor.launch(attempt, spec, launch.seats, self._environment(attempt))
        self._started(attempt)
        if attempt in self._unwanted:
            await self.executor.stop(attempt)

    async def _stop(self, attempt: Attempt) -> None:
        if attempt in self._starting:
            self._unwanted.add(attempt)
        elif attempt in self._live:
            await self.executor.stop(attempt)

    def _started(self, attempt: Attempt) -> None:
        if attempt in self._starting:
            self._starting.discard(attempt)
            at_ns = self.clock.now_ns()
            self.handle(JobStarted(at_ns=at_ns, job=attempt.job, attempt=attempt.number))

    def _wake_at(self, at_ns: int) -> None:
        """Send a Tick then, unless an earlier one is due: the core asks again after each."""
        if self._wake is not None:
            if at_ns >= self._wake_ns:
                return
            self._wake.cancel()
        self._wake_ns = at_ns
        delay_s = max(0, at_ns - self.clock.now_ns()) / 1e9
        self._wake = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._wake = None
        # The loop's clock is coarser than this one: never tell a time before the one asked for.
        self.handle(Tick(at_ns=max(self._wake_ns, self.clock.now_ns())))

    # Beginning and end.

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; an error in it is told and ends nothing."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            notices.failure("a task failed", error)

    async def beat(self) -> None:
        """Save progress and the clock every few seconds, for as long as this is awaited."""
        while True:
            await asyncio.sleep(BEAT_S)
            self.save_progress()

    def save_progress(self) -> None:
        """Save how many iterations jobs have done, and the clock."""
        for job in [one.job for one in self.ledger.records.values() if one.state in ACTIVE]:
            self._note_job(job)
        self.store.set(POLICY, self.policy)

    async def end_jobs(self) -> None:
        """Cancel all jobs that run and wait until they have ended; the queue stays as it is."""
        self.closing = True
        for record in list(self.ledger.records.values()):
            if record.state in ACTIVE:
                self.cancel(record.job)
        deadline = time.monotonic() + STOP_PATIENCE_S
        while self._live and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """End everything that is under way here, and leave jobs running."""
        self.closing = True
        self.hub.close()
        if self._wake is not None:
            self._wake.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        for task in list(self._tasks):
            task.cancel()
        self.save_progress()


_QUICK = (MessageReady, MessageDone, IterationDone, WorkerLost, Tick)
"""Events that by themselves change nothing that is saved."""


def prepare_policy(text: str) -> None:
    """Compile a policy, which takes seconds the first time; refuse one that does not exist."""
    from headway.policies.presets import choose_policies, policy_of

    names = policy_of(text)
    chosen = choose_policies(names.placement, names.scheduler, names.priority, names.admission)
    for choice in (chosen.placement, chosen.priority, chosen.admission):
        choice.compiled()
