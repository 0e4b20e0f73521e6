"""How the time of a run grows with the cluster, with the jobs and with their iterations.

python benchmarks/cost/cost.py measure   # each series until a run takes 60 s; about 20 minutes
python benchmarks/cost/cost.py report    # writes the figure of the documentation, prints its table
python benchmarks/cost/cost.py table     # prints the table

The workload is the paper's recipe, under the paper's policy. A slope is the exponent of a power law
fitted to the upper half of a series: 1 means that twice the size takes twice the time.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import headway

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = Path(__file__).parent / "data" / "runs.csv"
DOCS = Path(__file__).parents[2] / "docs"
FIGURE = DOCS / "pictures" / "cost.svg"
SEED = 7
LIMIT_S = 60.0
ACCURACY = 0.01
FACTORS = tuple(2**power for power in range(14))


@dataclass(frozen=True)
class Series:
    """Something that grows: the recipe and the cluster at each factor."""

    name: str
    title: str
    unit: str
    start: int  # in that unit, at factor 1


SERIES = (
    Series("cluster", "Cluster and jobs together", "GPUs", 64),
    Series("jobs", "Jobs, arriving at the same rate", "jobs", 160),
    Series("iterations", "Iterations of each job", "iterations of an average job", 3_500),
)
MODES = ("exact", "sampled")


@dataclass(frozen=True)
class Run:
    """One run: a row of the data."""

    series: str
    factor: int
    mode: str
    tasks: int
    wall_s: float  # of the whole run, set-up and summary included


def measure() -> None:
    """Run what the data does not have yet; a series ends with the first run over the limit."""
    headway.simulate(headway.generate_workload("paper", jobs=8), accuracy=ACCURACY)  # compiles
    runs = read_runs()
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    if not RUNS.exists():
        _append([field.name for field in fields(Run)])
    for series in SERIES:
        for mode in MODES:
            known = {
                run.factor: run for run in runs if (run.series, run.mode) == (series.name, mode)
            }
            for factor in FACTORS:
                run = known.get(factor)
                if run is None:
                    run = _run(series, factor, mode)
                    _append(astuple(run))
                    print(run, flush=True)
                if run.wall_s > LIMIT_S:
                    break


def _run(series: Series, factor: int, mode: str) -> Run:
    from headway.workload.generate import PRESETS

    recipe, cluster = PRESETS["paper"], "16x4"
    if series.name == "cluster":
        recipe, cluster = replace(recipe, jobs=recipe.jobs * factor), f"{16 * factor}x4"
    elif series.name == "jobs":
        recipe = replace(recipe, jobs=recipe.jobs * factor, span_s=recipe.span_s * factor)
    else:
        low, high = recipe.iterations
        recipe = replace(recipe, iterations=(low * factor, high * factor))
    workload = headway.generate_workload(recipe, SEED)
    accuracy = ACCURACY if mode == "sampled" else None
    tasks, times_s = 0, [math.inf]
    while len(times_s) == 1 or (times_s[-1] < 1 and len(times_s) < 6):  # short runs are noisy
        began = time.perf_counter()
        result = headway.simulate(workload, cluster, accuracy=accuracy)
        times_s.append(time.perf_counter() - began)
        tasks = result.summary.simulated_tasks
    return Run(series.name, factor, mode, tasks, round(min(times_s), 4))


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
                series=row["series"],
                factor=int(row["factor"]),
                mode=row["mode"],
                tasks=int(row["tasks"]),
                wall_s=float(row["wall_s"]),
            )
            for row in csv.DictReader(file)
        ]


def _points(runs: Sequence[Run], series: Series, mode: str) -> list[Run]:
    found = [run for run in runs if (run.series, run.mode) == (series.name, mode)]
    return sorted(found, key=lambda run: run.factor)


def slope(points: Sequence[Run]) -> float:
    """Return the exponent of the power law that fits the upper half of a series best."""
    import numpy as np

    upper = points[len(points) // 2 :] if len(points) > 3 else points
    factors = [math.log(run.factor) for run in upper]
    return float(np.polyfit(factors, [math.log(run.wall_s) for run in upper], 1)[0])


def _seconds(time_s: float) -> str:
    return f"{time_s:,.1f} s" if time_s >= 1 else f"{time_s:.2f} s"


def markdown(runs: Sequence[Run]) -> str:
    """Return the table of the documentation."""
    rows = [
        "| what grows | | at 1x | largest run | its tasks | its time | slope |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for series in SERIES:
        for mode in MODES:
            points = _points(runs, series, mode)
            if not points:
                continue
            first, last = points[0], points[-1]
            size = f"{last.factor * series.start:,} {series.unit}"
            rows.append(
                f"| {series.title} | {mode} | {_seconds(first.wall_s)} | {size} | {last.tasks:,}"
                f" | {_seconds(last.wall_s)} | {slope(points):.2f} |"
            )
    return "\n".join(rows) + "\n"


def figure(runs: Sequence[Run]) -> Figure:
    """Draw the time of a run against its size, one panel for each series."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    from headway.figure_style import COLOURS, DASHES, INK, house_style

    with house_style():
        picture = Figure(figsize=(7.2, 2.9), layout="constrained", facecolor="white")
        panels = picture.subplots(1, len(SERIES), sharey=True)
        for axes, series in zip(panels, SERIES, strict=True):
            for mode, colour, dash in zip(MODES, COLOURS, DASHES, strict=False):
                points = _points(runs, series, mode)
                if points:
                    axes.plot(
                        [run.factor * series.start for run in points],
                        [run.wall_s for run in points],
                        color=colour,
                        linestyle=dash,
                        marker="o",
                        markersize=3,
                        label=f"{mode}, slope {slope(points):.2f}",
                    )
            axes.axhline(LIMIT_S, color=INK, linewidth=0.6, linestyle=":")
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(series.title)
            axes.set_xlabel(series.unit)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.legend(loc="upper left")
        panels[0].set(ylabel="time of a run (s)", ylim=(0.02, 10 * LIMIT_S))  # room for legends
    return picture


def main() -> None:
    """Measure, or write what the documentation shows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("measure", "report", "table"))
    arguments = parser.parse_args()
    if arguments.action == "measure":
        measure()
        return
    runs = read_runs()
    if arguments.action == "table":
        print(markdown(runs), end="")
        return
    from headway.figure_style import save_figure

    FIGURE.parent.mkdir(exist_ok=True)
    save_figure(figure(runs), FIGURE)
    print(markdown(runs), end="")


if __name__ == "__main__":
    main()
