"""Average JCT of the paper's policy and of `headway` as the cluster grows.

python benchmarks/growth/growth.py measure   # about 25 minutes on one core
python benchmarks/growth/growth.py report    # writes the table and the figure of the documentation
python benchmarks/growth/growth.py table     # prints the table

The workload is the paper's recipe, scaled. The first five settings give a cluster 2.5 jobs per GPU
within 1,200 s, as the paper does, so that the load stays the same as the cluster grows. The last
setting is a long run instead of a burst: 10,000 jobs (10 per GPU) within 20,000 s. Job sizes (1 to
32 GPUs), iterations, models and network are the paper's throughout. None of the seeds was looked at
while `headway` was designed (see `benchmarks/policies.py`).
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import headway

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headway.domain.estimates import Estimate

RUNS = Path(__file__).parent / "data" / "runs.csv"
DOCS = Path(__file__).parents[2] / "docs"
TABLE, FIGURE = DOCS / "policies" / "measured" / "growth.md", DOCS / "pictures" / "growth.svg"
FIRST_SEED = 5000
SEEDS = 5
POLICIES = ("paper", "headway")


@dataclass(frozen=True)
class Setting:
    """A cluster, and how many jobs arrive on it within how many seconds."""

    cluster: str
    jobs: int
    span_s: int = 1200

    @property
    def gpus(self) -> int:
        """How many GPUs the cluster has."""
        servers, gpus = self.cluster.split("x")
        return int(servers) * int(gpus)


SETTINGS = (
    Setting("16x4", 160),
    Setting("32x4", 320),
    Setting("64x4", 640),
    Setting("128x4", 1280),
    Setting("125x8", 2500),
    Setting("125x8", 10_000, 20_000),
)


@dataclass(frozen=True)
class Run:
    """One simulated run: a row of the data."""

    cluster: str
    jobs: int
    span_s: int
    seed: int
    policy: str
    average_jct_s: float
    makespan_s: float
    wall_s: float


def measure(seeds: int) -> None:
    """Run what the data does not have yet, one run at a time."""
    done = {(run.cluster, run.jobs, run.span_s, run.seed, run.policy) for run in read_runs()}
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    if not RUNS.exists():
        _append([field.name for field in fields(Run)])
    for setting in SETTINGS:
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            for policy in POLICIES:
                if (*astuple(setting), seed, policy) not in done:
                    _append(astuple(_run(setting, seed, policy)))


def _run(setting: Setting, seed: int, policy: str) -> Run:
    from headway.workload.generate import PRESETS

    recipe = replace(PRESETS["paper"], jobs=setting.jobs, span_s=setting.span_s)
    workload = headway.generate_workload(recipe, seed)
    started = time.perf_counter()
    summary = headway.simulate(workload, setting.cluster, policy=policy).summary
    return Run(
        **asdict(setting),
        seed=seed,
        policy=policy,
        average_jct_s=summary.average_jct_s,
        makespan_s=summary.makespan_s,
        wall_s=round(time.perf_counter() - started, 2),
    )


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
                cluster=row["cluster"],
                jobs=int(row["jobs"]),
                span_s=int(row["span_s"]),
                seed=int(row["seed"]),
                policy=row["policy"],
                average_jct_s=float(row["average_jct_s"]),
                makespan_s=float(row["makespan_s"]),
                wall_s=float(row["wall_s"]),
            )
            for row in csv.DictReader(file)
        ]


@dataclass(frozen=True)
class Outcome:
    """What the two policies reach in one setting, with 95% intervals over seeds."""

    setting: Setting
    seeds: int
    paper: Estimate
    headway: Estimate
    ratio: Estimate


def outcomes(runs: Sequence[Run]) -> list[Outcome]:
    """Compare the policies, seed by seed, in every setting that has at least three seeds."""
    import numpy as np

    from headway.experiments.statistics import mean, paired_ratio

    found = []
    for setting in SETTINGS:
        by_policy = {
            policy: {
                run.seed: run.average_jct_s
                for run in runs
                if (run.cluster, run.jobs, run.span_s) == astuple(setting) and run.policy == policy
            }
            for policy in POLICIES
        }
        seeds = sorted(set.intersection(*map(set, by_policy.values())))
        if len(seeds) < 3:
            continue
        paper, ours = (np.array([by_policy[policy][s] for s in seeds]) for policy in POLICIES)
        ratio = paired_ratio(ours, paper)
        found.append(Outcome(setting, len(seeds), mean(paper), mean(ours), ratio))
    return found


def markdown(found: Sequence[Outcome]) -> str:
    """Return the table of the documentation."""
    rows = [
        "| cluster | GPUs | jobs | arrive within | seeds | `paper`: average JCT"
        " | `headway`: average JCT | ratio |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for outcome in found:
        setting = outcome.setting
        rows.append(
            f"| {setting.cluster} | {setting.gpus:,} | {setting.jobs:,} | {setting.span_s:,} s"
            f" | {outcome.seeds} | {_with_interval(outcome.paper, 0)} s"
            f" | {_with_interval(outcome.headway, 0)} s | {_with_interval(outcome.ratio, 3)} |"
        )
    return "\n".join(rows) + "\n"


def _with_interval(estimate: Estimate, digits: int) -> str:
    low, high = estimate.low, estimate.high
    return f"{estimate.value:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def figure(found: Sequence[Outcome]) -> Figure:
    """Draw the average JCT of both policies in every setting."""
    import numpy as np
    from matplotlib.figure import Figure

    from headway.figure_style import COLOURS, INK, house_style

    with house_style():
        picture = Figure(figsize=(7.2, 3.4), layout="constrained", facecolor="white")
        axes = picture.add_subplot()
        # Set the long run apart: its load differs from that of the others.
        gap = [0.5 if outcome.setting.span_s != 1200 else 0 for outcome in found]
        centres = np.arange(len(found)) + np.array(gap)
        width = 0.38
        for side, (policy, colour) in enumerate(zip(POLICIES, COLOURS[1::-1], strict=True)):
            estimates = [getattr(outcome, policy) for outcome in found]
            values = np.array([estimate.value for estimate in estimates])
            errors = [
                [estimate.value - estimate.low for estimate in estimates],
                [estimate.high - estimate.value for estimate in estimates],
            ]
            axes.bar(
                centres + (side - 0.5) * width,
                values,
                width * 0.94,
                yerr=errors,
                color=colour,
                error_kw={"ecolor": INK, "elinewidth": 0.8, "capsize": 2},
                label={"paper": "the paper's policy", "headway": "headway"}[policy],
            )
            for centre, estimate in zip(centres, estimates, strict=True):
                axes.annotate(
                    f"{estimate.value:,.0f}",
                    (centre + (side - 0.5) * width, estimate.high),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7,
                )
        axes.set_xticks(centres, [_label(outcome.setting) for outcome in found])
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylabel("average JCT (s)")
        axes.set_title("Average job completion time as the cluster grows, lower is better")
        axes.legend(loc="upper left", fontsize=8)
    return picture


def _label(setting: Setting) -> str:
    return f"{setting.gpus:,} GPUs\n{setting.jobs:,} jobs\nin {setting.span_s:,} s"


def main() -> None:
    """Measure, or write what the documentation shows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("measure", "report", "table"))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds per setting (%(default)s)")
    arguments = parser.parse_args()
    if arguments.action == "measure":
        measure(arguments.seeds)
        return
    found = outcomes(read_runs())
    if arguments.action == "table":
        print(markdown(found), end="")
        return
    from headway.figure_style import save_figure

    TABLE.write_text(markdown(found))
    FIGURE.parent.mkdir(exist_ok=True)
    save_figure(figure(found), FIGURE)


if __name__ == "__main__":
    main()
