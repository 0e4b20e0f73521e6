"""The live cluster in the arrays that policies see, and every change of them.

Nodes are servers and slots are GPUs in the arrays of `domain.records`, kept by the same operations
as in the engine: docs/model.md says what each field means when a policy is asked.

A job that is not over has a row, and its message the same row. Rows are in the order of submission,
because policies break ties by row; the rows of jobs that are over are reused when the arrays are
rebuilt. That happens when they are full (they double if they would stay more than half full), and
when a node comes or goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.layout import prepare_jobs
from headway.domain.limits import MAX_BYTES
from headway.domain.records import (
    JOB,
    LINK,
    MESSAGE,
    MESSAGE_GROUP,
    NOBODY,
    NOT_READY,
    READY,
    SEAT,
    ClusterView,
    Floats,
    Integers,
    zeros,
)
from headway.live.core.events import Slot
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob
from headway.live.core.nodes import NodeState, lay_out_nodes
from headway.live.core.operations import operations
from headway.network.contention import NetworkModel
from headway.network.cuts import sending_by_server
from headway.network.system import make_system
from headway.network.traffic import make_traffic

MAX_SERVICE_NS = 2**58
"""The most that one job counts for, 9 GPU years: sums over jobs must stay inside int64."""

_FEWEST = 64
"""Rows and seats to begin with."""


class ClusterArrays:
    """Jobs, slots and messages of a cluster."""

    cluster: ClusterView
    columns: dict[str, NDArray[Any]]
    """The jobs' records by field: much quicker than the records to use one by one."""
    message_columns: dict[str, NDArray[Any]]

    def __init__(self, network: NetworkModel, seed: int) -> None:
        self.network = network
        self.most_message_bytes = min(MAX_BYTES, int(MAX_SERVICE_NS / network.b_ns_per_byte / 4))
        self.nodes: dict[str, NodeState] = {}
        self.rows: list[LiveJob | None] = []
        self.placed: dict[int, LiveJob] = {}  # jobs with slots by number, in order of placement
        self.sending: list[LiveJob] = []  # jobs with a message in flight, in order of their grants
        self._system = make_system(network, seed)
        self._now: NDArray[Any] = self._system["now_ns"]
        self._operations = operations()
        self._sent: Floats = np.zeros(0)  # by message, what it has sent by the model at `_rated_ns`
        self._rated_ns = 0
        self._lay_out()

    def set_now(self, now_ns: int) -> None:
        """Set the clock that policies look at."""
        self._now[0] = now_ns

    def set_bucket(self, bucket_bytes: int) -> None:
        """Set the most that one message is supposed to carry."""
        self._system.bucket_bytes[:] = bucket_bytes

    # Jobs.

    def add(self, job: LiveJob) -> None:
        """Give a job a row."""
        if len(self.rows) == len(self.cluster.jobs):
            self._lay_out(more_rows=1)
        job.row = len(self.rows)
        self.rows.append(job)
        self.describe(job)

    def remove(self, job: LiveJob) -> None:
        """Free the row of a job that is over."""
        self.rows[job.row] = None
        self.cluster.jobs[job.row] = np.zeros((), JOB)
        self.cluster.messages[job.row] = np.zeros((), MESSAGE)
        job.row = NOBODY

    def describe(self, job: LiveJob) -> None:
        """Write the records of a job that is queued."""
        columns, row = self.columns, job.row
        self.cluster.jobs[row] = np.zeros((), JOB)
        columns["arrival_ns"][row] = job.submitted_ns
        columns["gpus"][row] = job.spec.gpus
        columns["memory_bytes"][row] = max(1, job.spec.memory_bytes)
        columns["exclusive"][row] = job.exclusive
        columns["priority"][row] = job.spec.priority
        columns["first_message"][row], columns["messages"][row] = row, 1
        self.cluster.messages[row] = np.zeros((), MESSAGE)
        self.message_columns["job"][row] = row
        one = slice(row, row + 1)
        prepare_jobs(self.cluster.jobs[one], self.cluster.messages[one], self.network.a_ns)
        self.estimate(job)

    def estimate(self, job: LiveJob) -> None:
        """Write what a job is expected to need: s_J, L_J and what they follow from."""
        columns, row = self.columns, job.row
        most_ns = MAX_SERVICE_NS // job.spec.gpus
        gradient_bytes = min(job.gradient_bytes, self.most_message_bytes)
        columns["forward_ns"][row] = min(job.forward_ns, most_ns)
        columns["backward_ns"][row] = min(job.backward_ns, most_ns)
        columns["gradient_bytes"][row] = gradient_bytes
        self.message_columns["size_bytes"][row] = gradient_bytes
        service_ns = min(self._operations.one_service_ns(self.cluster, row), most_ns)
        most = max(1, most_ns // service_ns)
        left = min(job.iterations_left, most)
        columns["iterations_left"][row] = left
        columns["iterations"][row] = left + min(job.iterations, most)
        columns["service_ns"][row] = service_ns
        columns["remaining_service_ns"][row] = left * service_ns * job.spec.gpus

    def retire(self, job: LiveJob) -> None:
        """Reduce a job that is being stopped to the slots that it still holds."""
        columns, messages, row = self.columns, self.message_columns, job.row
        self._operations.disconnect_messages(self.cluster, row)
        job.ports = frozenset()
        columns["servers"][row] = messages["servers"][row] = messages["links"][row] = 0
        columns["iterations_left"][row] = columns["remaining_service_ns"][row] = 0

    # Slots.

    def candidates(self, job: LiveJob) -> Integers:
        """Return the GPUs that a job may be placed on, ascending; valid until the next call."""
        count = self._operations.list_candidates(self.cluster, job.row, self._candidates)
        return self._candidates[:count]

    def memory_bytes(self, job: LiveJob) -> int:
        """Return the memory that a queued job needs on a slot."""
        return int(self.columns["memory_bytes"][job.row])

    def could_hold(self, job: LiveJob) -> bool:
        """Return whether a queued job could be placed if there were no other."""
        return self._operations.could_hold(self.cluster, job.spec.gpus, self.memory_bytes(job))

    def reserve(self, memory_bytes: int) -> None:
        """Leave slots with this much memory, or more, out of the candidates of the next jobs."""
        self._system.reserved_bytes[:] = memory_bytes

    def assign(self, job: LiveJob, candidates: Integers) -> tuple[Slot, ...] | None:
        """Return the slots of the first candidates, or None if these are not valid."""
        self._reserve(job, job.spec.gpus)
        # A faulty policy may have written to the record.
        self.columns["gpus"][job.row] = job.spec.gpus
        if not self._operations.assign_first(self.cluster, job.row, candidates):
            return None
        return tuple(self._slots[gpu] for gpu in candidates[: job.spec.gpus].tolist())

    def add_up_loads(self) -> None:
        """Bring L_g and L_S up to date."""
        self._operations.add_up_loads(self.cluster)

    def add_load(self, job: LiveJob) -> None:
        """Add the load of a job that was placed since."""
        self._operations.add_load(self.cluster, job.row)

    def usable(self, job: LiveJob, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Return the distinct slots among these that exist and have room for a job."""
        found = []
        for slot in dict.fromkeys(slots):
            node = self.nodes.get(slot.node)
            if node is None or not 0 <= slot.index < node.gpus:
                continue
            if self._operations.has_room(self.cluster, job.row, node.first_gpu + slot.index):
                found.append(slot)
        return tuple(found)

    def shared(self, slot: Slot) -> bool:
        """Return whether more than one job holds a slot."""
        first = self.cluster.gpus.held[self.nodes[slot.node].first_gpu + slot.index]
        return bool(first != NOBODY and self.cluster.seats.beside[first] != NOBODY)

    def place(self, job: LiveJob, slots: tuple[Slot, ...], now_ns: int) -> None:
        """Put a job on these slots, with s_J and L_J as they are there."""
        self._reserve(job, len(slots))
        job.slots = slots
        if slots:
            self.placed[job.number] = job
            self._hold(job)
        self.columns["start_ns"][job.row] = now_ns
        self.estimate(job)

    def free(self, job: LiveJob) -> None:
        """Take a job off its slots; it must have no message in flight."""
        if job.number not in self.placed:
            return
        self._operations.take_off_cluster(self.cluster, job.row)
        del self.placed[job.number]
        job.slots, job.node_names, job.ports = (), (), frozenset()

    # Nodes.

    def add_node(self, node: NodeState) -> None:
        """Add a node."""
        self.nodes[node.name] = node
        self._lay_out()

    def remove_node(self, name: str) -> None:
        """Remove a node and the slots that jobs have on it; these must have retired."""
        del self.nodes[name]
        for job in list(self.placed.values()):
            job.slots = tuple(slot for slot in job.slots if slot.node != name)
            if not job.slots:
                del self.placed[job.number]
                job.node_names = ()
        self._lay_out()

    def drain(self, node: NodeState, draining: bool) -> None:
        """Close a node's slots to new jobs, or open them."""
        node.draining = draining
        self.cluster.gpus.closed[node.first_gpu : node.first_gpu + node.gpus] = draining

    # Messages.

    def ready(self, job: LiveJob, message_bytes: int, unsent_bytes: int) -> None:
        """Write the record of the message that a job wants to send next."""
        columns, row = self.message_columns, job.row
        columns["bytes"][row] = min(message_bytes, self.most_message_bytes)
        columns["unsent_bytes"][row] = min(unsent_bytes, self.most_message_bytes)
        columns["state"][row] = READY

    def message_bytes(self, job: LiveJob) -> int:
        """Return the size of the message that a job wants to send next."""
        return int(self.message_columns["bytes"][job.row])

    def withdraw(self, job: LiveJob) -> None:
        """Forget that a job's message was ready."""
        self.message_columns["state"][job.row] = NOT_READY

    def waiting_again(self) -> list[LiveJob]:
        """Return the jobs whose message waits where one has ended since the last `rate`."""
        count = self._operations.list_waiting(self.cluster, self._traffic)
        found = [self.rows[row] for row in self._traffic.found[:count].tolist()]
        return [job for job in found if job is not None]

    def send(self, job: LiveJob) -> None:
        """Put a job's message on the network; `rate` must follow."""
        self._operations.start_message(self.cluster, self._traffic, job.row)
        self._sent[job.row] = 0.0
        self.sending.append(job)

    def finish(self, job: LiveJob) -> None:
        """Take a job's message off the network; `rate` must follow."""
        self._operations.end_message(self.cluster, self._traffic, job.row)
        self.sending.remove(job)

    def rate(self) -> None:
        """Give the messages in flight their costs, as what has started and ended changed them."""
        self._operations.rate_all(self.cluster, self._traffic, self._sent, self._rated_ns)
        self._rated_ns = int(self._now[0])

    def bytes_left(self, job: LiveJob) -> float:
        """Return the bytes that a job's message in flight is estimated to have left."""
        return self._operations.bytes_left(self.cluster, job.row)

    def sent_by_model(self, job: LiveJob) -> float:
        """Return how many bytes a job's message could have sent by now, even beyond its size.

        By the network model, given the other messages in flight meanwhile.
        """
        since = self._operations.sent_since(self.cluster, job.row, self._rated_ns)
        return float(self._sent[job.row]) + since

    def progress(self, now_ns: int) -> tuple[list[int], list[float]]:
        """Return since when each message is in flight, and the bytes that it has left by now."""
        columns, rows = self.message_columns, [job.row for job in self.sending]
        elapsed_ns = np.maximum(0, now_ns - columns["since_ns"][rows])
        sent = elapsed_ns / columns["cost_ns_per_byte"][rows]
        left = np.maximum(0.0, columns["bytes_left"][rows] - sent)
        return columns["start_ns"][rows].tolist(), left.tolist()

    # The arrays.

    def _lay_out(self, more_rows: int = 0, more_seats: int = 0) -> None:
        """Rebuild the arrays, with room for more and without what is gone."""
        live = [job for job in self.rows if job is not None]
        capacity = _capacity(len(live) + more_rows)
        jobs, messages = zeros(capacity, JOB), zeros(capacity, MESSAGE)
        sent = np.zeros(capacity)
        for row, job in enumerate(live):
            jobs[row], messages[row] = self.cluster.jobs[job.row], self.cluster.messages[job.row]
            sent[row] = self._sent[job.row]
            jobs.first_message[row] = messages.job[row] = job.row = row
        self.rows, self._sent = list(live), sent
        self.columns = {name: jobs[name] for name in JOB.names or ()}
        self.message_columns = {name: messages[name] for name in MESSAGE.names or ()}
        gpus, servers, ports = lay_out_nodes(self.nodes.values())
        capacity = _capacity(sum(len(job.slots) for job in self.placed.values()) + more_seats)
        seats, links = zeros(capacity, SEAT), zeros(capacity, LINK)
        self.cluster = ClusterView(
            system=self._system,
            jobs=jobs,
            messages=messages,
            message_groups=zeros(0, MESSAGE_GROUP),
            ranks=np.zeros(0, np.int64),
            gpus=gpus,
            servers=servers,
            seats=seats,
            links=links,
            sending_ns=np.zeros(0, np.int64),
            shares=np.zeros(0),
            ports=ports,
            sending_by_server=sending_by_server,
        )
        self._slots = [
            Slot(node.name, index) for node in self.nodes.values() for index in range(node.gpus)
        ]
        self._candidates: Integers = np.zeros(len(gpus), np.int64)
        self._traffic = make_traffic(len(messages), len(ports))
        self._seats_used = 0
        for job in self.placed.values():
            self._hold(job)
        for job in self.sending:
            self._operations.resume_message(self.cluster, self._traffic, job.row)
        self.add_up_loads()

    def _reserve(self, job: LiveJob, seats: int) -> None:
        """Make room for a job's seats, which are those after all that are in use."""
        if self._seats_used + seats > len(self.cluster.seats):
            self._lay_out(more_seats=seats)
        self.columns["first_seat"][job.row] = self._seats_used

    def _hold(self, job: LiveJob) -> None:
        """Give a job its slots and, unless it is being stopped, connect its message."""
        row, first = job.row, self._seats_used
        self._seats_used += len(job.slots)
        self.columns["gpus"][row] = len(job.slots)
        self.columns["first_seat"][row] = self.message_columns["first_link"][row] = first
        self.cluster.seats.gpu[first : first + len(job.slots)] = [
            self.nodes[slot.node].first_gpu + slot.index for slot in job.slots
        ]
        job.node_names = tuple(dict.fromkeys(slot.node for slot in job.slots))
        if job.state == JobState.STOPPING:
            self._operations.hold(self.cluster, row)
            return
        self._operations.put_on_cluster(self.cluster, row)
        servers = int(self.columns["servers"][row])
        used = self.cluster.links.port[first : first + servers].tolist()
        job.ports = frozenset(used if servers > 1 else ())


def _capacity(needed: int) -> int:
    """Return a power of two that `needed` fill at most half, unless they are few."""
    capacity = _FEWEST
    while capacity < 2 * needed:
        capacity *= 2
    return capacity
