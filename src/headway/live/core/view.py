"""The live cluster as policies see it, and all that changes it.

Nodes are servers and slots are GPUs in the arrays of `domain.records`, kept as the engine keeps
them: docs/model.md says what each field means when a policy is asked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.limits import MOST_BYTES
from headway.domain.records import JOB, NOBODY
from headway.live.core.arrays import Arrays, NodeState
from headway.live.core.events import Slot
from headway.live.core.jobs import LiveJob
from headway.live.core.traffic import Integers
from headway.network.contention import NetworkModel

MOST_SERVICE_NS = 2**58
"""What any job counts for at most, 9 GPU years: sums over jobs must stay inside int64."""


class View(Arrays):
    """Jobs, slots and messages of a cluster."""

    def __init__(self, network: NetworkModel, seed: int) -> None:
        super().__init__(network, seed)
        self.most_message_bytes = min(MOST_BYTES, int(MOST_SERVICE_NS / network.b_ns_per_byte / 4))
        self._now: NDArray[Any] = self.system["now_ns"]

    def set_now(self, now_ns: int) -> None:
        """Set the clock that policies look at."""
        self._now[0] = now_ns

    def set_bucket(self, bucket_bytes: int) -> None:
        """Set the most that one message is supposed to carry."""
        self.system.bucket_bytes[:] = bucket_bytes

    def add(self, job: LiveJob) -> None:
        """Give a job a row."""
        if len(self.rows) == len(self.cluster.jobs):
            self.lay_out(more_rows=1)
        job.row = len(self.rows)
        self.rows.append(job)
        self.describe(job)

    def remove(self, job: LiveJob) -> None:
        """Take the row of a job that is over."""
        self.rows[job.row] = None
        self.cluster.jobs[job.row] = np.zeros((), JOB)
        job.row = NOBODY

    def describe(self, job: LiveJob) -> None:
        """Write the record of a job that is queued."""
        columns, row = self.columns, job.row
        self.cluster.jobs[row] = np.zeros((), JOB)
        columns["arrival_ns"][row] = job.submitted_ns
        columns["gpus"][row] = job.spec.gpus
        columns["memory_bytes"][row] = max(1, job.spec.memory_bytes)
        columns["latency_ns"][row] = self.network.a_ns
        columns["byte_weight"][row] = 1.0
        columns["start_ns"][row] = columns["finish_ns"][row] = NOBODY
        self.estimate(job)

    def estimate(self, job: LiveJob) -> None:
        """Write what a job is taken to need: s_J, L_J and what they follow from."""
        columns, row = self.columns, job.row
        most_ns = MOST_SERVICE_NS // job.spec.gpus
        forward_ns, backward_ns = min(job.forward_ns, most_ns), min(job.backward_ns, most_ns)
        gradient_bytes = min(job.gradient_bytes, self.most_message_bytes)
        service_ns = forward_ns + backward_ns
        if columns["servers"][row] > 1:
            b_ns_per_byte = float(columns["byte_weight"][row]) * self.network.b_ns_per_byte
            service_ns += int(columns["latency_ns"][row])
            service_ns += math.floor(b_ns_per_byte * gradient_bytes)
        service_ns = min(service_ns, most_ns)
        most = max(1, most_ns // service_ns)
        left = min(job.iterations_left, most)
        columns["forward_ns"][row] = forward_ns
        columns["backward_ns"][row] = backward_ns
        columns["gradient_bytes"][row] = gradient_bytes
        columns["iterations_left"][row] = left
        columns["iterations"][row] = left + min(job.iterations, most)
        columns["service_ns"][row] = service_ns
        columns["remaining_service_ns"][row] = left * service_ns * job.spec.gpus

    def retire(self, job: LiveJob) -> None:
        """Let a job that is being stopped hold its slots, and nothing else."""
        self._off_ports(job)
        columns, row = self.columns, job.row
        columns["servers"][row] = columns["links"][row] = 0
        columns["iterations_left"][row] = columns["remaining_service_ns"][row] = 0

    def candidates(self, job: LiveJob) -> Integers:
        """Return the GPUs where a job may go, ascending."""
        gpus = self.cluster.gpus
        fits = gpus.held == NOBODY if job.alone else gpus.free_bytes >= job.spec.memory_bytes
        return np.nonzero(fits & self.open)[0]

    def add_up_loads(self) -> None:
        """Bring L_g and L_S up to date."""
        self.traffic.add_up_loads(self.cluster)

    def usable(self, job: LiveJob, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Return which of these slots are there, with room for a job; none of them twice."""
        gpus, found = self.cluster.gpus, []
        for slot in dict.fromkeys(slots):
            node = self.nodes.get(slot.node)
            if node is None or not 0 <= slot.index < node.gpus:
                continue
            gpu = node.first_gpu + slot.index
            empty = bool(gpus.held[gpu] == NOBODY)
            if empty if job.alone else gpus.free_bytes[gpu] >= job.spec.memory_bytes:
                found.append(slot)
        return tuple(found)

    def shared(self, slot: Slot) -> bool:
        """Tell whether more than one job holds a slot."""
        first = self.cluster.gpus.held[self.nodes[slot.node].first_gpu + slot.index]
        return bool(first != NOBODY and self.cluster.seats.beside[first] != NOBODY)

    def place(self, job: LiveJob, slots: tuple[Slot, ...], now_ns: int) -> None:
        """Give a job its slots, and s_J and L_J as they are there."""
        if self.seats_used + len(slots) > len(self.cluster.seats):
            self.lay_out(more_seats=len(slots))
        job.slots = slots
        if slots:
            self.placed[job.number] = job
            self.hold(job)
        columns, row, servers = self.columns, job.row, len(job.node_names)
        columns["start_ns"][row] = now_ns
        if servers > 1:
            columns["latency_ns"][row] = self.network.latency_ns(servers)
            columns["byte_weight"][row] = self.network.byte_weight(servers)
        self.estimate(job)

    def free(self, job: LiveJob) -> None:
        """Take a job's slots; it must have no message on the network."""
        if job.number not in self.placed:
            return
        self._off_ports(job)
        gpus, seats = self.cluster.gpus, self.cluster.seats
        first = int(self.columns["first_seat"][job.row])
        for seat in range(first, first + len(job.slots)):
            gpu = int(seats.gpu[seat])
            if job.alone:
                gpus.free_bytes[gpu] = self.memory_bytes[gpu]
            else:
                gpus.free_bytes[gpu] += job.spec.memory_bytes
            _unlink(gpus.held, gpu, seats.beside, seat)
        del self.placed[job.number]
        job.slots, job.node_names = (), ()

    def add_node(self, node: NodeState) -> None:
        """Let a node be there."""
        self.nodes[node.name] = node
        self.lay_out()

    def remove_node(self, name: str) -> None:
        """Let a node be gone, with the slots that jobs have on it; they must have retired."""
        del self.nodes[name]
        for job in list(self.placed.values()):
            job.slots = tuple(slot for slot in job.slots if slot.node != name)
            if not job.slots:
                del self.placed[job.number]
                job.node_names = ()
        self.lay_out()

    def drain(self, node: NodeState, draining: bool) -> None:
        """Close a node's slots to new jobs, or open them."""
        node.draining = draining
        self.open[node.first_gpu : node.first_gpu + node.gpus] = not draining

    def ready(self, job: LiveJob, message_bytes: int, unsent_bytes: int) -> None:
        """Write down the message that a job wants to send next."""
        self.columns["message_bytes"][job.row] = min(message_bytes, self.most_message_bytes)
        self.columns["unsent_bytes"][job.row] = min(unsent_bytes, self.most_message_bytes)

    def send(self, job: LiveJob, now_ns: int) -> None:
        """Put a job's message on its ports; `rate` must follow."""
        columns, row = self.columns, job.row
        columns["message_k"][row] = 0
        columns["message_cost_ns_per_byte"][row] = 0.0
        columns["message_start_ns"][row] = now_ns
        columns["message_since_ns"][row] = now_ns + columns["latency_ns"][row]
        columns["message_bytes_left"][row] = columns["message_bytes"][row]
        self.traffic.join(self.cluster, row)
        self.sending[self.messages] = row
        self.messages += 1

    def finish(self, job: LiveJob) -> None:
        """Take a job's message off its ports; `rate` must follow."""
        row = job.row
        self.traffic.leave(self.cluster, row)
        place = self.sending[: self.messages].tolist().index(row)
        self.sending[place : self.messages - 1] = self.sending[place + 1 : self.messages]
        self.messages -= 1
        self.columns["message_k"][row] = 0

    def rate(self) -> None:
        """Give every running message its cost, which may be another than before."""
        self.traffic.rate(
            self.cluster, self.sending, self.messages, self.scratch, self.shares, self.costs
        )

    def bytes_left(self, job: LiveJob) -> float:
        """Return what a job's running message is taken to have left to send."""
        columns, row, now_ns = self.columns, job.row, int(self._now[0])
        since_ns = int(columns["message_since_ns"][row])
        left = float(columns["message_bytes_left"][row])
        if columns["message_k"][row] == 0 or now_ns <= since_ns:
            return left
        cost_ns_per_byte = float(columns["message_cost_ns_per_byte"][row])
        return max(0.0, left - (now_ns - since_ns) / cost_ns_per_byte)

    def _off_ports(self, job: LiveJob) -> None:
        """Let a job's ports not list it any more."""
        links, ports = self.cluster.links, self.cluster.ports
        first = int(self.columns["first_link"][job.row])
        for link in range(first, first + len(job.ports)):
            port = int(links.port[link])
            ports.jobs[port] -= 1
            _unlink(ports.held, port, links.beside, link)
        job.ports = frozenset()


def _unlink(first: NDArray[Any], place: int, following: NDArray[Any], item: int) -> None:
    """Take an item out of the list that begins at first[place]."""
    before = int(first[place])
    if before == item:
        first[place] = following[item]
        return
    while following[before] != item:
        before = int(following[before])
    following[before] = following[item]
