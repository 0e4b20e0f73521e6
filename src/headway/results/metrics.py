"""The metrics of docs/model.md, from the jobs' records after a run."""

from __future__ import annotations

import numpy as np

from headway.domain.records import Records
from headway.results.schema import Integers, Summary


def gpu_busy_ns(jobs: Records, seats: Records, gpu_count: int) -> Integers:
    """Return how long each GPU computed: every iteration of every job that it held."""
    busy = np.zeros(gpu_count, np.int64)
    compute_ns = jobs.iterations * (jobs.forward_ns + jobs.backward_ns)
    np.add.at(busy, seats.gpu, np.repeat(compute_ns, jobs.gpus))
    return busy


def summarize(jobs: Records, busy_ns: Integers, messages: int, wall_s: float) -> Summary:
    """Return a run in a few figures."""
    jct_s = (jobs.finish_ns - jobs.arrival_ns) / 1e9
    makespan_ns = int(jobs.finish_ns.max() - jobs.arrival_ns.min())
    return Summary(
        average_jct_s=float(jct_s.mean()),
        median_jct_s=float(np.median(jct_s)),
        p95_jct_s=float(np.percentile(jct_s, 95)),
        makespan_s=makespan_ns / 1e9,
        average_gpu_utilization=float((busy_ns / makespan_ns).mean()),
        simulated_tasks=int((2 * jobs.iterations * jobs.gpus).sum()) + messages,
        wall_s=wall_s,
    )
