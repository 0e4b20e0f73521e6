"""Measure what acceleration is worth, and large traces: `python benchmarks/scale.py [TRACE …]`.

Every figure stands beside the same run with acceleration off, where that ends in reasonable time.
A trace is a workload file (`headway workload import` makes one) with the cluster to run it on, such
as `philly.csv=552x4`, or `philly.csv=1250x8:100000` for that number of jobs: the first of the trace
are repeated, or the last left out. Figures that are worth keeping go to docs/performance.md.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import time
from dataclasses import replace

from headway import Cluster, Workload, generate_workload, read_workload, simulate
from headway.domain.job import Job
from headway.engine.setup import ACCELERATIONS, Acceleration
from headway.workload.generate import PRESETS

PAPER = PRESETS["paper"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", metavar="TRACE.csv=CLUSTER")
    parser.add_argument("--repeats", type=int, default=5, help="0: the traces alone")
    arguments = parser.parse_args()
    if arguments.repeats > 0:
        steps(arguments.repeats)
        iterations(arguments.repeats)
        large()
    for trace in arguments.traces:
        path, _, rest = trace.rpartition("=")
        shape, _, jobs = rest.partition(":")
        workload = read_workload(path)
        row(path, resized(workload, int(jobs or len(workload))), Cluster.parse(shape))


def wall_s(workload: Workload, cluster: Cluster, acceleration: Acceleration, repeats: int) -> float:
    runs = [
        simulate(workload, cluster, acceleration=acceleration).summary.wall_s
        for _ in range(repeats)
    ]
    return min(runs)


def steps(repeats: int) -> None:
    print(
        "The paper's workload, 16x4, lwf:1 with ada-srsf: seconds, million tasks/s, ratio to none"
    )
    for seed in (0, 1):
        workload = generate_workload("paper", seed=seed)
        tasks = simulate(workload).summary.simulated_tasks
        none = 0.0
        for acceleration in ACCELERATIONS:
            best = wall_s(workload, Cluster(), acceleration, repeats)
            none = none or best
            print(
                f"  seed {seed}, {acceleration:6}{best:>8.3f}{tasks / best / 1e6:>8.1f}"
                f"{none / best:>8.2f}"
            )


def resized(workload: Workload, jobs: int) -> Workload:
    """Return this number of jobs, by arrival; the first come twice if there are too few."""
    missing = max(0, jobs - len(workload))
    again = [replace(job, job_id=f"again-{job.job_id}") for job in workload.jobs[:missing]]
    ordered = sorted([*workload.jobs, *again], key=lambda job: job.arrival_ns)
    return Workload(ordered[:jobs])


def times_ten(workload: Workload) -> Workload:
    """Return the same jobs with ten times the iterations."""
    return Workload([replace(job, iterations=10 * job.iterations) for job in workload])


def iterations(repeats: int) -> None:
    print("\nTen times the iterations: seconds at 1x and 10x, ratio; ratio with acceleration off")
    ratios = []
    for seed in range(5):
        workload = generate_workload("paper", seed=seed)
        once = wall_s(workload, Cluster(), "full", repeats)
        more = wall_s(times_ten(workload), Cluster(), "full", max(1, repeats // 2))
        ratios.append(more / once)
        plain = wall_s(times_ten(workload), Cluster(), "none", 1)
        plain /= wall_s(workload, Cluster(), "none", repeats)
        print(f"  paper, seed {seed}{once:>8.3f}{more:>8.3f}{more / once:>8.2f}{plain:>8.2f}")
    print(f"  mean{statistics.mean(ratios):>32.2f}")


def large() -> None:
    print(
        "\nThe paper's mix: jobs, GPUs, tasks, seconds of the engine, seconds in all, peak memory"
    )
    for jobs, servers in ((250, 3), (500, 6), (1_000, 12), (2_000, 25)):
        row(f"load 0.7, {servers}x8", many(jobs, servers * 8), Cluster(servers, 8))


def many(jobs: int, gpus: int) -> Workload:
    """Return jobs of the paper's mix that load this number of GPUs to 0.7 while they arrive."""
    drawn = generate_workload(replace(PAPER, jobs=jobs))
    work_ns = sum(job.gpus * job.iterations * (job.forward_ns + job.backward_ns) for job in drawn)
    span_ns = int(work_ns / gpus / 0.7)
    scale = span_ns / max(job.arrival_ns for job in drawn)
    moved: list[Job] = [replace(job, arrival_ns=int(job.arrival_ns * scale)) for job in drawn]
    return Workload(sorted(moved, key=lambda job: job.arrival_ns))


def row(name: str, workload: Workload, cluster: Cluster) -> None:
    gc.collect()
    began = time.perf_counter()
    summary = simulate(workload, cluster).summary
    total = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {name:34}{len(workload):>8,}{cluster.gpus:>7,}{summary.simulated_tasks:>18,}"
        f"{summary.wall_s:>8.2f}{total:>8.2f}{peak:>7.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    main()
