"""What must hold of every run, whatever the policies; checked from the timeline alone."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np

from headway.domain.compute_times import compute_times_ns
from headway.domain.records import BACKWARD, COMMUNICATION, FORWARD, Records
from headway.results.schema import Result


def check_invariants(result: Result, tasks: Records) -> None:
    """Assert everything below."""
    check_times(result, tasks)
    check_gpus_run_one_task_at_a_time(tasks)
    check_memory(result)
    check_order_of_tasks(result, tasks)
    check_bytes(result, tasks)
    check_admission(result, tasks)
    check_busy_time(result, tasks)


def check_times(result: Result, tasks: Records) -> None:
    assert (result.start_ns >= result.arrival_ns).all()
    for job in range(len(result.workload)):
        own = tasks[tasks.job == job]
        assert own.start_ns.min() >= result.start_ns[job]
        assert own.end_ns.max() == result.finish_ns[job]


def check_gpus_run_one_task_at_a_time(tasks: Records) -> None:
    compute = np.sort(tasks[tasks.kind != COMMUNICATION], order=["gpu", "start_ns"])
    same_gpu = compute["gpu"][1:] == compute["gpu"][:-1]
    assert (compute["start_ns"][1:] >= compute["end_ns"][:-1])[same_gpu].all()


def check_memory(result: Result) -> None:
    changes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for job, start, finish, gpus in zip(
        result.workload, result.start_ns, result.finish_ns, result.gpus, strict=True
    ):
        assert len(set(gpus)) == job.gpus
        for gpu in gpus:
            # A job that leaves at an instant makes room for one placed at that instant.
            changes[gpu] += [(int(start), job.memory_bytes), (int(finish), -job.memory_bytes)]
    cluster = result.settings.cluster
    for gpu, on_gpu in changes.items():
        held = 0
        for _, change in sorted(on_gpu):
            held += change
            assert held <= cluster.gpu_types[cluster.type_of_gpu[gpu]].memory_bytes


def check_order_of_tasks(result: Result, tasks: Records) -> None:
    """Forward, backward on each GPU, barrier, message, next iteration; each exactly once."""
    cluster = result.settings.cluster
    times_ns = compute_times_ns(result.workload, cluster)
    for index, job in enumerate(result.workload):
        own = tasks[tasks.job == index]
        crosses = len(cluster.servers_of(result.gpus[index])) > 1
        ready = int(result.start_ns[index])
        for iteration in range(job.iterations):
            mine = own[own.iteration == iteration]
            forward, backward, message = (mine[mine.kind == kind] for kind in range(3))
            assert sorted(forward.gpu) == sorted(backward.gpu) == list(result.gpus[index])
            for stage, some in enumerate((forward, backward)):
                own_ns = times_ns[index, cluster.type_of_gpu[some.gpu], stage]
                assert (some.end_ns - some.start_ns == own_ns).all()
            assert (forward.start_ns >= ready).all()
            ends = dict(zip(forward.gpu, forward.end_ns, strict=True))
            assert all(task.start_ns >= ends[task.gpu] for task in backward)
            ready = int(backward.end_ns.max())
            assert len(message) == (len(_buckets(result, index)) if crosses else 0)
            for bucket in np.sort(message, order="start_ns"):
                assert bucket["start_ns"] >= ready
                ready = int(bucket["end_ns"])


def _buckets(result: Result, job: int) -> list[int]:
    """Return the bytes of each message of an iteration: full buckets, the last with the rest."""
    whole, bucket = result.workload[job].gradient_bytes, result.settings.bucket_bytes
    if bucket is None or whole <= bucket:
        return [whole]
    rest = whole % bucket
    return [bucket] * (whole // bucket) + ([rest] if rest else [])


def _links(result: Result, job: int) -> dict[tuple[str, int], float]:
    """Return the job's servers, and the uplinks of its racks if it has several, by factor."""
    cluster = result.settings.cluster
    servers = cluster.servers_of(result.gpus[job])
    racks = {cluster.server_rack[server] for server in servers}
    links = {("server", server): 1.0 for server in servers}
    return links | {("rack", rack): cluster.uplinks[rack] for rack in racks if len(racks) > 1}


def check_bytes(result: Result, tasks: Records) -> None:
    """Integrate each message's rate over its life: its bytes were sent, but for rounding."""
    network = result.settings.network
    messages = np.sort(tasks[tasks.kind == COMMUNICATION], order="start_ns")
    columns = ["start_ns", "end_ns", "job", "iteration"]
    turns: dict[tuple[int, int], int] = defaultdict(int)
    for start, end, job, iteration in messages[columns].tolist():
        servers = len(result.settings.cluster.servers_of(result.gpus[job]))
        weight = network.byte_weight(servers)
        meets = (messages["start_ns"] < end) & (messages["end_ns"] > start)
        others = messages[meets][columns[:3]].tolist()
        begin = start + network.latency_ns(servers)
        times = sorted({begin, end} | {t for o in others for t in o[:2] if begin < t < end})
        sent, changes = 0.0, len(times)
        for low, high in itertools.pairwise(times):
            running = [other for first, last, other in others if first <= low < last]
            sent += (high - low) * _speed(result, job, running) / weight
        size = _buckets(result, job)[turns[job, iteration]]
        turns[job, iteration] += 1
        # Each change of rate rounds an end up by less than 1 ns and keeps it at least 1 ns away.
        slack = (changes + 1) * 2 / (weight * network.cost_ns_per_byte(1)) + 1e-6 * size
        assert abs(sent - size) <= slack, (sent, size)


def _speed(result: Result, job: int, running: list[int]) -> float:
    """Return the bytes per ns of a job's message among those of the running jobs, its own too."""
    network = result.settings.network
    if not network.messages_meet:
        return 1 / network.b_ns_per_byte
    links = {other: _links(result, other) for other in running}
    factors = {link: factor for own in links.values() for link, factor in own.items()}
    users = {link: {other for other in running if link in links[other]} for link in factors}
    # What a link carries in all: k messages at its cost(k) each.
    carries = {
        link: len(own) / (factors[link] * network.cost_ns_per_byte(len(own)))
        for link, own in users.items()
    }
    if network.law == "busiest":
        return min(carries[link] / len(users[link]) for link in links[job])
    # All messages become faster together; those on a link that is full stay as they are.
    speed: dict[int, float] = {}
    while job not in speed:
        room = {
            link: (carries[link] - sum(speed.get(other, 0.0) for other in own))
            / len(own - speed.keys())
            for link, own in users.items()
            if own - speed.keys()
        }
        full = min(room, key=room.__getitem__)
        speed |= dict.fromkeys(users[full] - speed.keys(), room[full])
    return speed[job]


def check_admission(result: Result, tasks: Records) -> None:
    """No server and no uplink ever carries more messages than the admission allows."""
    most = {
        "ada-dual": 2,
        "interleave": 1,
        "srsf:1": 1,
        "srsf:2": 2,
        "srsf:3": 3,
    }.get(result.settings.admission)
    if most is None or not result.settings.network.messages_meet:
        return
    changes: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for message in tasks[tasks.kind == COMMUNICATION]:
        for link in _links(result, message.job):
            changes[link] += [(int(message.start_ns), 1), (int(message.end_ns), -1)]
    for on_link in changes.values():
        running = 0
        for _, change in sorted(on_link):
            running += change
            assert running <= most


def check_busy_time(result: Result, tasks: Records) -> None:
    busy = np.zeros(result.settings.cluster.gpus, np.int64)
    for kind in (FORWARD, BACKWARD):
        some = tasks[tasks.kind == kind]
        np.add.at(busy, some.gpu, some.end_ns - some.start_ns)
    assert busy.tolist() == result.gpu_busy_ns.tolist()
    makespan = int(result.finish_ns.max() - result.arrival_ns.min())
    assert result.summary.average_gpu_utilization == (busy / makespan).mean()
    uses = result.use_by_type
    assert sum(use.busy_ns for use in uses) == busy.sum()
    assert sum(use.energy_j for use in uses) == result.summary.energy_j
    idle_j = sum((use.gpus * makespan - use.busy_ns) / 1e9 * use.gpu.idle_w for use in uses)
    assert math.isclose(result.summary.energy_j, result.energy_j.sum() + idle_j, rel_tol=1e-9)
