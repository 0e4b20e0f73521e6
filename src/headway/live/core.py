"""The decision core: events in, instructions out.

`Core` reads no clock, does no I/O and starts no thread; the same events give the same instructions,
bit for bit. The policies are the simulator's, asked at the same points about the same quantities
(docs/explanation/live-core.md). Nothing that a worker or a late report says can make it raise: what
does not fit what the core knows is ignored and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.domain.errors import InputError
from headway.domain.limits import HORIZON_NS, MOST_BYTES, MOST_ITERATIONS, whole
from headway.domain.records import NOBODY
from headway.live import checks, status
from headway.live.arrays import Node
from headway.live.events import (
    AnyEvent,
    AnyInstruction,
    Grant,
    IterationDone,
    JobCancelled,
    JobExited,
    JobRestored,
    JobStarted,
    JobSubmitted,
    Launch,
    MessageDone,
    MessageReady,
    NodeDrained,
    NodeLost,
    NodeUp,
    PolicyChanged,
    Seat,
    Stop,
    Tick,
    WakeAt,
    WorkerLost,
)
from headway.live.jobs import NEVER_NS, Job, State, check_spec
from headway.live.rules import Rules
from headway.live.status import Counts, JobView, NodeView
from headway.live.view import View
from headway.network.contention import NetworkModel
from headway.policies.registry import ADMIT, WAIT

MOST_SLOTS = 2**12
"""Of one node."""

MOST_REQUESTS = 2**10
"""That one job may have open; an all-reduce in flight for each bucket of a large model."""

MOST_KEPT = 1_000
"""Jobs that are over and still known; those that ended first are forgotten first."""


class Core:
    """The state of a live cluster, and every decision about it."""

    def __init__(self, policy: str, network: NetworkModel, seed: int = 0) -> None:
        whole(seed, "seed", 0, 2**63 - 1)
        self.rules = Rules(policy)
        self.view = View(network, seed)
        self.view.set_bucket(self.rules.bucket_bytes)
        self.seed = seed
        self.now_ns = 0
        self.counts = Counts()
        self.known: dict[str, Job] = {}  # all jobs by name; those that are over at most MOST_KEPT
        self.queue: dict[int, Job] = {}  # by number
        self.waiting: dict[int, Job] = {}  # jobs whose first request is not granted, by number
        self.over: dict[str, Job] = {}
        self.drained: set[str] = set()  # names of nodes, there or not
        self._submitted = 0
        self._wake_ns = NEVER_NS  # the Tick that has been asked for
        # What has changed since the last decisions.
        self._fresh: dict[int, Job] = {}  # queued jobs that have not been tried
        self._room = False  # whether jobs that were refused may fit now
        self._asking: dict[int, Job] = {}  # waiting jobs that have not been asked about
        self._touched: set[int] = set()  # ports where a message has ended
        self._rated = True  # whether all messages have their costs
        self._handlers: dict[type, Callable[[Any, list[AnyInstruction]], bool]] = {
            NodeUp: self._node_up,
            NodeLost: self._node_lost,
            NodeDrained: self._node_drained,
            JobSubmitted: self._job_submitted,
            JobRestored: self._job_restored,
            JobCancelled: self._job_cancelled,
            JobStarted: self._job_started,
            JobExited: self._job_exited,
            MessageReady: self._message_ready,
            MessageDone: self._message_done,
            IterationDone: self._iteration_done,
            WorkerLost: self._worker_lost,
            PolicyChanged: self._policy_changed,
            Tick: self._tick,
        }

    def handle(self, event: AnyEvent) -> list[AnyInstruction]:
        """Take an event and return what has to be done, in order.

        Raises:
            InputError: A job, a node or a policy is not what it must be; nothing has changed.
        """
        if event.at_ns > HORIZON_NS:
            raise InputError(f"must be at most {HORIZON_NS:,}, not {event.at_ns:,}.", field="at_ns")
        self.now_ns = max(self.now_ns, event.at_ns)
        self.view.set_now(self.now_ns)
        instructions: list[AnyInstruction] = []
        # 1. What happened.
        fits = self._handlers[type(event)](event, instructions)
        self.counts.events += 1
        if not fits:
            self.counts.ignored += 1
            return instructions
        # 2. Placement of queued jobs.
        if self._fresh or (self.queue and (self._room or not self.rules.placement_steady)):
            self._place(instructions)
        self._room = False
        # 3. Admission of waiting messages, and the costs of those that run.
        if self.waiting:
            self._admit(instructions)
        self._touched.clear()
        if not self._rated:
            self.view.rate()
            self._rated = True
        # 4. The next time at which a policy wants to be asked.
        if self.waiting:
            self._ask_to_wake(instructions)
        return instructions

    # Step 1: nodes.

    def _node_up(self, event: NodeUp, instructions: list[AnyInstruction]) -> bool:
        whole(event.gpus, "gpus", 1, MOST_SLOTS)
        whole(event.memory_bytes, "memory_bytes", 0, MOST_BYTES)
        node = Node(event.node, event.gpus, event.memory_bytes, event.node in self.drained)
        known = self.view.nodes.get(event.node)
        if known is not None:
            if (known.gpus, known.memory_bytes) == (node.gpus, node.memory_bytes):
                return False
            self._lose(known, instructions)
        self.view.add_node(node)
        self._room = True
        return True

    def _node_lost(self, event: NodeLost, instructions: list[AnyInstruction]) -> bool:
        node = self.view.nodes.get(event.node)
        if node is None:
            return False
        self._lose(node, instructions)
        return True

    def _lose(self, node: Node, instructions: list[AnyInstruction]) -> None:
        """End the attempts of the jobs on a node that is gone, and forget its slots."""
        for job in list(self.view.placed.values()):
            if node.name in job.node_names:
                self._stop(job, f"node {node.name} was lost", instructions)
        self.view.remove_node(node.name)
        # Ports have other numbers now: ask about every message.
        self._asking.update(self.waiting)
        self._room = True

    def _node_drained(self, event: NodeDrained, _: list[AnyInstruction]) -> bool:
        node = self.view.nodes.get(event.node)
        if (event.node in self.drained) == event.draining or (
            node is None and event.node not in self.drained
        ):
            return False
        if event.draining:
            self.drained.add(event.node)
        else:
            self.drained.discard(event.node)
        if node is not None:
            self.view.drain(node, event.draining)
            self._room |= not event.draining
        return True

    # Step 1: jobs.

    def _job_submitted(self, event: JobSubmitted, _: list[AnyInstruction]) -> bool:
        if event.job in self.known:
            return False
        check_spec(event.spec)
        self._enqueue(self._new_job(event.job, event.spec, self.now_ns))
        return True

    def _job_restored(self, event: JobRestored, instructions: list[AnyInstruction]) -> bool:
        if event.job in self.known:
            return False
        check_spec(event.spec)
        whole(event.submitted_ns, "submitted_ns", 0, HORIZON_NS)
        whole(event.attempts, "attempts", 1 if event.seats else 0, 2**62)
        whole(event.iterations, "iterations", 0, MOST_ITERATIONS)
        job = self._new_job(event.job, event.spec, event.submitted_ns)
        job.attempts = event.attempts
        if not event.seats:
            self._enqueue(job)
            return True
        job.started_ns = self.now_ns
        job.iterations = event.iterations
        job.state = "running"
        seats = self.view.usable(job, event.seats)
        self.view.place(job, seats, self.now_ns)
        self._set_key(job)
        if seats != event.seats or len(seats) != job.spec.gpus:
            self._stop(job, "its slots are not there any more", instructions)
        return True

    def _new_job(self, name: str, spec: Any, submitted_ns: int) -> Job:
        job = Job(name, spec, self._submitted, submitted_ns)
        self._submitted += 1
        self.known[name] = job
        self.view.add(job)
        return job

    def _enqueue(self, job: Job) -> None:
        job.state = "queued"
        self.queue[job.number] = self._fresh[job.number] = job
        self._set_key(job)

    def _set_key(self, job: Job) -> None:
        job.set_key(self.rules.key(self.view.cluster, job.row))
        self.view.columns["priority_key"][job.row] = job.key

    def _job_cancelled(self, event: JobCancelled, instructions: list[AnyInstruction]) -> bool:
        job = self.known.get(event.job)
        if job is None or job.over or job.cancelled:
            return False
        job.cancelled = True
        if job.state == "queued":
            del self.queue[job.number]
            self._fresh.pop(job.number, None)
            self._end(job, "cancelled", "cancelled")
        else:
            self._stop(job, "cancelled", instructions)
        return True

    def _stop(self, job: Job, reason: str, instructions: list[AnyInstruction]) -> None:
        """End an attempt: it is off the network now, and off its slots when it has exited."""
        if job.state == "stopping":
            return
        self._silence(job)
        job.state = "stopping"
        job.reason = reason
        self.view.retire(job)
        instructions.append(Stop(job=job.name, attempt=job.attempts, reason=reason))

    def _attempt(self, name: str, attempt: int) -> Job | None:
        """Return the job whose attempt this is, if that has been made and has not ended."""
        job = self.known.get(name)
        if job is None or attempt != job.attempts or job.state == "queued" or job.over:
            return None
        return job

    def _job_started(self, event: JobStarted, _: list[AnyInstruction]) -> bool:
        job = self._attempt(event.job, event.attempt)
        if job is None or job.state != "starting":
            return False
        job.state = "running"
        return True

    def _job_exited(self, event: JobExited, _: list[AnyInstruction]) -> bool:
        job = self._attempt(event.job, event.attempt)
        if job is None:
            return False
        self._silence(job)
        self.view.free(job)
        self._room = True
        reason = event.reason or (f"exit code {event.code}" if event.code else "")
        if job.state == "stopping" and job.reason:
            reason = job.reason if not event.reason else f"{job.reason}: {event.reason}"
        if job.cancelled:
            self._end(job, "cancelled", reason)
        elif event.code == 0:
            self._end(job, "done", event.reason)
        elif job.attempts > job.spec.retries:
            self._end(job, "failed", reason)
        else:
            job.reason = reason
            job.iterations = 0
            job.started_ns = NOBODY
            self.view.describe(job)
            self._enqueue(job)
        return True

    def _end(self, job: Job, state: State, reason: str) -> None:
        job.state, job.reason, job.finished_ns = state, reason, self.now_ns
        self.view.remove(job)
        self.over[job.name] = job
        if len(self.over) > MOST_KEPT:
            oldest = next(iter(self.over))
            del self.over[oldest], self.known[oldest]

    def _iteration_done(self, event: IterationDone, _: list[AnyInstruction]) -> bool:
        job = self._attempt(event.job, event.attempt)
        if job is None or not job.iterations < event.iterations <= MOST_ITERATIONS:
            return False
        job.iterations = event.iterations
        # A steady placement answered on what was only supposed: ask it again.
        self._room |= job.measure(event)
        if job.state != "stopping":
            self.view.estimate(job)
            self._set_key(job)
        return True

    # Step 1: messages.

    def _message_ready(self, event: MessageReady, instructions: list[AnyInstruction]) -> bool:
        job = self._attempt(event.job, event.attempt)
        if (
            job is None
            or job.state == "stopping"
            or event.request in job.requests
            or len(job.requests) >= MOST_REQUESTS
            or not 0 <= event.message_bytes <= MOST_BYTES
        ):
            return False
        unsent_bytes = min(max(event.unsent_bytes, event.message_bytes), MOST_BYTES)
        job.requests[event.request] = (event.message_bytes, unsent_bytes)
        if not job.ports:
            # On one node an all-reduce meets nobody.
            self._grant(job, event.request, instructions)
        elif len(job.requests) == 1:
            self._next_message(job)
        return True

    def _next_message(self, job: Job) -> None:
        """Let the first of a job's requests wait for admission."""
        self.view.ready(job, *next(iter(job.requests.values())))
        job.waiting_since_ns, job.wake_ns = self.now_ns, NEVER_NS
        self.waiting[job.number] = self._asking[job.number] = job

    def _message_done(self, event: MessageDone, _: list[AnyInstruction]) -> bool:
        job = self._attempt(event.job, event.attempt)
        if job is None or event.request not in job.requests:
            return False
        first = next(iter(job.requests)) == event.request
        del job.requests[event.request]
        if job.ports and first:
            self._off_network(job)
            if job.requests:
                self._next_message(job)
        return True

    def _off_network(self, job: Job) -> None:
        """Take a job's first message off the network, or out of those that wait."""
        if job.granted is None:
            self.waiting.pop(job.number, None)
            self._asking.pop(job.number, None)
            return
        job.granted = None
        self._touched |= job.ports
        self._rated = False
        self.view.finish(job)

    def _silence(self, job: Job) -> None:
        """Forget what a job asked for or was granted."""
        if job.ports and job.requests:
            self._off_network(job)
        job.requests.clear()

    def _worker_lost(self, event: WorkerLost, _: list[AnyInstruction]) -> bool:
        job = self._attempt(event.job, event.attempt)
        if job is None:
            return False
        self._silence(job)
        return True

    # Step 1: the rest.

    def _policy_changed(self, event: PolicyChanged, _: list[AnyInstruction]) -> bool:
        self.rules = Rules(event.policy)
        self.view.set_bucket(self.rules.bucket_bytes)
        for job in self.view.rows:
            if job is not None and job.state != "stopping":
                self._set_key(job)
        for job in self.waiting.values():
            job.wake_ns = NEVER_NS
        self._asking.update(self.waiting)
        self._room = True
        return True

    def _tick(self, _: Tick, __: list[AnyInstruction]) -> bool:
        return True

    # Steps 2 to 4.

    def _place(self, instructions: list[AnyInstruction]) -> None:
        """Try queued jobs once each, in order; one that is refused does not block the next."""
        all_of_them = self._room or not self.rules.placement_steady
        tried = list((self.queue if all_of_them else self._fresh).values())
        self._fresh.clear()
        tried.sort(key=lambda job: job.order)
        loads_known = False
        full: set[tuple[int, int]] = set()  # sizes for which there is no room
        for job in tried:
            size = (job.spec.memory_bytes, job.spec.gpus)
            if size in full:
                continue
            candidates = self.view.candidates(job)
            if len(candidates) < job.spec.gpus:
                full.add(size)
                continue
            if not loads_known:
                self.view.add_up_loads()
                loads_known = True
            taken = self.rules.place(self.view.cluster, job.row, candidates, job.spec.gpus)
            if taken is None:
                continue
            self._launch(job, tuple(self.view.slots[gpu] for gpu in taken), instructions)
            self.view.add_up_loads()

    def _launch(
        self, job: Job, seats: tuple[Seat, ...], instructions: list[AnyInstruction]
    ) -> None:
        del self.queue[job.number]
        job.attempts += 1
        job.state = "starting"
        job.started_ns = self.now_ns
        self.view.place(job, seats, self.now_ns)
        self._set_key(job)
        self.counts.launches += 1
        instructions.append(Launch(job=job.name, attempt=job.attempts, seats=seats))

    def _admit(self, instructions: list[AnyInstruction]) -> None:
        """Ask about waiting messages once each, in order; each sees those admitted before it.

        A steady policy is not asked again until a message has ended on one of the job's nodes, or
        the time has come that it named.
        """
        asked = self.waiting
        if self.rules.admission_steady:
            asked = self._asking
            if len(asked) < len(self.waiting):
                for number, job in self.waiting.items():
                    if job.wake_ns <= self.now_ns or not self._touched.isdisjoint(job.ports):
                        asked[number] = job
        if not asked:
            return
        in_order = list(asked.values())
        self._asking.clear()
        if len(in_order) > 1:
            in_order.sort(key=lambda job: job.order)
        for job in in_order:
            answer = self.rules.admit(self.view.cluster, job.row)
            if answer == ADMIT or WAIT < answer <= self.now_ns:
                del self.waiting[job.number]
                job.granted = next(iter(job.requests))
                self.view.send(job, self.now_ns)
                self._rated = False
                self._grant(job, job.granted, instructions)
            else:
                job.wake_ns = answer if answer > self.now_ns else NEVER_NS

    def _grant(self, job: Job, request: int, instructions: list[AnyInstruction]) -> None:
        self.counts.grants += 1
        instructions.append(Grant(job=job.name, attempt=job.attempts, request=request))

    def _ask_to_wake(self, instructions: list[AnyInstruction]) -> None:
        """Ask for a Tick at the earliest time that a policy named, unless one comes by then."""
        if self._wake_ns <= self.now_ns:
            self._wake_ns = NEVER_NS
        wake_ns = min(job.wake_ns for job in self.waiting.values())
        if wake_ns < self._wake_ns:
            self._wake_ns = wake_ns
            instructions.append(WakeAt(at_ns=wake_ns))

    # What people ask.

    def why(self, job: str) -> str:
        """Return, in a sentence, how a job stands and what it waits for."""
        return status.why(self, job)

    def jobs(self) -> list[JobView]:
        """Return all jobs that are known, in the order of submission."""
        return status.jobs(self)

    def nodes(self) -> list[NodeView]:
        """Return all nodes, with who holds their slots and what is on their network."""
        return status.nodes(self)

    def validate(self) -> None:
        """Raise AssertionError if the state contradicts itself; for tests."""
        checks.validate(self)
