"""Measure sampled simulation against exact: `python benchmarks/sampling.py [--workloads 100]`.

First the CPU time of both on long runs. Then, for each of many random contended workloads: how far
the sampled average JCT is from the exact one, and whether the intervals hold the exact values. For
scale, how far the exact average moves if every job has up to two iterations more: an estimate is
hardly closer to the exact value than that value is to its own neighbours. Last a trace, if given.
Figures that are worth keeping go to docs/performance.md.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np

from headway import Summary, Workload, generate_workload, read_workload, simulate
from headway.workload.generate import PRESETS

PAPER = PRESETS["paper"]
POLICIES = ("paper", "paper", "lwf:1+srsf:1", "lwf:1+srsf:2", "headway", "ff+fifo+ada-dual")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=20)
    parser.add_argument("--accuracy", default="1%")
    parser.add_argument("--trace", metavar="FILE=CLUSTER", help="sample this trace as well")
    arguments = parser.parse_args()
    times_ten(arguments.accuracy)
    coverage(arguments.workloads, arguments.accuracy)
    if arguments.trace is not None:
        path, _, shape = arguments.trace.rpartition("=")
        began = time.perf_counter()
        summary = simulate(read_workload(path), shape, accuracy=arguments.accuracy).summary
        print(
            f"\n{path} on {shape}: average JCT {summary.average_jct_s:,.0f} s ± "
            f"{summary.average_jct_margin_s:,.0f} s, {summary.sampled_share:.0%} sampled, "
            f"{time.perf_counter() - began:.1f} s in all"
        )


def times_ten(accuracy: str, seeds: int = 4) -> None:
    print("The paper's jobs with more iterations, 16x4; CPU seconds")
    print("policies           iterations  seed   exact  sampled  ratio     error    margin")
    for policy in dict.fromkeys(POLICIES):
        simulate(lengthened(generate_workload("paper", jobs=40), 40), policy=policy, accuracy=0.01)
        for factor in (10, 50) if policy == "paper" else (10,):
            for seed in range(seeds):
                drawn = generate_workload("paper", seed=seed)
                name = f"{policy:20}{factor:>8}x{seed:>6}"
                row(name, lengthened(drawn, factor), policy, accuracy)


def row(name: str, workload: Workload, policy: str, accuracy: str) -> None:
    exact, exact_s = timed(workload, policy=policy)
    found, found_s = timed(workload, policy=policy, accuracy=accuracy)
    error = found.average_jct_s / exact.average_jct_s - 1
    margin = found.average_jct_margin_s / found.average_jct_s
    print(
        f"{name}{exact_s:>8.2f}{found_s:>9.3f}{exact_s / found_s:>7.1f}"
        f"{error:>10.2%}{margin:>10.2%}",
        flush=True,
    )


def timed(workload: Workload, **options: Any) -> tuple[Summary, float]:
    began = time.process_time()
    summary = simulate(workload, **options).summary
    return summary, time.process_time() - began


def lengthened(workload: Workload, factor: int) -> Workload:
    return Workload([replace(job, iterations=factor * job.iterations) for job in workload])


def random_workload(seed: int) -> tuple[Workload, str, str]:
    """Return jobs that contend, a cluster and policies."""
    draw = random.Random(seed)
    servers = draw.choice([4, 8, 16])
    jobs = draw.randint(3, 10) * servers
    recipe = replace(
        PAPER,
        jobs=jobs,
        span_s=draw.choice([60, 1200, 6000]),
        iterations=(20_000, draw.choice([100_000, 300_000])),
    )
    return generate_workload(recipe, seed=seed), f"{servers}x4", draw.choice(POLICIES)


def coverage(count: int, accuracy: str) -> None:
    print("\nRandom contended workloads: error ± margin, change with two iterations more, sampled")
    errors, changes, held, margins = [], [], [], []
    for seed in range(count):
        workload, shape, policy = random_workload(seed)
        exact = simulate(workload, shape, policy=policy)
        found = simulate(workload, shape, policy=policy, accuracy=accuracy)
        draw = random.Random(seed)
        longer = Workload(
            [replace(job, iterations=job.iterations + draw.randint(0, 2)) for job in workload]
        )
        changed = simulate(longer, shape, policy=policy).summary
        true, summary = exact.summary, found.summary
        errors.append(abs(summary.average_jct_s / true.average_jct_s - 1))
        changes.append(abs(changed.average_jct_s / true.average_jct_s - 1))
        margins.append(summary.average_jct_margin_s / summary.average_jct_s)
        held.append(
            (
                abs(summary.average_jct_s - true.average_jct_s) <= summary.average_jct_margin_s,
                abs(summary.makespan_s - true.makespan_s) <= summary.makespan_margin_s,
                (np.abs(found.jct_s - exact.jct_s) <= found.jct_margin_s).mean(),
            )
        )
        print(
            f"  {seed:>3} {shape:6}{policy:18}{len(workload):>4} jobs{errors[-1]:>8.2%} ± "
            f"{margins[-1]:.2%}{changes[-1]:>8.2%}{summary.sampled_share:>6.0%}"
            f"{'' if held[-1][0] else '  average outside'}"
            f"{'' if held[-1][1] else '  makespan outside'}",
            flush=True,
        )
    average, makespan, jobs = np.mean(np.array(held, float), axis=0)
    print(f"\nintervals hold the exact average JCT of {average:.0%} of {count} workloads,")
    print(f"the makespan of {makespan:.0%}, and {jobs:.1%} of the jobs' completion times")
    for name, values in (("error", errors), ("margin", margins), ("two iterations more", changes)):
        quartiles = np.percentile(values, [50, 75, 90])
        within = np.mean(np.array(values) <= 0.01)
        print(
            f"{name:20} mean {np.mean(values):.2%}, median {quartiles[0]:.2%}, "
            f"75% {quartiles[1]:.2%}, 90% {quartiles[2]:.2%}; at most 1% in {within:.0%}"
        )


if __name__ == "__main__":
    main()
