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
from headway.live.core import decisions, invariants, status
from headway.live.core.arrays import NodeState
from headway.live.core.events import (
    NEVER_STARTED,
    AnyEvent,
    AnyInstruction,
    ComputeDone,
    ComputeReady,
    IterationDone,
    JobCancelled,
    JobExited,
    JobRestored,
    JobStarted,
    JobSubmitted,
    MessageDone,
    MessageReady,
    NodeDrained,
    NodeLost,
    NodeUp,
    PolicyChanged,
    Tick,
    WorkerLost,
)
from headway.live.core.job_state import JobState
from headway.live.core.jobs import MOST_ATTEMPTS, NEVER_NS, LiveJob, check_spec
from headway.live.core.rules import Rules
from headway.live.core.status import JobView, NodeView
from headway.live.core.worker_events import Reports
from headway.network.contention import NetworkModel

MOST_SLOTS = 2**12
"""Of one node."""


class Core(Reports):
    """The state of a live cluster, and every decision about it."""

    def __init__(self, policy: str, network: NetworkModel, seed: int = 0) -> None:
        super().__init__(policy, network, seed)
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
            ComputeReady: self._compute_ready,
            ComputeDone: self._compute_done,
            WorkerLost: self._worker_lost,
            PolicyChanged: self._policy_changed,
            Tick: self._tick,
        }

    def handle(self, event: AnyEvent) -> list[AnyInstruction]:
        """Take an event and return what has to be done, in order.

        Raises:
            InputError: A job, a node or a policy is not what it must be; nothing has changed.
            PolicyError: A policy does not compile; nothing has changed.
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
        if not self.held:
            if self.fresh or (self.queue and (self.room or not self.rules.placement_steady)):
                decisions.place(self, instructions)
            self.room = False
        # 3. Admission of waiting messages, and the costs of those that run.
        if self.waiting:
            decisions.admit(self, instructions)
        self.touched.clear()
        if not self.rated:
            self.view.rate()
            self.rated = True
        # 4. Turns to compute on slots that are free.
        if self.turns.changed:
            self.counts.turns += self.turns.give(self.view.shared, instructions)
        # 5. The next time at which a policy wants to be asked.
        if self.waiting:
            decisions.ask_to_wake(self, instructions)
        return instructions

    def job(self, job_id: str) -> LiveJob | None:
        """Return a job that is known."""
        return self.known.get(job_id)

    def why(self, job_id: str) -> str:
        """Return, in a sentence, how a job stands and what it waits for."""
        return status.why(self, job_id)

    def jobs(self) -> list[JobView]:
        """Return all jobs that are known, in the order of submission."""
        return status.jobs(self)

    def nodes(self) -> list[NodeView]:
        """Return all nodes, with who holds their slots and what is on their network."""
        return status.nodes(self)

    def validate(self) -> None:
        """Raise AssertionError if the state contradicts itself; for tests."""
        invariants.validate(self)

    def _node_up(self, event: NodeUp, instructions: list[AnyInstruction]) -> bool:
        whole(event.gpus, "gpus", 1, MOST_SLOTS)
        whole(event.memory_bytes, "memory_bytes", 0, MOST_BYTES)
        node = NodeState(event.node, event.gpus, event.memory_bytes, event.node in self.drained)
        known = self.view.nodes.get(event.node)
        if known is not None:
            if (known.gpus, known.memory_bytes) == (node.gpus, node.memory_bytes):
                return False
            self._lose(known, instructions)
        self.view.add_node(node)
        self.room = True
        return True

    def _node_lost(self, event: NodeLost, instructions: list[AnyInstruction]) -> bool:
        node = self.view.nodes.get(event.node)
        if node is None:
            return False
        self._lose(node, instructions)
        return True

    def _lose(self, node: NodeState, instructions: list[AnyInstruction]) -> None:
        """End the attempts of the jobs on a node that is gone, and forget its slots."""
        for job in list(self.view.placed.values()):
            if node.name in job.node_names:
                self.stop(job, f"node {node.name} was lost", instructions)
        self.view.remove_node(node.name)
        # Ports have other numbers now: ask about every message.
        self.asking.update(self.waiting)
        self.room = True

    def _node_drained(self, event: NodeDrained, _: list[AnyInstruction]) -> bool:
        node = self.view.nodes.get(event.node)
        known = node is not None or event.node in self.drained
        if not known or (event.node in self.drained) == event.draining:
            return False
        if event.draining:
            self.drained.add(event.node)
        else:
            self.drained.discard(event.node)
        if node is not None:
            self.view.drain(node, event.draining)
            self.room |= not event.draining
        return True

    def _job_submitted(self, event: JobSubmitted, _: list[AnyInstruction]) -> bool:
        if event.job_id in self.known:
            return False
        check_spec(event.spec)
        self.enqueue(self.new_job(event.job_id, event.spec, self.now_ns))
        return True

    def _job_restored(self, event: JobRestored, instructions: list[AnyInstruction]) -> bool:
        if event.job_id in self.known:
            return False
        check_spec(event.spec)
        whole(event.submitted_ns, "submitted_ns", 0, HORIZON_NS)
        whole(event.attempts, "attempts", 1 if event.slots else 0, MOST_ATTEMPTS)
        whole(event.unstarted, "unstarted", 0, event.attempts)
        whole(event.iterations, "iterations", 0, MOST_ITERATIONS)
        job = self.new_job(event.job_id, event.spec, event.submitted_ns)
        job.attempts, job.unstarted = event.attempts, event.unstarted
        self.held |= event.hold
        if not event.slots:
            self.enqueue(job)
            return True
        job.state = JobState.RUNNING
        job.started_ns = self.now_ns
        job.iterations = event.iterations
        slots = self.view.usable(job, event.slots)
        self.view.place(job, slots, self.now_ns)
        self.set_key(job)
        if slots != event.slots or len(slots) != job.spec.gpus:
            self.stop(job, "its slots are not there any more", instructions)
        return True

    def _job_cancelled(self, event: JobCancelled, instructions: list[AnyInstruction]) -> bool:
        job = self.known.get(event.job_id)
        if job is None or job.over or job.cancelled:
            return False
        job.cancelled = True
        if job.state == JobState.QUEUED:
            del self.queue[job.number]
            self.end(job, JobState.CANCELLED, "cancelled")
        else:
            self.stop(job, "cancelled", instructions)
        return True

    def _job_started(self, event: JobStarted, _: list[AnyInstruction]) -> bool:
        job = self.attempt(event.job_id, event.attempt)
        if job is None or job.state != JobState.STARTING:
            return False
        job.state = JobState.RUNNING
        return True

    def _job_exited(self, event: JobExited, _: list[AnyInstruction]) -> bool:
        job = self.attempt(event.job_id, event.attempt)
        if job is None:
            return False
        self.silence(job)
        self.view.free(job)
        self.room = True
        reason = event.reason or (f"exit code {event.code}" if event.code else "")
        if job.state == JobState.STOPPING:
            reason = job.reason
        if job.cancelled:
            self.end(job, JobState.CANCELLED, reason)
        elif event.code == 0:
            self.end(job, JobState.DONE, event.reason)
        elif event.code != NEVER_STARTED and job.attempts - job.unstarted > job.spec.retries:
            self.end(job, JobState.FAILED, reason)
        else:
            job.unstarted += event.code == NEVER_STARTED
            job.reason = reason
            job.iterations = 0
            job.started_ns = NOBODY
            self.view.describe(job)
            self.enqueue(job)
        return True

    def _policy_changed(self, event: PolicyChanged, _: list[AnyInstruction]) -> bool:
        self.rules = Rules(event.policy)
        self.view.set_bucket(self.rules.bucket_bytes)
        for job in self.view.rows:
            if job is not None and job.state != JobState.STOPPING:
                self.set_key(job)
        for job in self.waiting.values():
            job.wake_ns = NEVER_NS
        self.asking.update(self.waiting)
        self.room = True
        return True

    def _tick(self, _: Tick, __: list[AnyInstruction]) -> bool:
        self.held = False
        return True
