"""From a workload, a cluster and a network to arrays, with every check that needs all three."""

from __future__ import annotations

import math

import numpy as np

from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.limits import LONGEST_NS, MOST_BYTES, whole
from headway.domain.records import GPU, JOB, SERVER, SYSTEM, zeros
from headway.domain.workload import Workload
from headway.engine.state import RULES, State, make_state
from headway.network.contention import NetworkModel
from headway.policies.presets import ChosenPolicies

_INT64_MAX = 2**63 - 1

MOST_SEATS = 2**27
"""GPUs of all jobs together; a seat and a link take 32 bytes."""


def prepare(
    workload: Workload,
    cluster: Cluster,
    network: NetworkModel,
    policies: ChosenPolicies,
    seed: int,
    bucket_bytes: int | None,
    timeline_rows: int,
) -> State:
    """Return the state before the first instant, or say why the workload cannot run."""
    whole(seed, "seed", 0, _INT64_MAX)
    _check_jobs_fit(workload, cluster)
    _check_ranges(workload, cluster, network)

    system = zeros(1, SYSTEM)
    system.seed[:] = seed
    system.a_ns[:] = network.a_ns
    system.b_ns_per_byte[:] = network.b_ns_per_byte
    system.eta_ns_per_byte[:] = network.eta_ns_per_byte
    system.contends[:] = network.contends
    system.bucket_bytes[:] = MOST_BYTES if bucket_bytes is None else bucket_bytes

    jobs = zeros(len(workload), JOB)
    for name in (
        "arrival_ns",
        "gpus",
        "iterations",
        "forward_ns",
        "backward_ns",
        "gradient_bytes",
        "memory_bytes",
    ):
        jobs[name] = [getattr(job, name) for job in workload]

    gpus = zeros(cluster.gpus, GPU)
    gpus.free_bytes[:] = cluster.gpu_memory_bytes
    gpus.server[:] = np.arange(cluster.gpus) // cluster.gpus_per_server
    servers = zeros(cluster.servers, SERVER)
    servers.first_gpu[:] = np.arange(cluster.servers) * cluster.gpus_per_server
    servers.gpus[:] = cluster.gpus_per_server
    rules = zeros(1, RULES)
    rules.placement_parameter[:] = policies.placement.parameter
    rules.priority_parameter[:] = policies.priority.parameter
    rules.admission_parameter[:] = policies.admission.parameter
    rules.placement_steady[:] = policies.placement.policy.steady
    rules.admission_steady[:] = policies.admission.policy.steady
    return make_state(system, jobs, servers, gpus, rules, timeline_rows)


def _check_jobs_fit(workload: Workload, cluster: Cluster) -> None:
    """Refuse a job that an empty cluster could not hold."""
    for index, job in enumerate(workload):
        if job.gpus > cluster.gpus:
            raise workload.error(
                index, f"{job.gpus:,} GPUs, but the cluster has {cluster.gpus:,} in all.", "gpus"
            )
        if job.memory_bytes > cluster.gpu_memory_bytes:
            raise workload.error(
                index,
                f"needs {job.memory_bytes / 2**20:,.10g} MB on each GPU, but a GPU has "
                f"{cluster.gpu_memory_bytes / 2**20:,.10g} MB.",
                "memory_mb",
            )


def _check_ranges(workload: Workload, cluster: Cluster, network: NetworkModel) -> None:
    """Refuse what could leave int64 (a message's time, a server's load) or int32 (seats)."""
    seats = sum(job.gpus for job in workload)
    if seats > MOST_SEATS:
        raise InputError(
            f"the jobs ask for {seats:,} GPUs in all; the engine can count {MOST_SEATS:,}.",
            source=workload.source,
        )
    slowest = network.cost_ns_per_byte(len(workload))
    services = []
    for index, job in enumerate(workload):
        service_ns = job.forward_ns + job.backward_ns
        if job.gpus > 1:
            if network.a_ns + job.gradient_bytes * slowest > LONGEST_NS:
                raise workload.error(
                    index,
                    f"a message of {job.gradient_bytes:,} bytes among {len(workload):,} jobs' "
                    "could take over 73 years.",
                    "gradient_mb",
                )
            service_ns += network.a_ns + math.floor(network.b_ns_per_byte * job.gradient_bytes)
        services.append(job.iterations * service_ns * job.gpus)
    smallest = max(1, min(job.memory_bytes for job in workload))
    jobs_per_gpu = max(1, min(len(workload), cluster.gpu_memory_bytes // smallest))
    most_load = sum(sorted(services)[-jobs_per_gpu:]) * cluster.gpus_per_server
    if most_load > _INT64_MAX:
        largest = max(range(len(services)), key=services.__getitem__)
        raise workload.error(
            largest,
            "too many: with the other jobs that its GPUs may hold at once, more work on a server "
            f"({most_load / 3.6e12:.3g} GPU hours) than the engine can add up "
            f"({_INT64_MAX / 3.6e12:.3g}).",
            "iterations",
        )
