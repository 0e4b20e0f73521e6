"""The metrics of docs/model.md, computed from the job records after a run."""

from __future__ import annotations

import numpy as np

from headway.domain.cluster import Cluster
from headway.domain.compute_times import ComputeTimes
from headway.domain.records import Records
from headway.domain.workload import Workload
from headway.results.schema import Summary
from headway.results.usage import Integers, use_by_type


def gpu_busy_ns(
    jobs: Records, seats: Records, gpu_count: int, seat_ns: Integers | None = None
) -> Integers:
    """Return how long each GPU computed: all iterations of all jobs that it held.

    `seat_ns` is the compute time of one iteration on each seat; the default is the job's own times.
    """
    busy = np.zeros(gpu_count, np.int64)
    if seat_ns is None:
        seat_ns = np.repeat(jobs.forward_ns + jobs.backward_ns, jobs.gpus)
    np.add.at(busy, seats.gpu, np.repeat(jobs.iterations, jobs.gpus) * seat_ns)
    return busy


def seat_compute_ns(
    workload: Workload, times: ComputeTimes, seats: Records, cluster: Cluster
) -> Integers:
    """Return one iteration's compute time on each seat: all its tasks on its GPU's type."""
    counts = [job.gpus for job in workload]
    owner, types = np.repeat(np.arange(len(counts)), counts), cluster.type_of_gpu[seats.gpu]
    seat_ns: Integers = times.times_ns.sum(axis=2)[owner, types]
    first = 0
    for job, on_types in zip(workload, times.graph_times_ns, strict=True):
        if job.graph is not None and on_types is not None:
            expanded = job.graph.expanded
            task_types = types[first : first + job.gpus][expanded.task_rank]
            task_ns = on_types[task_types, expanded.task_entry]
            np.add.at(seat_ns, first + expanded.task_rank, task_ns)
        first += job.gpus
    return seat_ns


def summarize(
    jobs: Records,
    cluster: Cluster,
    busy_ns: Integers,
    tasks: int,
    wall_s: float,
    skipped_tasks: int = 0,
    estimated_tasks: int = 0,
) -> Summary:
    """Return the key figures of a run, without margins; some skipped tasks may be estimated."""
    jct_s = (jobs.finish_ns - jobs.arrival_ns) / 1e9
    makespan_ns = int(jobs.finish_ns.max() - jobs.arrival_ns.min())
    utilization = float((busy_ns / makespan_ns).mean())
    return Summary(
        average_jct_s=float(jct_s.mean()),
        average_jct_margin_s=0.0,
        median_jct_s=float(np.median(jct_s)),
        p95_jct_s=float(np.percentile(jct_s, 95)),
        makespan_s=makespan_ns / 1e9,
        makespan_margin_s=0.0,
        average_gpu_utilization=utilization,
        energy_j=sum(use.energy_j for use in use_by_type(cluster, busy_ns, makespan_ns)),
        simulated_tasks=tasks,
        skipped_tasks=skipped_tasks - estimated_tasks,
        sampled_share=estimated_tasks / tasks,
        wall_s=wall_s,
    )
