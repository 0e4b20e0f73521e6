"""Compare all policies on mixes of plain, DDP, FSDP, pipeline and MoE jobs.

python benchmarks/graph_mixes/graph_mixes.py measure   # about 20 minutes on one core
python benchmarks/graph_mixes/graph_mixes.py report    # writes the tables of docs/policies/

None of the seeds was looked at while policies that know graphs were designed; seeds below 100 were.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from mixed_workloads import Mix, draw_workload

from headway import NetworkModel, Workload, simulate
from headway.configuration import cluster_from
from headway.experiments.statistics import Sample, mean, paired_ratio
from headway.reports.tables import Table

RUNS = Path(__file__).parent / "data" / "runs.csv"
DOCS = Path(__file__).parents[2] / "docs" / "policies" / "measured"
FIRST_SEED = 5000
MEMORY_GB = 32.0

WITHOUT_ORDER = "least-delay+srtf+ada-dual@50/if-shared"
RIVALS = (
    "headway",
    WITHOUT_ORDER,
    "least-delay+srsf+ada-dual/needed-first@50/if-shared",
    "lwf:1+ada-srsf",
    "lwf:1+srtf+srsf:1@50",
    "consolidate+srtf+ada-dual@50",
    "apart+srtf+ada-dual@50",
)
POLICIES = (
    *RIVALS,
    "headway@0",
    "lwf:1+srtf+srsf:1/needed-first@50",
    "lwf:1+k-srsf",
    "lwf:1+srsf:1",
    "lwf:1+srsf:2",
    "lwf:1+srtf+srsf:1",
    "lwf:1+fifo+srsf:1",
    "lwf:1+smallest+srsf:1",
    "lwf:1+las+srsf:1",
    "lwf:1+2d-las:3600+srsf:1",
    "lwf:1+gpu-intensity+srsf:1",
    "lwf:1+srsf+interleave",
    "rand+srsf:1",
    "spread+srsf:1",
    "ls+srsf:1",
    "ff+srsf:1",
    "tiresias+srsf:1",
    "consolidate+srsf:1",
    "apart+srsf:1",
)
BOUND = "headway, no contention"

JOBS = {"plain": 30, "ddp": 14, "fsdp": 10, "pipeline": 12, "moe": 8}
LARGE = {kind: 3 * count for kind, count in JOBS.items()}


@dataclass(frozen=True)
class Setting:
    """Where policies are compared; GPUs have 32 GB."""

    cluster: str
    gbit: int
    mix: Mix
    policies: Sequence[str] = RIVALS
    seeds: int = 10

    @property
    def name(self) -> str:
        """What the tables call it."""
        jobs = sum(self.mix.jobs.values())
        return f"{self.cluster}, {self.gbit} Gbit/s; {jobs} jobs in {self.mix.span_s} s"

    @property
    def network(self) -> NetworkModel:
        """The paper's network, faster or as it is."""
        return NetworkModel(b_ns_per_byte=8.53 / self.gbit, eta_ns_per_byte=2.35 / self.gbit)


SETTINGS = (
    Setting("16x4", 10, Mix(JOBS, 450), POLICIES, 20),
    Setting("16x4", 100, Mix(JOBS, 270)),
    Setting("8x8", 25, Mix(JOBS, 340)),
    Setting("10x6", 25, Mix(JOBS, 400)),
    Setting("32x8", 100, Mix(LARGE, 220)),
    Setting("16x4", 10, Mix(JOBS, 4500)),
    Setting("16x4", 100, Mix(JOBS, 2700)),
)


@dataclass(frozen=True)
class Run:
    """One simulated run: a row of the data."""

    setting: str
    seed: int
    policy: str
    average_jct_s: float
    p95_jct_s: float
    makespan_s: float


def measure(setting: Setting) -> None:
    """Run what the data does not have yet, one run at a time."""
    done = {(run.setting, run.seed, run.policy) for run in read_runs()}
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    if not RUNS.exists():
        _append([field.name for field in fields(Run)])
    for seed in range(FIRST_SEED, FIRST_SEED + setting.seeds):
        workload = draw_workload(setting.mix, seed)
        for policy in (*setting.policies, BOUND):
            if (setting.name, seed, policy) not in done:
                _append(astuple(_run(setting, workload, seed, policy)))


def _run(setting: Setting, workload: Workload, seed: int, policy: str) -> Run:
    network, chosen = setting.network, policy
    if policy == BOUND:
        network, chosen = network.without_contention(), "headway@0"
    cluster = cluster_from(setting.cluster, MEMORY_GB)
    found = simulate(workload, cluster, network=network, policy=chosen, seed=seed).summary
    jct_s, p95_s, makespan_s = found.average_jct_s, found.p95_jct_s, found.makespan_s
    return Run(setting.name, seed, policy, jct_s, p95_s, makespan_s)


def _append(row: Sequence[object]) -> None:
    with RUNS.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(row)


def read_runs() -> list[Run]:
    """Return the runs measured so far."""
    if not RUNS.exists():
        return []
    with RUNS.open(newline="") as file:
        return [
            Run(
                row["setting"],
                int(row["seed"]),
                row["policy"],
                float(row["average_jct_s"]),
                float(row["p95_jct_s"]),
                float(row["makespan_s"]),
            )
            for row in csv.DictReader(file)
        ]


class Measured:
    """The runs of one setting that all its policies have, seed by seed."""

    def __init__(self, setting: Setting, runs: Sequence[Run]) -> None:
        self.setting = setting
        self.policies = (*setting.policies, BOUND)
        found = {
            (run.policy, run.seed): run
            for run in runs
            if run.setting == setting.name and run.policy in self.policies
        }
        seeds = {seed for _, seed in found}
        self.seeds = sorted(s for s in seeds if all((p, s) in found for p in self.policies))
        self._runs = found

    def sample(self, policy: str, metric: str = "average_jct_s") -> Sample:
        """Return a metric of a policy."""
        return np.array([getattr(self._runs[policy, seed], metric) for seed in self.seeds])

    def best(self, *without: str) -> str:
        """Return the policy with the least average JCT, the bound and some others left out."""
        rest = [policy for policy in self.setting.policies if policy not in without]
        return min(rest, key=lambda policy: float(self.sample(policy).mean()))


def table_of(measured: Measured, name: str) -> Table:
    """Return every policy in one setting, the best first."""
    rows = []
    ours = measured.sample("headway")
    for policy in sorted(measured.policies, key=lambda name: float(measured.sample(name).mean())):
        jct, ratio = mean(measured.sample(policy)), paired_ratio(measured.sample(policy), ours)
        rows.append(
            [
                f"`{policy}`" if policy != BOUND else BOUND,
                f"{jct.value:,.0f} ± {jct.margin:,.0f}",
                f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
                f"{measured.sample(policy, 'p95_jct_s').mean():,.0f}",
                f"{measured.sample(policy, 'makespan_s').mean():,.0f}",
            ]
        )
    header = (
        "policy",
        "average JCT [s]",
        "over headway",
        "95th percentile [s]",
        "makespan [s]",
    )
    caption = f"{measured.setting.name}, {_seeds(measured)}, 95% intervals"
    return Table(name, caption, header, rows)


def settings_table(all_measured: Sequence[Measured]) -> Table:
    """Return, for each setting, the preset against the best of the others."""
    rows = []
    for measured in all_measured:
        ours = measured.sample("headway")
        of_least_delay = [p for p in measured.setting.policies if p.startswith("least-delay")]
        best = measured.best("headway", "headway@0", *of_least_delay)
        ratios = [
            paired_ratio(ours, measured.sample(other))
            for other in (best, "lwf:1+ada-srsf", *of_least_delay)
        ]
        rows.append(
            [
                measured.setting.name,
                f"{len(measured.seeds)}",
                f"{ours.mean():,.0f}",
                f"{measured.sample(best).mean():,.0f} (`{best}`)",
                *(f"{each.value:.2f} ({each.low:.2f} to {each.high:.2f})" for each in ratios),
                f"{measured.sample(BOUND).mean():,.0f}",
            ]
        )
    header = (
        "setting",
        "seeds",
        "headway [s]",
        "best other placement [s]",
        "headway over it",
        "over the paper's",
        "over headway without needed-first",
        "over headway with srsf",
        "no contention [s]",
    )
    caption = f"Average JCT of mixes, seeds from {FIRST_SEED} on, 95% intervals"
    return Table("mixes-settings", caption, header, rows)


def _seeds(measured: Measured) -> str:
    return f"seeds {measured.seeds[0]} to {measured.seeds[-1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("measure", "report"))
    arguments = parser.parse_args()
    if arguments.action == "measure":
        for setting in SETTINGS:
            measure(setting)
        return
    runs = read_runs()
    measured = [Measured(setting, runs) for setting in SETTINGS]
    tables = [settings_table(measured), table_of(measured[0], "mixes-all")]
    for table in tables:
        (DOCS / f"{table.name}.md").write_text(table.to_markdown())


if __name__ == "__main__":
    main()
