"""The tables of a sweep: figures by policy, cluster and whatever else varies between its runs.

A figure is the mean over all runs that share a cell, such as those of different seeds, with its 95%
confidence interval. A ratio pairs each run with the baseline policy's at the same coordinates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.domain.errors import InputError, did_you_mean
from headway.experiments import statistics
from headway.experiments.statistics import Estimate
from headway.experiments.sweep.specification import COORDINATES, Coordinate
from headway.experiments.wording import ratio_with_bounds, with_margin
from headway.reports.tables import Table
from headway.results.schema import margin_name, margin_of

if TYPE_CHECKING:
    import polars

METRICS = {
    "average_jct_s": "average JCT [s]",
    "median_jct_s": "median JCT [s]",
    "p95_jct_s": "95th-percentile JCT [s]",
    "makespan_s": "makespan [s]",
    "average_gpu_utilization": "GPU utilization",
    "energy_j": "energy [kWh]",
}
"""The figures that tables can show, with their titles."""

USUAL_VALUES = tuple(METRICS)[:5]
AXES = tuple(name for name in COORDINATES if name != "seed")
"""The axes that rows and columns can be grouped by."""

_WORDS = ("policy", "placement", "scheduler", "priority", "admission")
"""Axes whose labels are names, even if they differ in a number."""

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)")
_FEWEST_NUMBERS = 3
_MOST_LINES = 8

MAIN = "average_jct_s"
NONE = "–"

Label = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a table's rows and columns, and the figures in its cells."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[str, ...] = USUAL_VALUES


@dataclass(frozen=True, slots=True)
class Pivot:
    """One figure, or its ratio to the baseline's, for every row and column that has runs."""

    value: str
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    cells: Mapping[tuple[Label, Label], Estimate]
    """The interval of a single run is that of sampling; without it the bounds are NaN."""


def layout_of(
    frame: polars.DataFrame,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    values: Sequence[str] | None = None,
) -> Layout:
    """Return the requested layout; by default clusters are columns, all else that varies is rows.

    Raises:
        InputError: A name is unknown or given twice.
    """
    check_names(rows, columns, values)
    different = [axis for axis in AXES if frame[axis].n_unique() > 1]
    if columns is None:
        others = [axis for axis in different if axis != "cluster"]
        columns = ["cluster"] if "cluster" in different and others and not rows else []
        columns = [axis for axis in columns if axis not in (rows or ())]
    if rows is None:
        rows = [axis for axis in different if axis not in columns] or ["policy"]
    if len({*rows, *columns}) < len(rows) + len(columns):
        raise InputError("rows and columns must differ from each other.", field="rows")
    return Layout(tuple(rows), tuple(columns), tuple(values or USUAL_VALUES))


def check_names(
    rows: Sequence[str] | None, columns: Sequence[str] | None, values: Sequence[str] | None
) -> None:
    """Refuse names that no table of runs has."""
    for field, names, known in (
        ("rows", rows, AXES),
        ("columns", columns, AXES),
        ("value", values, tuple(METRICS)),
    ):
        for name in names or ():
            if name not in known:
                raise InputError(f"unknown name '{name}'.{did_you_mean(name, known)}", field=field)
    if len({*(rows or ()), *(columns or ())}) < len(rows or ()) + len(columns or ()):
        raise InputError("rows and columns must differ from each other.", field="rows")


def pivot(
    frame: polars.DataFrame, layout: Layout, value: str, baseline: str | None = None
) -> Pivot:
    """Return a figure by row and column; with a baseline, its ratio to that policy's."""
    policy = COORDINATES.index("policy")
    samples: dict[tuple[Label, Label], list[tuple[Coordinate, ...]]] = {}
    figures: dict[tuple[Coordinate, ...], float] = {}
    margins: dict[tuple[Coordinate, ...], float] = {}
    for run in frame.select(*COORDINATES, value, *_margins(frame, value)).iter_rows(named=True):
        point = tuple(run[axis] for axis in COORDINATES)
        figures[point], margins[point] = run[value], margin_of(run, value)
        samples.setdefault(_cell(run, layout), []).append(point)
    cells = {}
    for cell, points in samples.items():
        if baseline is None:
            sample = np.array([figures[point] for point in points])
            cells[cell] = statistics.mean(sample, margins[points[0]])
            continue
        pairs = [
            (point, other)
            for point in points
            if (other := (*point[:policy], baseline, *point[policy + 1 :])) in figures
        ]
        if pairs:
            sample, others = np.array([[figures[one] for one in pair] for pair in pairs]).T
            point, other = pairs[0]
            both = (0.0, 0.0) if point == other else (margins[point], margins[other])
            cells[cell] = statistics.paired_ratio(sample, others, margins=both)
    return Pivot(
        value,
        rows=tuple(dict.fromkeys(row for row, _ in samples)),
        columns=tuple(dict.fromkeys(column for _, column in samples)),
        cells=cells,
    )


@dataclass(frozen=True, slots=True)
class NumberAxis:
    """An axis of a table whose labels differ in one number, such as 10gbe, 25gbe and 100gbe."""

    title: str
    numbers: tuple[float, ...]
    """Ascending."""
    series: Mapping[Label, tuple[tuple[float, tuple[Label, Label]], ...]]
    """By the labels on all other axes: the numbers, and the cells at them."""


def number_axis(part: Pivot, layout: Layout) -> NumberAxis | None:
    """Return the axis over which lines can be drawn, if there is one.

    It has three numbers or more, the most of such axes, and there are few lines.
    """
    axes = (*layout.rows, *layout.columns)
    points = {(*row, *column): (row, column) for row, column in part.cells}
    best: NumberAxis | None = None
    for index, axis in enumerate(axes):
        labels = list(dict.fromkeys(point[index] for point in points))
        fewest = _FEWEST_NUMBERS if best is None else len(best.numbers) + 1
        if axis in _WORDS or len(labels) < fewest or (found := _numbers(labels)) is None:
            continue
        numbers, pattern = found
        series: dict[Label, list[tuple[float, tuple[Label, Label]]]] = {}
        for point, cell in points.items():
            name = (*point[:index], *point[index + 1 :])
            series.setdefault(name, []).append((numbers[point[index]], cell))
        if len(series) <= _MOST_LINES:
            best = NumberAxis(
                title=_title(axis) + ("" if pattern == "*" else f": {pattern}"),
                numbers=tuple(sorted(numbers.values())),
                series={name: tuple(sorted(cells)) for name, cells in series.items()},
            )
    return best


def _numbers(labels: Sequence[str]) -> tuple[dict[str, float], str] | None:
    """Return the number in each label and what is around it, if all else in them is the same."""
    divided = [_NUMBER.split(label) for label in labels]  # Every second part is a number.
    if len({len(parts) for parts in divided}) > 1:
        return None
    places = [place for place, parts in enumerate(zip(*divided, strict=True)) if len({*parts}) > 1]
    if len(places) != 1 or places[0] % 2 == 0:
        return None
    (place,) = places
    numbers = {label: float(parts[place]) for label, parts in zip(labels, divided, strict=True)}
    pattern = "".join([*divided[0][:place], "*", *divided[0][place + 1 :]])
    return (numbers, pattern) if len({*numbers.values()}) == len(labels) else None


def tables(
    frame: polars.DataFrame, layout: Layout, baseline: str, narrow: bool = False
) -> list[Table]:
    """Return the tables of a sweep: one with all figures or, with columns, one per figure.

    Narrow ones have ratios in a table of their own.
    """
    means = [pivot(frame, layout, value) for value in layout.values]
    compared = (MAIN,) if layout.values == USUAL_VALUES else layout.values
    ratios = [
        pivot(frame, layout, value, baseline) for value in compared if compares(frame, layout)
    ]
    if not layout.columns:
        caption = "Means with 95% intervals" if averaged_over(frame, layout) else "Figures"
        if not (narrow and ratios):
            return [_table("figures", caption, layout, means, ratios, baseline)]
        return [
            _table("figures", caption, layout, means, [], baseline),
            _table("ratios", f"Ratios to {baseline}", layout, [], ratios, ""),
        ]
    made = []
    for index, part in enumerate(means + ratios):
        is_ratio = index >= len(means)
        title = METRICS[part.value]
        caption = f"{_plain(part.value)}, ratio to {baseline}" if is_ratio else title
        made.append(
            Table(
                part.value + ("-ratio" if is_ratio else ""),
                caption[:1].upper() + caption[1:],
                (*map(_title, layout.rows), *(", ".join(column) for column in part.columns)),
                [
                    [*row, *(_text(part, row, column, is_ratio) for column in part.columns)]
                    for row in part.rows
                ],
                texts=len(layout.rows),
            )
        )
    return made


def _table(
    name: str,
    caption: str,
    layout: Layout,
    means: Sequence[Pivot],
    ratios: Sequence[Pivot],
    baseline: str,
) -> Table:
    """Return a table with a column for each figure and ratio; titles may name the baseline."""
    against = f", ratio to {baseline}" if baseline else ""
    titles = [METRICS[part.value] for part in means]
    titles += [f"{_plain(part.value)}{against}" for part in ratios]
    rows = [
        [
            *row,
            *(_text(part, row, (), is_ratio=False) for part in means),
            *(_text(part, row, (), is_ratio=True) for part in ratios),
        ]
        for row in [*means, *ratios][0].rows
    ]
    return Table(name, caption, (*map(_title, layout.rows), *titles), rows, texts=len(layout.rows))


def compares(frame: polars.DataFrame, layout: Layout) -> bool:
    """Return whether the layout separates several policies, so that ratios make sense."""
    separated = "policy" in (*layout.rows, *layout.columns)
    return separated and frame["policy"].n_unique() > 1


def averaged_over(frame: polars.DataFrame, layout: Layout) -> str:
    """Return in words what the means average over."""
    rest = [
        f"{count} {axis.replace('_', ' ')}s"
        for axis in COORDINATES
        if axis not in (*layout.rows, *layout.columns) and (count := frame[axis].n_unique()) > 1
    ]
    return " × ".join(rest)


def about_intervals(frame: polars.DataFrame, layout: Layout) -> str:
    """Return a sentence on the intervals of single runs, or nothing if there are none."""
    margins = _margins(frame, MAIN)
    if not margins or not (frame[margins[0]] > 0).any():
        return ""
    cells: dict[tuple[Label, Label], list[float]] = {}
    for run in frame.select(*COORDINATES, *margins).iter_rows(named=True):
        cells.setdefault(_cell(run, layout), []).append(margin_of(run, MAIN))
    alone = any(len(margins) == 1 and margins[0] > 0 for margins in cells.values())
    return statistics.OF_SAMPLING_ONLY if alone else ""


def _margins(frame: polars.DataFrame, value: str) -> list[str]:
    """Return the column with the margins of a figure, if there is one."""
    return [name for name in (margin_name(value),) if name in frame.columns]


def _plain(value: str) -> str:
    """Return a figure's title without its unit: a ratio has none."""
    return METRICS[value].partition(" [")[0]


def _title(axis: str) -> str:
    return axis.replace("_mb", " [MB]").replace("_gb", " [GB]").replace("_", " ")


def _cell(run: Mapping[str, Any], layout: Layout) -> tuple[Label, Label]:
    return _label(run, layout.rows), _label(run, layout.columns)


def _label(at: Mapping[str, Coordinate], axes: Sequence[str]) -> Label:
    def text(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return NONE if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    return tuple(text(at[axis]) for axis in axes)


def _text(part: Pivot, row: Label, column: Label, is_ratio: bool) -> str:
    """Return a cell as text."""
    if (row, column) not in part.cells:
        return NONE
    figure = part.cells[row, column]
    if is_ratio:
        return ratio_with_bounds(figure)
    if part.value == "average_gpu_utilization":
        margin = f" ± {100 * figure.margin:.1f}" if figure.has_interval else ""
        return f"{figure.value:.1%}{margin}"
    if part.value == "energy_j":
        return with_margin(figure, digits=2, unit=3.6e6)
    return with_margin(figure, digits=1)
