"""The arrays of a live cluster, and how they are laid out.

Jobs that are not over have a row. Rows are in the order of submission, because policies break ties
by row; those of jobs that are over are used again when the arrays are laid out anew. That happens
when they are full (they double if they would stay more than half full), and when a node comes or
goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.limits import MOST_BYTES
from headway.domain.records import (
    GPU,
    JOB,
    LINK,
    NOBODY,
    PORT,
    SEAT,
    SERVER,
    SYSTEM,
    ClusterView,
    Records,
    zeros,
)
from headway.live.core.events import Slot
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob
from headway.live.core.traffic import Integers, traffic
from headway.network.contention import NetworkModel
from headway.network.sharing import SHARE

_FEWEST = 64
"""Rows and seats to begin with."""


class NodeState:
    """A machine with slots; `server` and `first_gpu` are its places in the arrays."""

    __slots__ = ("draining", "first_gpu", "gpus", "memory_bytes", "name", "server")

    def __init__(self, name: str, gpus: int, memory_bytes: int, draining: bool) -> None:
        self.name = name
        self.gpus = gpus
        # Slots without memory hold jobs that do not ask for any, too.
        self.memory_bytes = max(1, memory_bytes)
        self.draining = draining
        self.server = self.first_gpu = NOBODY


class Arrays:
    """What policies see of the cluster, and what it is made from."""

    cluster: ClusterView
    columns: dict[str, NDArray[Any]]
    """Of the jobs' records, by field: much quicker to use one by one than the records."""

    def __init__(self, network: NetworkModel, seed: int) -> None:
        self.network = network
        self.nodes: dict[str, NodeState] = {}
        self.rows: list[LiveJob | None] = []
        self.placed: dict[int, LiveJob] = {}  # jobs with slots by number, in the order of placement
        self.sending: Integers = np.zeros(0, np.int64)
        self.messages = 0  # running: of the jobs sending[:messages], in the order of their grants
        self.traffic = traffic()
        self.system = zeros(1, SYSTEM)
        self.system.seed[:] = seed
        self.system.a_ns[:] = network.a_ns
        self.system.b_ns_per_byte[:] = network.b_ns_per_byte
        self.system.eta_ns_per_byte[:] = network.eta_ns_per_byte
        self.system.contends[:] = network.contends
        self.system.max_min[:] = network.sharing == "max-min"
        self.system.ring_servers[:] = network.servers or 0
        self.system.bucket_bytes[:] = MOST_BYTES
        self.columns = {}
        self.lay_out()

    def lay_out(self, more_rows: int = 0, more_seats: int = 0) -> None:
        """Make the arrays anew, with room for more and nothing left of what is gone."""
        sending = [self.rows[row] for row in self.sending[: self.messages].tolist()]
        live = [job for job in self.rows if job is not None]
        jobs = zeros(_room(len(live) + more_rows), JOB)
        for row, job in enumerate(live):
            jobs[row] = self.cluster.jobs[job.row]
            job.row = row
        self.rows = list(live)
        self.columns = {name: jobs[name] for name in JOB.names or ()}
        gpus, servers, ports = self._machines()
        seats_needed = sum(len(job.slots) for job in self.placed.values()) + more_seats
        seats, links = zeros(_room(seats_needed), SEAT), zeros(_room(seats_needed), LINK)
        seats.group[:] = NOBODY
        self.cluster = ClusterView(self.system, jobs, gpus, servers, seats, links, ports)
        self.seats_used = 0
        for job in self.placed.values():
            self.hold(job)
        self.sending = np.zeros(len(jobs), np.int64)
        self.sending[: self.messages] = [job.row for job in sending if job is not None]
        if self.network.contends:
            for row in self.sending[: self.messages].tolist():
                self.traffic.join(self.cluster, row)
        fair = self.network.sharing == "max-min"
        self.shares = zeros(len(ports) if fair else 0, SHARE)
        self.costs = np.zeros(len(jobs) if fair else 0)
        self.scratch: Integers = np.zeros(len(ports), np.int64)

    def _machines(self) -> tuple[Records, Records, Records]:
        """Return arrays for the GPUs, servers and ports of the nodes, with nothing on them."""
        nodes = list(self.nodes.values())
        counts = np.array([node.gpus for node in nodes], np.int64)
        gpus, servers = zeros(int(counts.sum()), GPU), zeros(len(nodes), SERVER)
        ports = zeros(len(nodes), PORT)
        ports.factor[:] = 1.0
        ports.first_message[:] = ports.held[:] = NOBODY
        first = 0
        for server, node in enumerate(nodes):
            node.server, node.first_gpu = server, first
            servers.first_gpu[server], servers.gpus[server] = first, node.gpus
            first += node.gpus
        memory_bytes = np.array([node.memory_bytes for node in nodes], np.int64)
        draining = np.array([node.draining for node in nodes], np.bool_)
        gpus.server[:] = np.repeat(np.arange(len(nodes)), counts)
        gpus.free_bytes[:] = np.repeat(memory_bytes, counts)
        gpus.ready[:] = gpus.held[:] = gpus.group[:] = NOBODY
        self.memory_bytes: Integers = np.repeat(memory_bytes, counts)
        self.open: NDArray[np.bool_] = ~np.repeat(draining, counts)
        self.slots = [Slot(node.name, index) for node in nodes for index in range(node.gpus)]
        return gpus, servers, ports

    def hold(self, job: LiveJob) -> None:
        """List a job on its GPUs and, if they are several, on its ports."""
        gpus, seats = self.cluster.gpus, self.cluster.seats
        row, first = job.row, self.seats_used
        self.seats_used += len(job.slots)
        self.columns["gpus"][row] = len(job.slots)
        self.columns["first_seat"][row] = self.columns["first_link"][row] = first
        nodes = [self.nodes[slot.node] for slot in job.slots]
        for seat, (slot, node) in enumerate(zip(job.slots, nodes, strict=True), first):
            gpu = node.first_gpu + slot.index
            seats.job[seat], seats.gpu[seat] = row, gpu
            seats.beside[seat] = gpus.held[gpu]
            gpus.held[gpu] = seat
            if job.alone:
                gpus.free_bytes[gpu] = 0
            else:
                gpus.free_bytes[gpu] -= job.spec.memory_bytes
        if job.alone:
            # So that what it holds and what is free add up to the memory of a slot.
            self.columns["memory_bytes"][row] = max(node.memory_bytes for node in nodes)
        job.node_names = tuple(dict.fromkeys(slot.node for slot in job.slots))
        if job.state != JobState.STOPPING:
            self._link(job, sorted({node.server for node in nodes}))

    def _link(self, job: LiveJob, used: list[int]) -> None:
        """Give a job links to these ports, where its messages will meet others' if any do."""
        links, ports = self.cluster.links, self.cluster.ports
        row, first = job.row, int(self.columns["first_link"][job.row])
        self.columns["servers"][row] = self.columns["links"][row] = len(used)
        links.job[first : first + len(used)] = row
        links.port[first : first + len(used)] = used
        job.ports = frozenset(used if len(used) > 1 else ())
        for link, port in enumerate(used if len(used) > 1 else (), first):
            links.beside[link] = ports.held[port]
            ports.held[port] = link
            ports.jobs[port] += 1


def _room(needed: int) -> int:
    """Return a capacity, a power of two, that `needed` fill at most half unless they are few."""
    room = _FEWEST
    while room < 2 * needed:
        room *= 2
    return room
