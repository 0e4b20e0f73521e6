"""Drives a core with simulated time: jobs that compute exactly as long as they say, and messages
that take what the contention model says, by a computation of the driver's own.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any

from headway.domain.cluster import Cluster
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.live.core.core import Core
from headway.live.core.events import (
    AnyEvent,
    AnyInstruction,
    ComputeDone,
    ComputeReady,
    GrantMessage,
    GrantTurn,
    IterationDone,
    JobExited,
    JobSpec,
    JobStarted,
    JobSubmitted,
    Launch,
    MessageDone,
    MessageReady,
    NodeUp,
    Slot,
    Tick,
    WakeAt,
)
from headway.live.daemon.event_log.format import encode_entry, encode_header
from headway.network.contention import NetworkModel

ARRIVES, FORWARD_ENDS, BACKWARD_ENDS, MESSAGE_ENDS, WAKES, TASK_ENDS = range(6)


class TieError(Exception):
    """Two jobs do something at one instant: a live core takes one after the other."""


@dataclass
class Message:
    """One on the network."""

    request: int
    nodes: frozenset[str]
    start_ns: int
    since_ns: int
    left_bytes: float
    cost: float = 0.0
    end_ns: int = 0


@dataclass
class Progress:
    """What the driver knows of a job."""

    job: Job
    slots: tuple[Slot, ...] = ()
    start_ns: int = -1
    finish_ns: int = -1
    iterations: int = 0
    buckets: dict[int, int] = field(default_factory=dict)
    message: Message | None = None
    messages: list[tuple[int, int]] = field(default_factory=list)
    asked: dict[int, int] = field(default_factory=dict)
    """By rank, the number of its computations so far; the odd ones are forward passes."""
    ends_ns: dict[int, int] = field(default_factory=dict)
    """By rank, when its computation ends."""
    tasks: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By rank."""


class Driver:
    """One run; afterwards `progress` tells what happened, and `log` all of it.

    With `turns`, jobs share GPUs and compute only when the core lets them.
    """

    def __init__(
        self,
        policy: str,
        workload: Workload,
        cluster: Cluster,
        network: NetworkModel,
        seed: int = 0,
        bucket_bytes: int | None = None,
        turns: bool = False,
    ) -> None:
        self.turns = turns
        self.given: dict[Slot, tuple[int, str]] = {}  # when a turn was last given, and to whom
        self.core = Core(policy, network, seed)
        self.network = network
        self.bucket_bytes = bucket_bytes
        self.progress = {job.job_id: Progress(job) for job in workload}
        self.first_gpu: dict[str, int] = {}
        self.now_ns = 0
        self.instants: dict[int, str] = {}
        self.events: list[tuple[int, int, int, str]] = []
        self.log = [encode_header(policy, network, seed)]
        gpu = 0
        for server, count in enumerate(cluster.server_gpus):
            name = f"n{server}"
            self.first_gpu[name] = gpu
            gpu += count
            kind = cluster.gpu_types[cluster.server_type[server]]
            self.tell(NodeUp(at_ns=0, node=name, gpus=count, memory_bytes=kind.memory_bytes))
        for job in workload:
            self.plan(job.arrival_ns, ARRIVES, job.job_id)

    def plan(self, time_ns: int, kind: int, job: str) -> None:
        heapq.heappush(self.events, (time_ns, kind, len(self.events), job))

    def tell(self, event: AnyEvent) -> None:
        instructions = self.core.handle(event)
        self.core.validate()
        self.log.append(encode_entry(event, instructions))
        for instruction in instructions:
            if isinstance(instruction, GrantTurn):
                slot = self.progress[instruction.job_id].slots[instruction.rank]
                self.given[slot] = (self.now_ns, instruction.job_id)
        for instruction in instructions:
            self.obey(instruction)
        self.rate()

    def obey(self, instruction: AnyInstruction) -> None:
        now_ns = self.now_ns
        if isinstance(instruction, Launch):
            found = self.progress[instruction.job_id]
            found.slots, found.start_ns = instruction.slots, now_ns
            self.tell(JobStarted(at_ns=now_ns, job_id=instruction.job_id, attempt=1))
            self.begin_iteration(found)
        elif isinstance(instruction, GrantTurn):
            self.begin_task(instruction)
        elif isinstance(instruction, GrantMessage):
            found = self.progress[instruction.job_id]
            assert found.message is None
            assert instruction.request == min(found.buckets)
            nodes = frozenset(slot.node for slot in found.slots)
            found.message = Message(
                instruction.request,
                nodes,
                now_ns,
                now_ns + self.network.latency_ns(len(nodes)),
                found.buckets[instruction.request],
            )
        elif isinstance(instruction, WakeAt):
            self.plan(instruction.at_ns, WAKES, "")

    def rate(self) -> None:
        """Give every message the end that follows from those beside it."""
        running = [(name, found.message) for name, found in self.progress.items() if found.message]
        for name, message in running:
            k = max(sum(node in other.nodes for _, other in running) for node in message.nodes)
            cost = self.network.byte_weight(len(message.nodes)) * self.network.cost_ns_per_byte(k)
            if self.network.law == "max-min":
                # Too much to compute twice: the core's own figure must fit the engine's.
                row = self.core.state.jobs[name].row
                cost = float(self.core.state.arrays.message_columns["cost_ns_per_byte"][row])
            if cost == message.cost:
                continue
            if self.now_ns > message.since_ns:
                sent = (self.now_ns - message.since_ns) / message.cost
                message.left_bytes = max(0.0, message.left_bytes - sent)
                message.since_ns = self.now_ns
            message.cost = cost
            sending_ns = math.ceil(message.left_bytes * cost)
            message.end_ns = max(self.now_ns + 1, message.since_ns + sending_ns)
            self.plan(message.end_ns, MESSAGE_ENDS, name)

    def run(self) -> None:
        while self.events:
            time_ns, kind, _, name = heapq.heappop(self.events)
            found = self.progress.get(name)
            if kind == MESSAGE_ENDS and not (
                found and found.message and found.message.end_ns == time_ns
            ):
                continue
            if kind == TASK_ENDS and (found is None or time_ns not in found.ends_ns.values()):
                continue  # Another rank's, which was the same instant.
            if self.instants.setdefault(time_ns, name) != name:
                raise TieError
            self.now_ns = time_ns
            if found is None or kind == FORWARD_ENDS:
                # The engine asks policies that are not steady at every instant.
                self.tell(Tick(at_ns=time_ns))
            if found is not None:
                self.advance(found, kind)

    def advance(self, found: Progress, kind: int) -> None:
        now_ns, job = self.now_ns, found.job
        identity: dict[str, Any] = {"at_ns": now_ns, "job_id": job.job_id, "attempt": 1}
        if kind == ARRIVES:
            spec = JobSpec(
                command=("train",),
                gpus=job.gpus,
                memory_bytes=job.memory_bytes,
                priority=job.priority,
                iterations=job.iterations,
                forward_ns=job.forward_ns,
                backward_ns=job.backward_ns,
                gradient_bytes=job.gradient_bytes,
            )
            self.tell(JobSubmitted(at_ns=now_ns, job_id=job.job_id, spec=spec))
        elif kind == TASK_ENDS:
            self.end_tasks(found)
        elif kind == FORWARD_ENDS:
            self.plan(now_ns + job.backward_ns, BACKWARD_ENDS, job.job_id)
        elif kind == BACKWARD_ENDS and len({slot.node for slot in found.slots}) > 1:
            self.ask_for_messages(found)
        else:
            if kind == MESSAGE_ENDS:
                assert found.message is not None
                request = found.message.request
                found.messages.append((found.message.start_ns, now_ns))
                found.message = None
                del found.buckets[request]
                last = not found.buckets and found.iterations + 1 == job.iterations
                if not last:
                    self.tell(MessageDone(**identity, request=request))
                if found.buckets:
                    return
            found.iterations += 1
            if found.iterations == job.iterations:
                found.finish_ns = now_ns
                self.tell(JobExited(**identity, code=0))
            else:
                self.tell(IterationDone(**identity, iterations=found.iterations))
                self.begin_iteration(found)

    def ask_for_messages(self, found: Progress) -> None:
        job = found.job
        identity: dict[str, Any] = {"at_ns": self.now_ns, "job_id": job.job_id, "attempt": 1}
        left = job.gradient_bytes
        while left > 0 or not found.buckets:
            size = min(left, self.bucket_bytes or left)
            found.buckets[1_000 * found.iterations + len(found.buckets)] = size
            left -= size
        unsent = job.gradient_bytes
        for request, size in sorted(found.buckets.items()):
            self.tell(
                MessageReady(**identity, request=request, message_bytes=size, unsent_bytes=unsent)
            )
            unsent -= size

    def begin_iteration(self, found: Progress) -> None:
        if not self.turns:
            self.plan(self.now_ns + found.job.forward_ns, FORWARD_ENDS, found.job.job_id)
            return
        for rank in range(found.job.gpus):
            self.ask_to_compute(found, rank)

    def ask_to_compute(self, found: Progress, rank: int) -> None:
        """Ask for a rank's next pass."""
        name = found.job.job_id
        when_ns, other = self.given.get(found.slots[rank], (-1, ""))
        known = self.core.state.jobs
        if when_ns == self.now_ns and other != name and known[name].order < known[other].order:
            # A job ended, and one that takes its place is first in order: the model places it
            # before it dispatches, a live core cannot know that it will ask.
            raise TieError
        request = found.asked[rank] = found.asked.get(rank, 0) + 1
        self.tell(
            ComputeReady(at_ns=self.now_ns, job_id=name, attempt=1, rank=rank, request=request)
        )

    def begin_task(self, grant: GrantTurn) -> None:
        found = self.progress[grant.job_id]
        assert grant.request == found.asked[grant.rank]
        forward = grant.request % 2 == 1
        end_ns = self.now_ns + (found.job.forward_ns if forward else found.job.backward_ns)
        found.tasks.setdefault(grant.rank, []).append((self.now_ns, end_ns))
        found.ends_ns[grant.rank] = end_ns
        self.plan(end_ns, TASK_ENDS, grant.job_id)

    def end_tasks(self, found: Progress) -> None:
        """End all passes of a job that end now, in the order of the model's instant.

        What they make ready is asked for first: at the end of a pass it competes with others.
        """
        ended = [rank for rank, end_ns in found.ends_ns.items() if end_ns == self.now_ns]
        requests = {rank: found.asked[rank] for rank in ended}
        for rank in ended:
            del found.ends_ns[rank]
            if requests[rank] % 2 == 1:
                self.ask_to_compute(found, rank)
        passes = 2 * (found.iterations + 1)
        if (
            not found.ends_ns
            and all(found.asked.get(rank) == passes for rank in range(found.job.gpus))
            and all(len(tasks) == passes for tasks in found.tasks.values())
        ):
            self.advance(found, BACKWARD_ENDS)
        for rank in ended if found.finish_ns < 0 else []:
            self.tell(
                ComputeDone(
                    at_ns=self.now_ns,
                    job_id=found.job.job_id,
                    attempt=1,
                    rank=rank,
                    request=requests[rank],
                )
            )
