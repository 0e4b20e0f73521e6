"""Measure Headway on this machine: `make bench`, or `python benchmarks/run.py --quick`.

Speed is tasks a second, and a ratio to the plain kernel of baseline.py run in turn with it, so that
a busy machine slows both. Figures that are worth keeping go to docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import graph_jobs
import sampling
from baseline import run_baseline

import headway
from headway import (
    Cluster,
    NetworkModel,
    PolicySet,
    Timeline,
    Workload,
    generate_workload,
    simulate,
)
from headway.workload.generate import PRESETS

PAPER = PRESETS["paper"]
COMMAND = [sys.executable, "-m", "headway"]

# A child starts with its parent's peak memory, so a small process must be the parent.
MEASURE = """
import resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], check=True)
wall_s = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, less growth")
    quick = parser.parse_args().quick
    repeats = 3 if quick else 9
    print(f"headway {headway.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    speed(repeats)
    features(repeats)
    graph_jobs.main(1 if quick else 3)
    starts(2 if quick else 5)
    contention((1, 2, 4) if quick else (1, 2, 4, 8), not quick)
    growth(1 if quick else 3, (2, 4) if quick else (2, 4, 8))
    print("\nSampled simulation, accuracy 1%")
    sampling.times_ten("1%", seeds=1 if quick else 4)
    sampling.coverage(4 if quick else 20, "1%")


def best(run: Callable[[], float], repeats: int) -> float:
    """Return the least of some times: what the code needs when the machine lets it."""
    return min(run() for _ in range(repeats))


def speed(repeats: int) -> None:
    print("\nThe paper's workload, 16x4, one thread: million tasks/s (median of ratios)")
    print(f"{'':34}{'tasks':>10}{'engine':>9}{'plain':>8}{'ratio':>8}")
    for seed in (0, 1):
        workload = generate_workload("paper", seed=seed)
        for scheduler in ("ada-srsf", "srsf:1", "srsf:2", "srsf:3"):
            policy = f"lwf:1+{scheduler}"
            result = simulate(workload, policy=policy)
            check = run_baseline(workload, Cluster(), NetworkModel(), scheduler)
            if check.finish_ns.tolist() != result.finish_ns.tolist():
                raise SystemExit("the engine and the plain kernel differ")
            engine, plain = [], []
            for _ in range(repeats):
                engine.append(simulate(workload, policy=policy).summary.wall_s)
                plain.append(run_baseline(workload, Cluster(), NetworkModel(), scheduler).wall_s)
            ratio = statistics.median(p / e for p, e in zip(plain, engine, strict=True))
            tasks = result.summary.simulated_tasks
            print(
                f"  seed {seed}, lwf:1, {scheduler:15}{tasks:>13,}"
                f"{tasks / min(engine) / 1e6:>9.1f}{tasks / min(plain) / 1e6:>8.1f}{ratio:>8.2f}"
            )


def features(repeats: int) -> None:
    workload = generate_workload("paper", seed=0)

    def timed(policy: PolicySet) -> float:
        return best(lambda: simulate(workload, policy=policy).summary.wall_s, repeats)

    def recorded() -> float:
        began = time.perf_counter()
        simulate(workload, timeline=Timeline())
        return time.perf_counter() - began

    def threads(count: int) -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda _: simulate(workload), range(8)))
        return time.perf_counter() - began

    paper = PolicySet.parse("paper")
    usual = timed(paper)
    print("\nRatios of time, paper's workload, seed 0, lwf:1 with ada-srsf")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(headway.__file__).with_name("policies")
        copies: dict[str, Any] = {}
        for kind, name, known in (
            ("placement", "lwf", "lwf"),
            ("admission", "ada_dual", "ada-dual"),
        ):
            text = (source / kind / f"{name}.py").read_text()
            path = Path(folder, f"own_{name}.py")
            path.write_text(text.replace(f'"{known}"', f'"own-{known}"'))
            copies[kind] = f"{path}:own-{known}" + (":1" if known == "lwf" else "")
        own = timed(paper.override(**copies))
    print(f"  own copies of lwf and ada-dual in files of their own   {own / usual:>6.2f}")
    print(f"  recording a timeline in memory                         {recorded() / usual:>6.2f}")
    one, two = best(lambda: threads(1), 2), best(lambda: threads(2), 2)
    print(f"  8 runs, one thread against two (higher is better)      {one / two:>6.2f}")


def starts(repeats: int) -> None:
    print("\n`headway simulate` of the paper's workload, start-up included: wall time, CPU time")
    with tempfile.TemporaryDirectory() as folder:
        for name, options in (("paper", []), ("graphs", ["--parallel", "ddp"])):
            subprocess.run(
                [*COMMAND, "workload", "generate", *options, "-o", f"{folder}/{name}.csv"],
                check=True,
                stderr=subprocess.DEVNULL,
            )
        others = ("headway", "spread+fifo+k-way", "apart+k-srsf")
        runs = [("first ever", "paper", "paper"), *[("warm", "paper", "paper")] * repeats]
        runs += [("first", "paper", policy) for policy in others]
        runs += [("first ever", "graphs", policy) for policy in ("paper", "headway")]
        for number, (name, workload, policy) in enumerate(runs):
            cache = f"{folder}/cache-{number}" if name == "first ever" else f"{folder}/cache-0"
            environment = {**os.environ, "HEADWAY_CACHE_DIR": cache}
            command = [
                *(*COMMAND, "simulate", f"{folder}/{workload}.csv", "-q", "--policy", policy),
                *("--json", f"{folder}/out.json"),
            ]
            done = subprocess.run(
                [sys.executable, "-c", MEASURE, *command],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=True,
                text=True,
            )
            wall_s, cpu_s, peak_kb = done.stdout.split()
            title = f"{name}, {policy}" + (", overlapped" if workload == "graphs" else "")
            print(
                f"  {title:34}{float(wall_s):>8.2f} s{float(cpu_s):>8.2f} s"
                f"{int(peak_kb) / 1024:>8.0f} MB peak"
            )


def contention(factors: tuple[int, ...], large: bool) -> None:
    print("\nMany messages that wait: the paper's mix, lwf:1 with ada-srsf, as the cluster grows")
    print(f"{'':34}{'tasks':>13}{'s':>8}{'M/s':>8}{'ratio':>8}")
    for factor in factors:
        workload = generate_workload(replace(PAPER, jobs=160 * factor))
        cluster = Cluster(servers=16 * factor)
        plain = run_baseline(workload, cluster, NetworkModel(), "ada-srsf")
        result = simulate(workload, cluster)
        if plain.finish_ns.tolist() != result.finish_ns.tolist():
            raise SystemExit("the engine and the plain kernel differ")
        wall_s = min(result.summary.wall_s, simulate(workload, cluster).summary.wall_s)
        name = f"{16 * factor}x4, {160 * factor:,} jobs"
        _contention_row(name, result.summary.simulated_tasks, wall_s, plain.wall_s / wall_s)
    if large:
        workload = generate_workload(replace(PAPER, jobs=10_000, span_s=20_000), seed=7)
        summary = simulate(workload, "125x8").summary
        _contention_row("125x8, 10,000 jobs", summary.simulated_tasks, summary.wall_s, None)


def _contention_row(name: str, tasks: int, wall_s: float, ratio: float | None) -> None:
    speed = tasks / wall_s / 1e6
    shown = "" if ratio is None else f"{ratio:>8.2f}"
    print(f"  {name:32}{tasks:>13,}{wall_s:>8.2f}{speed:>8.1f}{shown}")


def growth(repeats: int, factors: tuple[int, ...]) -> None:
    print("\nGrowth, lwf:1 with ada-srsf: seconds, million tasks/s, seconds against 1x")
    smaller = replace(PAPER, iterations=(250, 1500))

    def row(name: str, workload: Workload, cluster: Cluster, base: float | None) -> float:
        result = simulate(workload, cluster)
        wall_s = best(lambda: simulate(workload, cluster).summary.wall_s, repeats)
        tasks = result.summary.simulated_tasks
        grown = "" if base is None else f"{wall_s / base:>8.1f}x"
        print(f"  {name:34}{tasks:>13,}{wall_s:>8.2f}{tasks / wall_s / 1e6:>7.1f}{grown}")
        return wall_s

    base = row("1x", generate_workload(smaller), Cluster(), None)
    for factor in factors:
        more = replace(smaller, jobs=160 * factor, span_s=1200 * factor)
        row(f"{factor}x jobs, same rate", generate_workload(more), Cluster(), base)
    for factor in factors:
        more = replace(smaller, jobs=160 * factor)
        row(f"{factor}x jobs, same time", generate_workload(more), Cluster(), base)
    for factor in factors:
        row(f"{factor}x GPUs", generate_workload(smaller), Cluster(servers=16 * factor), base)
    for factor in factors:
        more = replace(smaller, jobs=160 * factor)
        large = Cluster(servers=16 * factor)
        row(f"{factor}x jobs and GPUs", generate_workload(more), large, base)
    for factor in factors:
        low, high = smaller.iterations
        more = replace(smaller, iterations=(factor * low, factor * high))
        row(f"{factor}x iterations", generate_workload(more), Cluster(), base)


if __name__ == "__main__":
    main()
