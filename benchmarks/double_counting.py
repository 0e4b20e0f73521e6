"""Measure what counting transfer progress twice does: `python benchmarks/double_counting.py`.

The paper's public artifact goes in ticks. In each, every waiting job that AdaDUAL considers asks
the running messages on its servers for their remaining bytes, and asking adds the bytes of the
elapsed tick to what was sent without moving the time of the last change, so that they are added
again. A message that w jobs ask goes 1 + w times as fast as the network model allows.

This is an approximation of that program in continuous time, in the plain kernel of baseline.py: a
byte costs cost(k) / (1 + w), where w counts the jobs whose all-reduce is ready but not admitted,
that share a server with the message, and that have no two messages on any of their servers
(Algorithm 2 refuses those without asking). A message is re-rated whenever its k or w changes,
and its latency is not sped up. Only Ada-SRSF asks. All else is docs/model.md, not the artifact:
its code is not used here, and its other differences from the paper's text are not made.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from baseline import run_baseline

from headway import Cluster, NetworkModel, generate_workload, simulate
from headway.experiments.statistics import Sample, mean, paired_ratio

THREADS = 2


class Method(NamedTuple):
    scheduler: str
    counts_twice: bool = False


REFERENCE = Method("srsf:1")
METHODS = {
    "Ada-SRSF": Method("ada-srsf"),
    "Ada-SRSF, counting twice": Method("ada-srsf", counts_twice=True),
    "SRSF(1)": REFERENCE,
}


class Outcome(NamedTuple):
    average_jct_s: float
    messages: int
    too_soon: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="how many workloads, at least 2")
    seeds = range(parser.parse_args().seeds)
    if len(seeds) < 2:
        parser.error("an interval needs at least 2 seeds")
    for memory_gb in (16, 32):
        table(memory_gb, seeds)


def table(memory_gb: int, seeds: range) -> None:
    print(f"\nThe paper's workload, 16x4, {memory_gb} GB, lwf:1, {len(seeds)} seeds, 95% intervals")
    print(f"{'':28}{'average JCT [s]':>18}{'ratio to SRSF(1)':>26}{'lower on':>12}{'too soon':>10}")
    cases = [(method, memory_gb, seed) for method in METHODS.values() for seed in seeds]
    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = list(pool.map(lambda case: run(*case), cases))
    rows = {
        method: outcomes[i * len(seeds) : (i + 1) * len(seeds)]
        for i, method in enumerate(METHODS.values())
    }
    reference = jct(rows[REFERENCE])
    for name, method in METHODS.items():
        sample = jct(rows[method])
        average, ratio = mean(sample), paired_ratio(sample, reference)
        too_soon = sum(o.too_soon for o in rows[method]) / sum(o.messages for o in rows[method])
        against = f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        lower = f"{(sample < reference).sum()} of {len(seeds)}"
        if method == REFERENCE:
            against = lower = ""
        print(
            f"  {name:26}{f'{average.value:,.0f} ± {average.margin:,.0f}':>18}"
            f"{against:>26}{lower:>12}{too_soon:>10.1%}"
        )


def jct(outcomes: list[Outcome]) -> Sample:
    return np.array([outcome.average_jct_s for outcome in outcomes])


def run(method: Method, memory_gb: int, seed: int) -> Outcome:
    """Simulate one seed; without the mistake, check that the engine finishes every job alike."""
    workload = generate_workload("paper", seed=seed)
    cluster = Cluster(gpu_memory_bytes=memory_gb * 2**30)
    outcome = run_baseline(
        workload, cluster, NetworkModel(), method.scheduler, counts_twice=method.counts_twice
    )
    if not method.counts_twice:
        exact = simulate(workload, cluster, policy=f"lwf:1+{method.scheduler}")
        if outcome.finish_ns.tolist() != exact.finish_ns.tolist():
            raise SystemExit("the engine and the plain kernel differ")
        if outcome.too_soon:
            raise SystemExit("a message ended before a + b * M")
    arrival_ns = np.array([job.arrival_ns for job in workload])
    average_jct_s = float((outcome.finish_ns - arrival_ns).mean()) / 1e9
    return Outcome(average_jct_s, outcome.messages, outcome.too_soon)


if __name__ == "__main__":
    main()
