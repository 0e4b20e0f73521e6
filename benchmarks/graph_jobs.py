"""Measure jobs whose iterations are graphs: `python benchmarks/graph_jobs.py`.

The paper's jobs as overlapped DDP with six buckets, and pipelines of 32 ranks and 16 microbatches:
with GPUs of their own, sharing them, and 1,000 on 1,024 GPUs. CPU seconds of a run and million
tasks a second, event by event and accelerated; the plain jobs are the baseline.
"""

from __future__ import annotations

import time
from functools import cache

from headway import Graph, Job, Workload, generate_workload, simulate
from headway.graphs import Layer, ddp, pipeline

BUCKETS = 6
POLICIES = ("paper", "headway")


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


def main(repeats: int = 3) -> None:
    """Print a row for each run: the least CPU time of some repeats."""

    def measure(name: str, workload: Workload, cluster: str, policy: str, *levels: str) -> None:
        for level in levels:
            best_s = float("inf")
            simulate(Workload(workload.jobs[:1]), cluster, policy=policy)  # Compiles, if need be.
            for _ in range(repeats):
                began = time.process_time()
                summary = simulate(
                    workload,
                    cluster,
                    policy=policy,
                    acceleration=level,  # type: ignore[arg-type]
                ).summary
                best_s = min(best_s, time.process_time() - began)
            speed = summary.simulated_tasks / best_s / 1e6
            print(
                f"  {name:40}{policy:10}{level:>5}{summary.simulated_tasks:>15,}{best_s:>8.2f}"
                f"{speed:>8.1f}"
            )

    print("\nJobs with graphs")
    print(f"{'':57}{'tasks':>15}{'CPU s':>8}{'M/s':>8}")
    plain = generate_workload("paper")
    measure("the paper's workload", plain, "16x4", "paper", "none", "full")
    overlapped_ddp = overlapped_workload(plain)
    for policy in POLICIES:
        measure("overlapped DDP, 6 buckets", overlapped_ddp, "16x4", policy, "none", "full")
    few, many = pipelines(16, 200, 0.05), pipelines(1_000, 20, 0.05)
    measure("8 pipelines at once", pipelines(8, 200, 0.1), "16x8", "paper", "none", "full")
    for policy in POLICIES:
        measure("16 pipelines at once", few, "16x8", policy, "none", "full")
        measure("1,000 pipelines at once, 20 iterations", many, "128x8", policy, "none", "full")
    alone = pipelines(1_000, 1_000, 20)
    measure("1,000 pipelines, 1,000 iterations", alone, "128x8", "paper", "full")


if __name__ == "__main__":
    main()
