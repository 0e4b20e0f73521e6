"""The metrics of docs/model.md, computed from the job records after a run."""

from __future__ import annotations

import numpy as np

from headway.domain.cluster import Cluster
from headway.domain.records import Records
from headway.results.schema import Summary
from headway.results.usage import Integers, use_by_type


def gpu_busy_ns(jobs: Records, seats: Records, gpu_count: int, seat_ns: Integers) -> Integers:
    """Return how long each GPU computed: all iterations of all jobs that it held.

    `seat_ns` is the compute time of one iteration on each seat.
    """
    busy = np.zeros(gpu_count, np.int64)
    np.add.at(busy, seats.gpu, np.repeat(jobs.iterations, jobs.gpus) * seat_ns)
    return busy


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
        sampled_share=estimated_tasks / max(1, tasks),
        wall_s=wall_s,
    )
