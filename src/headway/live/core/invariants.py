"""Everything that must be true of a core at any time, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.domain.records import NOBODY
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob

if TYPE_CHECKING:
    from headway.live.core.core import Core


def validate(core: Core) -> None:
    """Raise AssertionError if the state contradicts itself."""
    _check_states(core)
    _check_slots(core)
    _check_links(core)
    _check_messages(core)
    _check_turns(core)
    for job in core.known.values():
        if not job.over:
            _check_record(core, job)


def _check_states(core: Core) -> None:
    """Every job is in the lists of its state, and in no others."""
    view = core.view
    for job in core.known.values():
        assert (job.number in core.queue) == (job.state == JobState.QUEUED)
        assert (job.job_id in core.over) == job.over
        assert (job.row == NOBODY) == job.over
        assert bool(job.slots) == (job.number in view.placed)
        if job.state in (JobState.STARTING, JobState.RUNNING):
            assert len(job.slots) == job.spec.gpus
            assert job.attempts >= 1
        elif job.state != JobState.STOPPING:
            assert not job.slots
        if job.state not in (JobState.STARTING, JobState.RUNNING):
            assert not job.requests
            assert not job.computations
            assert not job.ports
        assert (job.finished_ns != NOBODY) == job.over
    live = [job for job in core.known.values() if not job.over]
    rows = [job for job in view.rows if job is not None]
    assert sorted(job.row for job in live) == sorted(job.row for job in rows)
    assert [job.number for job in rows] == sorted(job.number for job in rows)
    assert all(view.rows[job.row] is job for job in live)
    assert set(core.queue) <= {job.number for job in live}
    assert set(core.waiting) <= set(view.placed)
    assert core.held or not core.fresh
    assert not core.asking


def _check_slots(core: Core) -> None:
    """No slot holds a job twice or more than its memory, and its list says who is there."""
    view = core.view
    cluster = view.cluster
    held: dict[int, set[int]] = {}
    taken_bytes = [0] * len(cluster.gpus)
    for job in view.placed.values():
        assert len(set(job.slots)) == len(job.slots)
        first = int(cluster.jobs.first_seat[job.row])
        for rank, slot in enumerate(job.slots):
            node = view.nodes[slot.node]
            assert 0 <= slot.index < node.gpus
            gpu = node.first_gpu + slot.index
            assert cluster.gpus.server[gpu] == node.server
            assert cluster.seats.gpu[first + rank] == gpu
            assert cluster.seats.job[first + rank] == job.row
            held.setdefault(gpu, set()).add(first + rank)
            taken_bytes[gpu] += node.memory_bytes if job.alone else job.spec.memory_bytes
    for gpu in range(len(cluster.gpus)):
        listed = _chain(int(cluster.gpus.held[gpu]), cluster.seats.beside)
        assert set(listed) == held.get(gpu, set())
        free_bytes = int(cluster.gpus.free_bytes[gpu])
        assert free_bytes >= 0
        assert free_bytes == int(view.memory_bytes[gpu]) - taken_bytes[gpu]


def _check_links(core: Core) -> None:
    """Ports list the jobs of several nodes that may send there."""
    view = core.view
    cluster = view.cluster
    held: dict[int, set[int]] = {}
    for job in view.placed.values():
        if job.state == JobState.STOPPING:
            assert not job.ports
            assert cluster.jobs.servers[job.row] == cluster.jobs.links[job.row] == 0
            continue
        used = sorted({view.nodes[slot.node].server for slot in job.slots})
        first = int(cluster.jobs.first_link[job.row])
        assert cluster.jobs.servers[job.row] == cluster.jobs.links[job.row] == len(used)
        assert cluster.links.port[first : first + len(used)].tolist() == used
        assert job.ports == frozenset(used if len(used) > 1 else ())
        if len(used) > 1:
            for link, port in enumerate(used, first):
                assert cluster.links.job[link] == job.row
                held.setdefault(port, set()).add(link)
    for port in range(len(cluster.ports)):
        listed = _chain(int(cluster.ports.held[port]), cluster.links.beside)
        assert set(listed) == held.get(port, set())
        assert int(cluster.ports.jobs[port]) == len(listed)


def _check_messages(core: Core) -> None:
    """Messages on ports are those that were granted, and nobody has more than one."""
    view = core.view
    cluster = view.cluster
    granted = [job for job in view.placed.values() if job.granted is not None]
    running = view.sending[: view.messages].tolist()
    assert sorted(running) == sorted(job.row for job in granted)
    assert len(set(running)) == len(running)
    for job in core.known.values():
        if job.granted is not None:
            assert next(iter(job.requests)) == job.granted
            assert job.number not in core.waiting
        assert (job.number in core.waiting) == bool(
            job.ports and job.requests and job.granted is None and not job.still_computes
        )
    if not view.network.contends:
        assert not cluster.ports.messages.any()
        return
    for port in range(len(cluster.ports)):
        there = [job.row for job in granted if port in job.ports]
        listed = _chain(int(cluster.ports.first_message[port]), cluster.links.next)
        # The latest first.
        assert [int(cluster.links.job[link]) for link in listed] == [
            row for row in reversed(running) if row in there
        ]
        assert int(cluster.ports.messages[port]) == len(there)
    for job in granted:
        record = cluster.jobs[job.row]
        most = max(int(cluster.ports.messages[port]) for port in job.ports)
        assert int(record.message_k) >= 1
        assert record.message_cost_ns_per_byte > 0
        assert 0 <= core.view.bytes_left(job) <= int(record.message_bytes)
        if view.network.sharing == "busiest":
            assert int(record.message_k) == most


def _check_turns(core: Core) -> None:
    """On a slot one job at a time has the turn; nobody waits for a slot that is free."""
    turns = core.turns
    held, waiting = {}, set()
    for job in core.view.placed.values():
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
        for slot, those in turns.waiting.items()
        for number, turn in those.items()
    } == waiting
    assert all(turns.waiting.values())
    assert set(turns.waiting) <= set(held)
    assert not turns.changed


def _check_record(core: Core, job: LiveJob) -> None:
    """L_J and s_J follow from what the job is taken to need."""
    record = core.view.cluster.jobs[job.row]
    assert int(record.arrival_ns) == job.submitted_ns
    if job.state == JobState.STOPPING:
        assert int(record.remaining_service_ns) == int(record.iterations_left) == 0
        return
    assert int(record.gpus) == job.spec.gpus
    assert int(record.iterations_left) >= 1
    assert int(record.remaining_service_ns) == (
        int(record.iterations_left) * int(record.service_ns) * job.spec.gpus
    )
    assert int(record.priority_key) == job.key
    assert job.order == (-job.spec.priority, job.key, job.number)


def _chain(first: int, following: object) -> list[int]:
    """Return the items of a list; one that does not end is an error."""
    items: list[int] = []
    while first != NOBODY:
        items.append(first)
        assert len(items) <= len(following)  # type: ignore[arg-type]
        first = int(following[first])  # type: ignore[index]
    return items
