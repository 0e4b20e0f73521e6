"""Make the arrays of a simulation from a workload, a cluster and a network, and check them."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import chain
from typing import Literal

import numpy as np

from headway.domain.cluster import Cluster
from headway.domain.compute_times import ComputeTimes
from headway.domain.errors import InputError
from headway.domain.graph import Graph
from headway.domain.job import numeric_labels
from headway.domain.layout import lay_out_cluster
from headway.domain.limits import LONGEST_NS, MAX_BYTES, whole
from headway.domain.message_kinds import KINDS, message_size_bytes
from headway.domain.records import JOB, zeros
from headway.domain.workload import Workload
from headway.engine.compilation import (
    compile_ahead,
    compiled_graph_steps,
    compiled_policies,
    compiled_rare_steps,
)
from headway.engine.graph_layout import lay_out_graphs
from headway.engine.state import PACE, RULES, State, make_state
from headway.jit import Columns
from headway.network.contention import NetworkModel
from headway.network.system import make_system
from headway.policies.policy_set import Choices

_INT64_MAX = 2**63 - 1

MAX_SEATS = 2**27
"""GPUs of all jobs together; a seat and a link take 40 bytes."""

Acceleration = Literal["none", "fused", "solo", "full"]

ACCELERATIONS: tuple[Acceleration, ...] = ("none", "fused", "solo", "full")
"""What needs no events of its own: nothing; backward tasks, fused with their forward tasks; also
jobs that no other can delay; also sets of jobs that repeat what they did.
"""


def prepare(
    workload: Workload,
    cluster: Cluster,
    network: NetworkModel,
    policies: Choices,
    times: ComputeTimes,
    seed: int,
    bucket_bytes: int | None,
    acceleration: Acceleration,
    timeline_rows: int,
    window: int = 0,
    accuracy: float = 0.0,
    buckets_if_shared: bool = False,
) -> State:
    """Return the state before the first instant, or raise the reason why the workload cannot run.

    With a window, of this number of iterations of each job, sets of jobs that do not repeat are
    sampled.
    """
    check_inputs(workload, cluster, network, seed)
    _check_ranges(workload, cluster, network, times)

    system = make_system(network, seed, MAX_BYTES if bucket_bytes is None else bucket_bytes)
    jobs = zeros(len(workload), JOB)
    for name in ("arrival_ns", "gpus", "iterations", "gradient_bytes", "memory_bytes", "priority"):
        jobs[name] = [getattr(job, name) for job in workload]
    jobs.exclusive[:] = [cluster.exclusive or job.exclusive for job in workload]
    fastest = times.times_ns.sum(axis=2).argmin(axis=1)
    jobs.forward_ns[:], jobs.backward_ns[:] = times.times_ns[np.arange(len(jobs)), fastest].T
    paces = zeros(len(jobs) * len(cluster.gpu_types), PACE)
    paces.forward_ns[:], paces.backward_ns[:] = times.times_ns.reshape(-1, 2).T
    graphs = lay_out_graphs(workload, times)
    for index, graph in enumerate(graphs.sources):
        of_graph = graphs.of_job == index
        jobs.gradient_bytes[of_graph] = graph.total_size_bytes(network.ring_size is not None)
        jobs.forward_ns[of_graph] = graph.unit_ns(graphs.shortest_ns[index])

    gpus, servers, ports = lay_out_cluster(cluster)

    rules = zeros(1, RULES)
    rules.placement_parameter[:] = policies.placement.parameter
    rules.priority_parameter[:] = policies.priority.parameter
    rules.admission_parameter[:] = policies.admission.parameter
    rules.placement_steady[:] = policies.placement.policy.steady
    rules.admission_steady[:] = policies.admission.policy.steady
    rules.admission_by_port[:] = policies.admission.policy.by_port
    rules.reserves[:] = (jobs.priority > 0).any()
    rules.types[:] = len(cluster.gpu_types)
    skips = policies.may_be_skipped and timeline_rows == 0
    level = ACCELERATIONS.index(acceleration) if skips else 0
    rules.fuses[:] = level >= 1
    rules.skips_solo[:] = level >= 2
    rules.skips_sets[:] = level >= 3
    rules.window[:] = window if level >= 3 else 0
    rules.accuracy[:] = accuracy
    rules.buckets_if_shared[:] = buckets_if_shared
    some_graphs = len(graphs.graphs) > 0
    rules.needed_first[:] = policies.admission.needed_first and some_graphs
    compile_ahead([policies], some_graphs)
    return make_state(
        system,
        jobs,
        servers,
        gpus,
        ports,
        paces,
        graphs,
        rules,
        compiled_policies(policies),
        compiled_rare_steps(),
        compiled_graph_steps(some_graphs),
        timeline_rows,
        Columns(numeric_labels(workload.jobs)),
    )


def rows_of_an_instant(workload: Workload, cluster: Cluster) -> int:
    """Return the most rows of a timeline that an instant may add: tasks that end, placements."""
    return cluster.gpus + sum(job.message_count + job.gpus for job in workload)


def check_inputs(workload: Workload, cluster: Cluster, network: NetworkModel, seed: int) -> None:
    """Refuse what cannot be simulated together: soon, before anything is compiled for it."""
    whole(seed, "seed", 0, _INT64_MAX)
    _check_rails(cluster, network)
    _check_jobs_fit(workload, cluster)


def _check_rails(cluster: Cluster, network: NetworkModel) -> None:
    """Refuse a law that does not say how messages share rails of which they use different parts."""
    if network.law == "max-min" and max(cluster.server_rails) > 1:
        raise InputError(
            "the law max-min needs servers with one rail; use the law busiest, or one rail of the "
            "bandwidth of all.",
            field="network",
        )


def _check_jobs_fit(workload: Workload, cluster: Cluster) -> None:
    """Refuse a job that an empty cluster could not hold."""
    memories = sorted({gpu.memory_bytes for gpu in cluster.gpu_types})
    memory_of_gpu = np.array([gpu.memory_bytes for gpu in cluster.gpu_types])[cluster.type_of_gpu]
    room = {least: int((memory_of_gpu >= least).sum()) for least in memories}
    for index, job in enumerate(workload):
        if job.gpus > cluster.gpus:
            raise workload.error(
                index, f"{job.gpus:,} GPUs, but the cluster has {cluster.gpus:,} in all.", "gpus"
            )
        if job.memory_bytes > memories[-1]:
            raise workload.error(
                index,
                f"needs {_mb(job.memory_bytes)} on each GPU, but a GPU has "
                f"{'at most ' if len(memories) > 1 else ''}{_mb(memories[-1])}.",
                "memory_mb",
            )
        least = memories[bisect_left(memories, job.memory_bytes)]
        if job.gpus > room[least]:
            raise workload.error(
                index,
                f"{job.gpus:,} GPUs with {_mb(job.memory_bytes)} each, but the cluster "
                f"has {room[least]:,} of that size.",
                "gpus",
            )


def _check_ranges(
    workload: Workload, cluster: Cluster, network: NetworkModel, times: ComputeTimes
) -> None:
    """Refuse what could leave int64 (a message's time, a server's load) or int32 (seats)."""
    seats = sum(job.gpus for job in workload)
    if seats > MAX_SEATS:
        raise InputError(
            f"the jobs ask for {seats:,} GPUs in all; the engine can count {MAX_SEATS:,}.",
            source=workload.source,
        )
    messages = sum(job.message_count for job in workload)
    factor = max(chain([1.0], *cluster.uplinks))
    slowest = network.cost_ns_per_byte(messages) * factor
    services = []
    compute_ns = times.unit_ns.max(axis=1).tolist()
    sent: dict[int, tuple[int, int, int]] = {}  # Jobs often share a graph.
    for index, job in enumerate(workload):
        service_ns = compute_ns[index]
        if job.gpus > 1:
            most_servers = max(2, min(job.gpus, cluster.servers))
            a_ns, weight = network.latency_ns(most_servers), network.byte_weight(most_servers)
            if job.graph is None:
                largest, total, count = job.gradient_bytes, job.gradient_bytes, 1
            else:
                if id(job.graph) not in sent:
                    sent[id(job.graph)] = _sent_bytes(job.graph)
                largest, total, count = sent[id(job.graph)]
            if a_ns + largest * (weight * slowest) > LONGEST_NS:
                raise workload.error(
                    index,
                    f"a message of {largest:,} bytes among {messages:,} messages could take over "
                    "73 years.",
                    "gradient_mb" if job.graph is None else "graph",
                )
            own_cost = network.b_ns_per_byte
            if job.graph is not None:
                # Messages that share a link together send a byte in less than b + eta.
                own_cost = (network.b_ns_per_byte + network.eta_ns_per_byte) * factor
            service_ns += count * a_ns + math.floor(weight * own_cost * total)
        services.append(job.iterations * service_ns * job.gpus)
    smallest = max(1, min(job.memory_bytes for job in workload))
    largest_bytes = max(gpu.memory_bytes for gpu in cluster.gpu_types)
    jobs_per_gpu = max(1, min(len(workload), largest_bytes // smallest))
    most_load = sum(sorted(services)[-jobs_per_gpu:]) * max(cluster.server_gpus)
    if most_load > _INT64_MAX:
        largest = max(range(len(services)), key=services.__getitem__)
        raise workload.error(
            largest,
            "too many: with the other jobs that its GPUs may hold at once, more work on a server "
            f"({most_load / 3.6e12:.3g} GPU hours) than the engine can add up "
            f"({_INT64_MAX / 3.6e12:.3g}).",
            "iterations",
        )


def _sent_bytes(graph: Graph) -> tuple[int, int, int]:
    """Return a graph's largest message, all its bytes and the number of messages, at the most."""
    sizes = [
        message_size_bytes(KINDS.index(entry.kind), entry.buffer_bytes, len(group), True)
        for entry in graph.messages
        for group in entry.groups
    ]
    return max(sizes, default=0), sum(sizes), len(sizes)


def _mb(size: int) -> str:
    """Return a size in MB, or in bytes where MB would need many digits."""
    text = f"{size / 2**20:,.10g}"
    return f"{text} MB" if float(text.replace(",", "")) * 2**20 == size else f"{size:,} bytes"
