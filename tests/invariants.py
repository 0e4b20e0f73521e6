"""What must hold of every run, whatever the policies; checked from the timeline alone."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from graph_nodes import expansion_of, latency_ns, nodes_of, size_bytes
from headway.domain.cluster import Cluster
from headway.domain.compute_times import compute_times
from headway.domain.graph import Graph
from headway.domain.records import COMMUNICATION, COMPUTE, Records
from headway.policies.registry import NEEDED_FIRST
from headway.results.schema import Result
from oracle import Node

MessageId = tuple[int, int]
"""A message: its job, and its node in the job's graph, or -1."""


def check_invariants(result: Result, tasks: Records) -> None:
    """Assert everything below."""
    check_times(result, tasks)
    check_gpus_run_one_task_at_a_time(tasks)
    check_room(result)
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


def check_room(result: Result) -> None:
    """Jobs fit into the memory of their GPUs, and those that are exclusive are alone there."""
    changes: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    cluster = result.settings.cluster
    for job, start, finish, gpus in zip(
        result.workload, result.start_ns, result.finish_ns, result.gpus, strict=True
    ):
        assert len(set(gpus)) == job.gpus
        for gpu in gpus:
            # A job that leaves at an instant makes room for one placed at that instant.
            alone = int(cluster.exclusive or job.exclusive)
            changes[gpu].append((int(start), 1, job.memory_bytes, alone))
            changes[gpu].append((int(finish), -1, -job.memory_bytes, -alone))
    for gpu, on_gpu in changes.items():
        holders = taken = exclusive = 0
        for _, jobs, memory_bytes, alone in sorted(on_gpu):
            holders, taken, exclusive = holders + jobs, taken + memory_bytes, exclusive + alone
            assert taken <= cluster.gpu_types[cluster.type_of_gpu[gpu]].memory_bytes
            assert not exclusive or holders == 1


def check_order_of_tasks(result: Result, tasks: Records) -> None:
    """Each task and message exactly once in an iteration, after all that it waits for."""
    times = compute_times(result.workload, result.settings.cluster)
    for index, job in enumerate(result.workload):
        own = tasks[tasks.job == index]
        started = int(result.start_ns[index])
        for iteration in range(job.iterations):
            mine = own[own.iteration == iteration]
            if job.graph is None:
                started = _check_plain_iteration(result, index, mine, started, times.times_ns)
            else:
                task_ns = times.graph_times_ns[index]
                started = _check_graph_iteration(result, index, mine, started, job.graph, task_ns)
        assert started == result.finish_ns[index]
        assert set(own.iteration) == set(range(job.iterations))


def _check_plain_iteration(
    result: Result, job: int, mine: Records, ready: int, times_ns: Any
) -> int:
    """Forward, backward on each GPU, barrier, message; return when it ended."""
    cluster = result.settings.cluster
    assert (mine.node == -1).all()
    assert set(mine.kind) <= {0, 1, 2}
    forward, backward, message = (mine[mine.kind == kind] for kind in range(3))
    assert sorted(forward.gpu) == sorted(backward.gpu) == list(result.gpus[job])
    for stage, some in enumerate((forward, backward)):
        own_ns = times_ns[job, cluster.type_of_gpu[some.gpu], stage]
        assert (some.end_ns - some.start_ns == own_ns).all()
    assert (forward.start_ns >= ready).all()
    ends = dict(zip(forward.gpu, forward.end_ns, strict=True))
    assert all(task.start_ns >= ends[task.gpu] for task in backward)
    return _check_buckets(result, (job, -1), message, int(backward.end_ns.max()))


def _check_graph_iteration(
    result: Result, job: int, mine: Records, started: int, graph: Graph, times_ns: Any
) -> int:
    """Return when the iteration ended: when all its tasks and messages had."""
    gpus, cluster, expansion = result.gpus[job], result.settings.cluster, expansion_of(graph)
    rows: dict[int, list[Any]] = defaultdict(list)
    for row in np.sort(mine, order="start_ns").view(np.recarray):
        rows[int(row.node)].append(row)
    assert set(rows) <= set(range(len(expansion.nodes)))
    ends: dict[Node, int] = {}
    while len(ends) < len(expansion.nodes):
        for node in expansion.nodes:
            if node in ends or not expansion.waits[node] <= ends.keys():
                continue
            ready = max([started, *(ends[other] for other in expansion.waits[node])])
            if node.is_message:
                found = np.array(rows[node.number], mine.dtype).view(np.recarray)
                assert all(found.kind == COMMUNICATION)
                ends[node] = _check_buckets(result, (job, node.number), found, ready)
            else:
                assert len(rows[node.number]) == 1
                (task,) = rows[node.number]
                (rank,) = node.ranks
                assert (task.kind, task.gpu) == (COMPUTE, gpus[rank])
                assert task.start_ns >= ready
                task_ns = times_ns[cluster.type_of_gpu[task.gpu], node.place]
                assert task.end_ns - task.start_ns == task_ns
                ends[node] = int(task.end_ns)
    return max(ends.values())


def _check_buckets(result: Result, message: MessageId, rows: Records, ready: int) -> int:
    """Check that a message was sent in its buckets, one after the other; return when it ended."""
    crosses = len(set(_rank_servers(result, message))) > 1
    assert len(rows) == (len(_buckets(result, message, len(rows))) if crosses else 0)
    for bucket in np.sort(rows, order="start_ns"):
        assert bucket["ready_ns"] == ready
        assert bucket["start_ns"] >= ready
        assert bucket["gpu"] == -1
        ready = int(bucket["end_ns"])
    return ready


def _node(result: Result, message: MessageId) -> Node | None:
    job, number = message
    graph = result.workload[job].graph
    return None if graph is None else nodes_of(graph)[number]


def _rank_servers(result: Result, message: MessageId) -> list[int]:
    """Return the server of each rank that a message is among."""
    gpus, node = result.gpus[message[0]], _node(result, message)
    servers = [int(server) for server in result.settings.cluster.server_of_gpu[list(gpus)]]
    return servers if node is None else [servers[rank] for rank in sorted(node.ranks)]


def _buckets(result: Result, message: MessageId, count: int) -> list[int]:
    """Return the bytes of each bucket of a message: full ones, the last with the rest.

    If buckets depend on what is shared the last may be longer, and `count` says how many there are.
    """
    node, bucket = _node(result, message), result.settings.bucket_bytes
    if node is None:
        whole = result.workload[message[0]].gradient_bytes
    else:
        ring = result.settings.network.ring_size is not None
        whole = size_bytes(node.entry, _rank_servers(result, message), ring)
    if bucket is None or whole <= bucket:
        return [whole]
    if result.settings.buckets_if_shared and 1 <= count <= -(-whole // bucket):
        return [bucket] * (count - 1) + [whole - bucket * (count - 1)]
    rest = whole % bucket
    return [bucket] * (whole // bucket) + ([rest] if rest else [])


def _links(result: Result, message: MessageId) -> dict[tuple[str, int], float]:
    """Return a message's rails and uplinks by the factor on the cost of its bytes there."""
    cluster, gpus, node = result.settings.cluster, result.gpus[message[0]], _node(result, message)
    ranks = range(len(gpus)) if node is None else node.ranks
    links: dict[tuple[str, int], float] = defaultdict(float)
    servers = _rank_servers(result, message)
    for rank in ranks:
        server = int(cluster.server_of_gpu[gpus[rank]])
        first = sum(cluster.server_gpus[:server])
        rails = cluster.server_rails[server]
        rail = (gpus[rank] - first) * rails // cluster.server_gpus[server]
        links["server", sum(cluster.server_rails[:server]) + rail] += 1 / servers.count(server)
    for tier, switches in zip(cluster.all_tiers, cluster.server_switches, strict=True):
        used = {switches[server] for server in servers}
        for switch in used if len(used) > 1 else ():
            links[tier.name, switch] = 1 / _capacity(cluster, tier.name, switch)
    return links


def _capacity(cluster: Cluster, name: str, switch: int) -> float:
    """Return how many rails' worth an uplink has."""
    tier = [tier.name for tier in cluster.all_tiers].index(name)
    oversubscription = math.prod(one.oversubscription for one in cluster.all_tiers[: tier + 1])
    below = [s for s, on in enumerate(cluster.server_switches[tier]) if on == switch]
    return sum(cluster.server_rails[server] for server in below) / oversubscription


def check_bytes(result: Result, tasks: Records) -> None:
    """Integrate each message's rate over its life: its bytes were sent, but for rounding."""
    network = result.settings.network
    messages = np.sort(tasks[tasks.kind == COMMUNICATION], order="start_ns")
    columns = ["start_ns", "end_ns", "job", "node", "iteration"]
    turns: dict[tuple[int, int, int], int] = defaultdict(int)
    counts = Counter(map(tuple, messages[["job", "node", "iteration"]].tolist()))
    for start, end, job, number, iteration in messages[columns].tolist():
        message, node = (job, number), _node(result, (job, number))
        servers = len(set(_rank_servers(result, message)))
        weight = network.byte_weight(servers)
        meets = (messages["start_ns"] < end) & (messages["end_ns"] > start)
        others = messages[meets][columns[:4]].tolist()
        entry = None if node is None else node.entry
        begin = start + latency_ns(entry, network.latency_ns(servers))
        times = sorted({begin, end} | {t for o in others for t in o[:2] if begin < t < end})
        sent, changes = 0.0, len(times)
        for low, high in itertools.pairwise(times):
            running = [(one[2], one[3]) for one in others if one[0] <= low < one[1]]
            sent += (high - low) * _speed(result, message, running) / weight
        count = counts[job, number, iteration]
        size = _buckets(result, message, count)[turns[job, number, iteration]]
        turns[job, number, iteration] += 1
        # Each change of rate rounds an end up by less than 1 ns and keeps it at least 1 ns away.
        slack = (changes + 1) * 2 / (weight * network.cost_ns_per_byte(1)) + 1e-6 * size
        assert abs(sent - size) <= slack, (sent, size)


def _speed(result: Result, message: MessageId, running: list[MessageId]) -> float:
    """Return the bytes per ns of a message among all that are in flight, itself included."""
    network = result.settings.network
    if not network.messages_meet:
        own = _links(result, message).items()
        rails = [factor for (kind, _), factor in own if kind == "server"]
        return 1 / (max(rails) * network.b_ns_per_byte)
    links = {other: _links(result, other) for other in running}
    factors = {link: factor for own in links.values() for link, factor in own.items()}
    users = {link: {other for other in running if link in links[other]} for link in factors}
    if network.law == "busiest":
        return min(
            1 / (factor * network.cost_ns_per_byte(len(users[link])))
            for link, factor in links[message].items()
        )
    # What a link carries in all: k messages at its cost(k) each.
    carries = {
        link: len(own) / (factors[link] * network.cost_ns_per_byte(len(own)))
        for link, own in users.items()
    }
    # All messages become faster together; those on a link that is full stay as they are.
    speed: dict[MessageId, float] = {}
    while message not in speed:
        room = {
            link: (carries[link] - sum(speed.get(other, 0.0) for other in own))
            / len(own - speed.keys())
            for link, own in users.items()
            if own - speed.keys()
        }
        full = min(room, key=room.__getitem__)
        speed |= dict.fromkeys(users[full] - speed.keys(), room[full])
    return speed[message]


def check_admission(result: Result, tasks: Records) -> None:
    """No server and no uplink ever has more messages than it carries and the admission allows."""
    most = {
        "ada-dual": 2,
        "interleave": 1,
        "srsf:1": 1,
        "srsf:2": 2,
        "srsf:3": 3,
    }.get(result.settings.admission.removesuffix(NEEDED_FIRST))
    if most is None or not result.settings.network.messages_meet:
        return
    changes: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for message in tasks[tasks.kind == COMMUNICATION]:
        for link in _links(result, (int(message.job), int(message.node))):
            changes[link] += [(int(message.start_ns), 1), (int(message.end_ns), -1)]
    for (kind, number), on_link in changes.items():
        carries, running = 1, 0
        if kind != "server":
            carries = max(1, math.floor(_capacity(result.settings.cluster, kind, number)))
        for _, change in sorted(on_link):
            running += change
            assert running <= most + carries - 1


def check_busy_time(result: Result, tasks: Records) -> None:
    busy = np.zeros(result.settings.cluster.gpus, np.int64)
    compute = tasks[tasks.kind != COMMUNICATION]
    np.add.at(busy, compute.gpu, compute.end_ns - compute.start_ns)
    assert busy.tolist() == result.gpu_busy_ns.tolist()
    makespan = int(result.finish_ns.max() - result.arrival_ns.min())
    assert result.summary.average_gpu_utilization == (busy / makespan).mean()
    uses = result.use_by_type
    assert sum(use.busy_ns for use in uses) == busy.sum()
    assert sum(use.energy_j for use in uses) == result.summary.energy_j
    idle_j = sum((use.gpus * makespan - use.busy_ns) / 1e9 * use.gpu.idle_w for use in uses)
    assert math.isclose(result.summary.energy_j, result.energy_j.sum() + idle_j, rel_tol=1e-9)
