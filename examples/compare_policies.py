"""Compare the paper's policies on its own workload: what `make demo` runs.

Each row is a mean over the same seeds; a seed gives every policy the same jobs.
"""

from __future__ import annotations

import argparse
import logging
import statistics
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.progress import track
from rich.table import Table

from headway import NetworkModel, Summary, generate_workload, simulate

RUNS = [
    ("rand", "ada-srsf"),
    ("ff", "ada-srsf"),
    ("ls", "ada-srsf"),
    ("lwf:1", "ada-srsf"),
    ("lwf:1", "srsf:1"),
    ("lwf:1", "srsf:2"),
    ("lwf:1", "srsf:3"),
]
"""Placement and scheduler, as in the paper's two tables of results."""


def main() -> None:
    """Run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="workloads 0 to SEEDS - 1")
    seeds = range(max(1, parser.parse_args().seeds))
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    console = Console()

    networks = {"contended": NetworkModel(), "free": NetworkModel().without_contention()}
    runs = [(*run, "contended") for run in RUNS] + [("lwf:1", "any", "free")]
    simulate(generate_workload("paper", seed=0))  # compile, if this is the first time

    def run_one(placement: str, scheduler: str, network: str, seed: int) -> Summary:
        return simulate(
            generate_workload("paper", seed=seed),
            "16x4",
            network=networks[network],
            placement=placement,
            scheduler="ada-srsf" if scheduler == "any" else scheduler,
            seed=seed,
        ).summary

    jobs = [(run, seed) for run in runs for seed in seeds]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(run_one, *run, seed) for run, seed in jobs]
        results = [
            f.result() for f in track(futures, "Simulating", console=console, transient=True)
        ]

    table = Table(
        title=f"The paper's 160 jobs on 16x4 GPUs; seconds, mean over {len(seeds)} seeds",
        title_justify="left",
        box=None,
    )
    for header in ("placement", "scheduler"):
        table.add_column(header, no_wrap=True)
    for header in ("average JCT", "median", "95th pct.", "makespan", "GPU use"):
        table.add_column(header, justify="right", no_wrap=True)
    for place, (placement, scheduler, network) in enumerate(runs):
        own = results[place * len(seeds) : (place + 1) * len(seeds)]

        def mean(field: str, rows: list[Summary] = own) -> float:
            return statistics.mean(float(getattr(row, field)) for row in rows)

        table.add_row(
            placement,
            scheduler if network == "contended" else "no contention",
            *(f"{mean(f'{name}_s'):,.1f}" for name in ("average_jct", "median_jct", "p95_jct")),
            f"{mean('makespan_s'):,.1f}",
            f"{mean('average_gpu_utilization'):.1%}",
        )
    console.print(table)
    tasks, seconds = sum(r.simulated_tasks for r in results), sum(r.wall_s for r in results)
    console.print(
        f"\n{len(results)} runs, {tasks / 1e6:,.0f} million tasks, {seconds:.1f} s in the engine.\n"
        "Seeds differ more than schedulers do: compare on the same seeds, and on many "
        "(--seeds 20).",
        highlight=False,
    )


if __name__ == "__main__":
    main()
