"""The metrics of docs/model.md, from the jobs' records after a run."""

from __future__ import annotations

import numpy as np

from headway.domain.cluster import Cluster
from headway.domain.records import Records
from headway.results.schema import Integers, Summary


def gpu_busy_ns(jobs: Records, seats: Records, gpu_count: int) -> Integers:
    """Return how long each GPU computed: every iteration of every job that it held."""
    busy = np.zeros(gpu_count, np.int64)
    compute_ns = jobs.iterations * (jobs.forward_ns + jobs.backward_ns)
    np.add.at(busy, seats.gpu, np.repeat(compute_ns, jobs.gpus))
    return busy


def energy_j(cluster: Cluster, makespan_s: float, utilization: float) -> float:
    """Return what all GPUs draw over the makespan: busy watts while they compute, else idle."""
    more_w = cluster.gpu_busy_w - cluster.gpu_idle_w
    return cluster.gpus * makespan_s * (cluster.gpu_idle_w + more_w * utilization)


def summarize(
    jobs: Records, cluster: Cluster, busy_ns: Integers, messages: int, wall_s: float
) -> Summary:
    """Return a run in a few figures."""
    jct_s = (jobs.finish_ns - jobs.arrival_ns) / 1e9
    makespan_ns = int(jobs.finish_ns.max() - jobs.arrival_ns.min())
    utilization = float((busy_ns / makespan_ns).mean())
    return Summary(
        average_jct_s=float(jct_s.mean()),
        median_jct_s=float(np.median(jct_s)),
        p95_jct_s=float(np.percentile(jct_s, 95)),
        makespan_s=makespan_ns / 1e9,
        average_gpu_utilization=utilization,
        energy_j=energy_j(cluster, makespan_ns / 1e9, utilization),
        simulated_tasks=int((2 * jobs.iterations * jobs.gpus).sum()) + messages,
        wall_s=wall_s,
    )
