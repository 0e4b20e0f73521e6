"""Measure sampled simulation against exact: `python benchmarks/sampling.py [--workloads 100]`.

With `--bias`, measure only whether sampled results are too high or too low on average.

First the times of both on long runs. Then, for each of many random contended workloads of which
something was estimated: how far the sampled average JCT is from the exact one, and whether the
intervals hold the exact values. For scale, how far the exact average moves if the workload changes
a little: up to two iterations more for each job, or numbers of iterations drawn from a normal
distribution around its own, with a standard deviation of 0.2%. An estimate is hardly closer to the
exact value than that value is to its own neighbours. Last a trace, if given. Figures that are worth
keeping go to docs/performance.md.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
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
    parser.add_argument("--bias", action="store_true", help="measure the bias, and nothing else")
    arguments = parser.parse_args()
    if arguments.bias:
        biases(arguments.accuracy)
        return
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


def times_ten(accuracy: str, seeds: int = 10) -> None:
    print(
        "The paper's jobs with more iterations, 16x4; seconds, CPU seconds, and the largest change"
    )
    print("of the exact average JCT in three runs with up to two iterations more for each job")
    print(
        "policies           iterations  seed   exact  sampled  ratio  CPU ratio     error    margin"
        "   neighbours"
    )
    for policy in dict.fromkeys(POLICIES):
        simulate(lengthened(generate_workload("paper", jobs=40), 40), policy=policy, accuracy=0.01)
        for factor in (10, 50) if policy == "paper" else (10,):
            rows = [row(policy, factor, seed, accuracy) for seed in range(seeds)]
            ratio, cpu_ratio = np.sum(rows, axis=0)[[0, 2]] / np.sum(rows, axis=0)[[1, 3]]
            error, moved = np.median(rows, axis=0)[4:]
            print(
                f"{policy:20}{factor:>8}x   all{'':17}{ratio:>7.1f}{cpu_ratio:>11.1f}"
                f"{error:>10.2%}{'median':>10}{moved:>13.2%} median"
            )


def row(policy: str, factor: int, seed: int, accuracy: str) -> list[float]:
    """Print a line; return the times, the CPU times, the error and the neighbours' change."""
    workload = lengthened(generate_workload("paper", seed=seed), factor)
    exact, exact_s, exact_cpu_s = timed(workload, policy=policy)
    found, found_s, found_cpu_s = timed(workload, policy=policy, accuracy=accuracy)
    error = found.average_jct_s / exact.average_jct_s - 1
    margin = found.average_jct_margin_s / found.average_jct_s
    moved = sensitivity(exact, workload, two_more, "16x4", policy)
    print(
        f"{policy:20}{factor:>8}x{seed:>6}{exact_s:>8.2f}{found_s:>9.3f}{exact_s / found_s:>7.1f}"
        f"{exact_cpu_s / found_cpu_s:>11.1f}{error:>10.2%}{margin:>10.2%}{moved:>13.2%}",
        flush=True,
    )
    return [exact_s, found_s, exact_cpu_s, found_cpu_s, abs(error), moved]


def timed(workload: Workload, **options: Any) -> tuple[Summary, float, float]:
    """Return a summary, the seconds and the CPU seconds."""
    began, cpu_began = time.perf_counter(), time.process_time()
    summary = simulate(workload, **options).summary
    return summary, time.perf_counter() - began, time.process_time() - cpu_began


def two_more(draw: random.Random, iterations: int) -> int:
    return iterations + draw.randint(0, 2)


def more_or_fewer(draw: random.Random, iterations: int) -> int:
    return max(1, round(iterations * draw.gauss(1, 0.002)))


def changed(workload: Workload, change: Callable[[random.Random, int], int], seed: int) -> Workload:
    """Return a neighbour of a workload: the same jobs with other numbers of iterations."""
    draw = random.Random(seed)
    return Workload([replace(job, iterations=change(draw, job.iterations)) for job in workload])


def sensitivity(
    exact: Summary,
    workload: Workload,
    change: Callable[[random.Random, int], int],
    shape: str,
    policy: str,
) -> float:
    """Return the largest relative change of the exact average JCT in three changed workloads."""
    near = [changed(workload, change, seed) for seed in range(3)]
    averages_s = [simulate(one, shape, policy=policy).summary.average_jct_s for one in near]
    return max(abs(average_s / exact.average_jct_s - 1) for average_s in averages_s)


def biases(accuracy: str, seeds: int = 10, neighbours: int = 7) -> None:
    """Compare means of sampled and of exact results over a workload and its neighbours.

    In a mean, what the exact result of one of them owes to chance matters less.
    """
    print(f"Average JCT of the paper's jobs with ten times the iterations and {neighbours}")
    print("neighbours, up to two iterations more for each job; bias ± 95%, standard deviations")
    print(f"{'policies':20}{'seed':>6}{'bias':>11}{'':10}{'exact':>8}{'sampled':>9}")
    for policy in dict.fromkeys(POLICIES):
        rows = []
        for seed in range(seeds):
            workload = lengthened(generate_workload("paper", seed=seed), 10)
            near = [workload, *(changed(workload, two_more, draw) for draw in range(neighbours))]
            exact = averages(near, policy, None)
            sampled = averages(near, policy, accuracy) / exact.mean()
            exact /= exact.mean()
            error = np.hypot(exact.std(ddof=1), sampled.std(ddof=1)) / np.sqrt(len(near))
            rows.append((sampled.mean() - 1, error, exact.std(ddof=1), sampled.std(ddof=1)))
            _bias_row(policy, str(seed), *rows[-1])
        bias, error, exact_deviation, deviation = np.array(rows).T
        all_error = np.sqrt((error**2).sum()) / seeds
        deviations = [np.sqrt((each**2).mean()) for each in (exact_deviation, deviation)]
        _bias_row(policy, "all", bias.mean(), all_error, *deviations)


def averages(workloads: Sequence[Workload], policy: str, accuracy: str | None) -> Any:
    found = [simulate(one, policy=policy, accuracy=accuracy).summary for one in workloads]
    return np.array([summary.average_jct_s for summary in found])


def _bias_row(policy: str, seed: str, bias: float, error: float, *deviations: float) -> None:
    shown = "".join(f"{one:>9.2%}" for one in deviations)
    print(f"{policy:20}{seed:>6}{bias:>+11.2%} ± {1.96 * error:<6.2%}{shown}", flush=True)


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
    """Sample random workloads until this number of them had something to sample."""
    print("\nRandom contended workloads: error ± margin, sampled, and the largest of three changes")
    print("of the exact average with up to two iterations more, and with 0.2% more or fewer")
    rows: list[tuple[float, ...]] = []
    held: list[tuple[float, ...]] = []
    policies: list[str] = []
    seed = 0
    while len(rows) < count and seed < 10 * count:
        workload, shape, policy = random_workload(seed)
        seed += 1
        found = simulate(workload, shape, policy=policy, accuracy=accuracy)
        summary = found.summary
        if summary.sampled_share == 0:
            continue
        exact = simulate(workload, shape, policy=policy)
        true = exact.summary
        off_s = abs(summary.average_jct_s - true.average_jct_s)
        error = off_s / true.average_jct_s
        margin = summary.average_jct_margin_s / summary.average_jct_s
        two = sensitivity(true, workload, two_more, shape, policy)
        blur = sensitivity(true, workload, more_or_fewer, shape, policy)
        policies.append(policy)
        rows.append((error, margin, two, blur))
        held.append(
            (
                off_s <= summary.average_jct_margin_s,
                abs(summary.makespan_s - true.makespan_s) <= summary.makespan_margin_s,
                (np.abs(found.jct_s - exact.jct_s) <= found.jct_margin_s).mean(),
            )
        )
        print(
            f"  {seed - 1:>3} {shape:6}{policy:18}{len(workload):>4} jobs{error:>8.2%} ± "
            f"{margin:.2%}{summary.sampled_share:>6.0%}{two:>8.2%}{blur:>8.2%}"
            f"{'' if held[-1][0] else '  average outside'}"
            f"{'' if held[-1][1] else '  makespan outside'}",
            flush=True,
        )
    if not rows:
        raise SystemExit(f"nothing was estimated in {seed} workloads at an accuracy of {accuracy}")
    average, makespan, jobs = np.mean(np.array(held), axis=0)
    print(f"\nIntervals hold the exact average JCT of {average:.0%} of {len(rows)} workloads,")
    print(f"the makespan of {makespan:.0%}, and {jobs:.1%} of the jobs' completion times.")
    print(f"{seed - len(rows)} more had too few tasks, or repeated too well, to be estimated.")
    figures = np.array(rows)
    names = ("error", "margin", "two iterations more", "0.2% more or fewer")
    for name, values in zip(names, figures.T, strict=True):
        median, upper, high = np.percentile(values, [50, 75, 90])
        print(
            f"{name:20} mean {np.mean(values):.2%}, median {median:.2%}, 75% {upper:.2%}, "
            f"90% {high:.2%}; at most 1% in {np.mean(values <= 0.01):.0%}"
        )
    near, stays, steady = figures[:, 0] <= 0.01, figures[:, 2] <= 0.01, figures[:, 3] <= 0.01
    for name, some in (
        ("stays within 1%", stays & steady),
        ("moves with 0.2% alone", stays & ~steady),
        ("moves with two iterations", ~stays),
    ):
        found = (near & some).sum()
        print(f"exact average {name}: {some.sum()}, of which the error is at most 1% in {found}")
    for policy in dict.fromkeys(POLICIES):
        its = np.array([one == policy for one in policies])
        outside = (its & ~np.array(held)[:, 0].astype(bool)).sum()
        print(f"{policy}: {its.sum()}, error over 1% in {(its & ~near).sum()}, outside {outside}")


if __name__ == "__main__":
    main()
