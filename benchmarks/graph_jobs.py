"""Measure jobs whose iterations are graphs: `python benchmarks/graph_jobs.py`.

The paper's jobs as overlapped DDP with six buckets, a 32-rank pipeline with 16 microbatches, and
1,000 such pipelines on 1,024 GPUs. CPU seconds of a run and million tasks a second, event by event
and accelerated; the plain jobs beside it are the baseline.
"""

from __future__ import annotations

import time
from functools import cache

from headway import Graph, Job, Workload, generate_workload, simulate
from headway.graphs import Layer, ddp, pipeline

BUCKETS = 6


@cache
def overlapped(gpus: int, forward_ns: int, backward_ns: int, gradient_bytes: int) -> Graph:
    """Return DDP whose backward pass is cut into equal parts, each with a bucket."""
    part = gradient_bytes // BUCKETS
    layer = Layer(forward_ns // BUCKETS, backward_ns // BUCKETS, part)
    return ddp([layer] * BUCKETS, gpus, bucket_bytes=part, first_bucket_bytes=part)


def overlapped_workload(plain: Workload) -> Workload:
    """Return a workload's jobs with their gradients overlapped."""
    return Workload(
        [
            Job(
                job_id=job.job_id,
                arrival_ns=job.arrival_ns,
                gpus=job.gpus,
                iterations=job.iterations,
                memory_bytes=job.memory_bytes,
                graph=overlapped(job.gpus, job.forward_ns, job.backward_ns, job.gradient_bytes),
            )
            for job in plain
        ]
    )


def pipelines(count: int, iterations: int, every_s: float) -> Workload:
    """Return pipelines of 32 ranks and 16 microbatches that arrive one after the other."""
    layer = Layer(2_000_000, 4_000_000, activation_bytes=8 << 20)
    graph = pipeline([[layer]] * 32, 16)
    return Workload(
        [
            Job(
                job_id=str(index),
                arrival_ns=round(index * every_s * 1e9),
                gpus=32,
                iterations=iterations,
                memory_bytes=8 << 30,
                graph=graph,
            )
            for index in range(count)
        ]
    )


def measure(name: str, workload: Workload, cluster: str, levels: tuple[str, ...]) -> None:
    """Print a row for each level of acceleration, the best of three runs."""
    for level in levels:
        best_s = float("inf")
        for _ in range(3):
            began = time.process_time()
            summary = simulate(workload, cluster, acceleration=level).summary  # type: ignore[arg-type]
            best_s = min(best_s, time.process_time() - began)
        speed = summary.simulated_tasks / best_s / 1e6
        print(f"{name:42}{level:>6}{summary.simulated_tasks:>15,}{best_s:>9.2f}{speed:>9.1f}")


def main() -> None:
    print(f"{'':42}{'':>6}{'tasks':>15}{'CPU s':>9}{'M/s':>9}")
    both = ("none", "full")
    plain = generate_workload("paper")
    measure("the paper's workload", plain, "16x4", both)
    measure("overlapped DDP, 6 buckets", overlapped_workload(plain), "16x4", both)
    measure("8 pipelines of 32 ranks at once", pipelines(8, 200, 0.1), "16x8", both)
    measure(
        "1,000 pipelines, 1,000 iterations each", pipelines(1_000, 1_000, 20), "128x8", ("full",)
    )


if __name__ == "__main__":
    main()
