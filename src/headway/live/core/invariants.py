"""What must hold after every event; tests check it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from headway.domain.records import NOBODY
from headway.live.core.job_state import JobState
from headway.live.core.jobs import NEVER_NS, LiveJob
from headway.live.core.state import CoreState


def validate(state: CoreState) -> None:
    """Raise AssertionError if the state is inconsistent."""
    for job in state.jobs.values():
        _check_job(state, job)
        if not job.finished:
            _check_record(state, job)
    _check_indexes(state)
    _check_nothing_due(state)
    _check_slots(state)
    _check_links(state)
    _check_messages(state)
    _check_turns(state)
    _check_leases(state)


def _check_job(state: CoreState, job: LiveJob) -> None:
    """A job's state says where it is listed, and what it may have."""
    assert (job.number in state.queue) == (job.state is JobState.QUEUED)
    assert (job.job_id in state.finished) == job.finished
    assert (job.row == NOBODY) == job.finished
    assert (job.finished_ns != NOBODY) == job.finished
    assert bool(job.slots) == (job.number in state.arrays.placed)
    if job.state in (JobState.STARTING, JobState.RUNNING):
        assert len(job.slots) == job.spec.gpus
        assert job.attempts >= 1
    else:
        assert not job.requests
        assert not job.computations
        assert not job.ports
        # A job that is being stopped keeps the slots that still exist.
        assert not job.slots or job.state is JobState.STOPPING
    # A job whose user does not want it is stopped at once, and is never queued again.
    assert not job.cancelled or job.state in (JobState.STOPPING, JobState.CANCELLED)


def _check_record(state: CoreState, job: LiveJob) -> None:
    """L_J and s_J follow from the job's estimates."""
    record = state.arrays.cluster.jobs[job.row]
    assert int(record.arrival_ns) == job.submitted_ns
    if job.state is JobState.STOPPING:
        assert int(record.remaining_service_ns) == int(record.iterations_left) == 0
        return
    assert int(record.gpus) == job.spec.gpus
    assert int(record.iterations_left) >= 1
    assert int(record.remaining_service_ns) == (
        int(record.iterations_left) * int(record.service_ns) * job.spec.gpus
    )
    assert int(record.priority_key) == job.key
    assert int(record.priority) == job.spec.priority
    assert job.order == (-job.spec.priority, job.key, job.number)


def _check_indexes(state: CoreState) -> None:
    """Exactly the unfinished jobs have rows, in order of submission."""
    unfinished = [job for job in state.jobs.values() if not job.finished]
    rows = [job for job in state.arrays.rows if job is not None]
    assert sorted(job.row for job in unfinished) == sorted(job.row for job in rows)
    assert [job.number for job in rows] == sorted(job.number for job in rows)
    assert all(state.arrays.rows[job.row] is job for job in unfinished)
    assert set(state.queue) <= {job.number for job in unfinished}
    assert set(state.waiting) <= set(state.arrays.placed)
    assert set(state.urgent) == {
        job.number for job in state.queue.values() if job.spec.priority > 0
    }


def _check_nothing_due(state: CoreState) -> None:
    """All decisions have been made, except placement while it is paused."""
    for job in state.pausing.values():
        assert job.number in state.queue
        assert job.ready_ns > state.now_ns or state.placement_paused
        assert state.wake_ns <= job.ready_ns
    assert set(state.fresh) <= (set(state.queue) if state.placement_paused else set())
    assert not state.unasked
    assert state.rates_current
    assert not state.turns.changed


def _check_slots(state: CoreState) -> None:
    """No job has a slot twice, no slot holds more than its memory, and the lists are complete."""
    arrays = state.arrays
    cluster = arrays.cluster
    held: dict[int, set[int]] = {}
    taken_bytes = [0] * len(cluster.gpus)
    for job in arrays.placed.values():
        assert len(set(job.slots)) == len(job.slots)
        first = int(cluster.jobs.first_seat[job.row])
        for rank, slot in enumerate(job.slots):
            node = arrays.nodes[slot.node]
            assert 0 <= slot.index < node.gpus
            gpu = node.first_gpu + slot.index
            assert cluster.gpus.server[gpu] == node.server
            assert cluster.seats.gpu[first + rank] == gpu
            assert cluster.seats.job[first + rank] == job.row
            held.setdefault(gpu, set()).add(first + rank)
            taken_bytes[gpu] += node.memory_bytes if job.exclusive else job.spec.memory_bytes
    for gpu in range(len(cluster.gpus)):
        listed = _chain(int(cluster.gpus.held[gpu]), cluster.seats.beside)
        assert set(listed) == held.get(gpu, set())
        free_bytes = int(cluster.gpus.free_bytes[gpu])
        assert free_bytes >= 0
        assert free_bytes == int(cluster.gpus.memory_bytes[gpu]) - taken_bytes[gpu]


def _check_links(state: CoreState) -> None:
    """Each port lists the messages that are sent there: of jobs on its node and on others too."""
    arrays = state.arrays
    cluster = arrays.cluster
    held: dict[int, set[int]] = {}
    for job in arrays.placed.values():
        if job.state is JobState.STOPPING:
            assert not job.ports
            assert cluster.jobs.servers[job.row] == cluster.messages.links[job.row] == 0
            continue
        used = sorted({arrays.nodes[slot.node].server for slot in job.slots})
        first = int(cluster.messages.first_link[job.row])
        assert cluster.jobs.servers[job.row] == cluster.messages.links[job.row] == len(used)
        assert cluster.links.port[first : first + len(used)].tolist() == used
        assert job.ports == frozenset(used if len(used) > 1 else ())
        if len(used) > 1:
            for link, port in enumerate(used, first):
                assert cluster.links.message[link] == job.row
                held.setdefault(port, set()).add(link)
    for port in range(len(cluster.ports)):
        listed = _chain(int(cluster.ports.held[port]), cluster.links.beside)
        assert set(listed) == held.get(port, set())
        assert int(cluster.ports.links[port]) == len(listed)


def _check_messages(state: CoreState) -> None:
    """The messages on the ports are those granted, at most one for each job."""
    arrays = state.arrays
    cluster = arrays.cluster
    granted = [job for job in arrays.placed.values() if job.granted is not None]
    running = [job.row for job in arrays.sending]
    assert sorted(running) == sorted(job.row for job in granted)
    assert len(set(running)) == len(running)
    for job in state.jobs.values():
        if job.granted is not None:
            assert next(iter(job.requests)) == job.granted
            assert job.number not in state.waiting
        assert (job.number in state.waiting) == bool(
            job.ports
            and job.requests
            and job.granted is None
            and job.overdue is None
            and not job.awaits_gradients
        )
        assert job.overdue is None or (
            job.granted is None and next(iter(job.requests)) == job.overdue
        )
    if not arrays.network.messages_meet:
        assert not cluster.ports.messages.any()
        return
    for port in range(len(cluster.ports)):
        present = [job.row for job in granted if port in job.ports]
        listed = _chain(int(cluster.ports.first_in_flight[port]), cluster.links.next)
        # The latest message comes first.
        assert [int(cluster.links.message[link]) for link in listed] == [
            row for row in reversed(running) if row in present
        ]
        assert int(cluster.ports.messages[port]) == len(present)
    for job in granted:
        record = cluster.messages[job.row]
        most = max(int(cluster.ports.messages[port]) for port in job.ports)
        assert int(record.k) >= 1
        assert record.cost_ns_per_byte > 0
        assert 0 <= arrays.bytes_left(job) <= int(record.bytes)
        if arrays.network.law == "busiest":
            assert int(record.k) == most


def _check_turns(state: CoreState) -> None:
    """One rank at a time has the turn on a slot, and none waits for a free slot."""
    turns = state.turns
    held, waiting = {}, set()
    for job in state.arrays.placed.values():
        for rank, requests in job.computations.items():
            granted = list(requests.values())
            assert granted
            assert granted == sorted(granted, reverse=True)
            if granted[0]:
                assert job.slots[rank] not in held
                held[job.slots[rank]] = (job, rank)
            else:
                waiting.add((job.slots[rank], job.number, (job, rank)))
    assert turns.holders == held
    assert {
        (slot, number, turn)
        for slot, ranks in turns.waiting.items()
        for number, turn in ranks.items()
    } == waiting
    assert all(turns.waiting.values())
    assert set(turns.waiting) <= set(held)


def _check_leases(state: CoreState) -> None:
    """No lease is over, and every grant that others may wait for has one if there are rules."""
    leased = state.lease_rules is not None
    due = []
    for job in state.jobs.values():
        assert (job.lease_ns != NEVER_NS) == (leased and job.granted is not None)
        assert bool(job.stuck) == (job.number in state.stuck)
        assert not job.stuck or job.state in (JobState.STARTING, JobState.RUNNING)
        due += [job.lease_ns, job.stop_ns]
    assert set(state.turns.leases) <= set(state.turns.holders)
    if leased:
        assert all(slot in state.turns.leases for slot in state.turns.waiting)
    assert not state.turns.unleased
    due += state.turns.leases.values()
    assert state.lease_check_ns <= min(due, default=NEVER_NS)
    assert state.wake_ns <= state.lease_check_ns


def _chain(first: int, following: NDArray[Any]) -> list[int]:
    """Return the items of a linked list; one with a cycle is an error."""
    items: list[int] = []
    while first != NOBODY:
        items.append(first)
        assert len(items) <= len(following)
        first = int(following[first])
    return items
