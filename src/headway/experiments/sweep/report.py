"""A sweep as one HTML page: a picture and tables per workload, and how to repeat it."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.domain.errors import InputError
from headway.experiments.sweep.pivot import (
    MAIN,
    METRICS,
    Label,
    Layout,
    NumberAxis,
    Pivot,
    about_intervals,
    averaged_over,
    compares,
    layout_of,
    number_axis,
    pivot,
    tables,
)
from headway.experiments.sweep.store import read_runs
from headway.figure_style import COLOURS, DASHES, INK, house_style, label_lines, label_width
from headway.files import check_output, open_output
from headway.reports.page import Picture, Section, html_page, is_page
from headway.reports.tables import Table

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

_WIDTH = 7.2
_MAX_BARS = 150
"""A picture with more bars would be unreadable; the tables have them all."""

_WIDE_RANGE = 8
"""Numbers that differ by a larger factor are drawn on a logarithmic axis."""

_LEAST_DRAWN = 1e-3
_TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def write_sweep_report(
    folder: Path,
    output: Path | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Path:
    """Write a page about the runs in a sweep's folder and return its path.

    It begins with all runs together, by the rows and columns that were asked for.
    """
    target = folder / "report.html" if output is None else output
    if not is_page(target):
        raise InputError("the report of a sweep must end in .html.", source=str(target))
    check_output(target)
    frame, metadata = read_runs(folder)
    if frame.is_empty():
        raise InputError("no run has finished yet.", source=str(folder))
    baseline = metadata["headway.baseline"]
    expected = int(metadata["headway.runs"])
    layout = layout_of(frame, rows, columns, tuple(METRICS))
    with house_style():
        page = html_page(
            f"Sweep: {folder.resolve().name}",
            _summary(frame, layout, baseline, expected, metadata.get("headway.sharing", "")),
            [*_sections(frame, layout, baseline, rows is None), _made(metadata)],
        )
    with open_output(target) as stream:
        stream.write(page.encode())
    return target


def _summary(
    frame: polars.DataFrame, layout: Layout, baseline: str, expected: int, sharing: str
) -> str:
    missing = expected - len(frame)
    parts = [f"{len(frame):,} runs by Headway {escape(version('headway'))}."]
    if missing:
        parts.append(f"<strong>{missing:,} more are not finished.</strong>")
    if sharing:
        parts.append(f"In these runs {escape(sharing)}.")
    if over := averaged_over(frame, layout):
        parts.append(f"Figures are means over {escape(over)}, with 95% confidence intervals.")
    about = about_intervals(frame, layout)
    if compares(frame, layout):
        differ = "; an interval without 1 means that the two policies differ"
        means = differ if over and not about else ""
        parts.append(
            f"Ratios to <code>{escape(baseline)}</code> compare runs that differ in the policy "
            f"alone{means}."
        )
    if about:
        parts.append(about)
    return " ".join(parts)


def _sections(
    frame: polars.DataFrame, layout: Layout, baseline: str, by_workload: bool
) -> list[Section]:
    """Return a section with all runs, and one per workload if the rows are grouped by workload."""
    import polars

    if not by_workload or layout.rows[0] != "workload" or len(layout.rows) == 1:
        return [_section("figures", "Figures", frame, layout, baseline)]
    inner = Layout(layout.rows[1:], layout.columns, layout.values)
    over = averaged_over(frame, inner)
    return [
        _section("all", f"All workloads: means over {over}", frame, inner, baseline),
        *(
            _section(
                f"workload-{index}",
                f"Workload {name}",
                frame.filter(polars.col("workload") == name),
                inner,
                baseline,
            )
            for index, name in enumerate(frame["workload"].unique(maintain_order=True))
        ),
    ]


def _section(
    anchor: str, title: str, frame: polars.DataFrame, layout: Layout, baseline: str
) -> Section:
    means = pivot(frame, layout, MAIN)
    ratios = pivot(frame, layout, MAIN, baseline) if compares(frame, layout) else None
    content: list[str | Table | Picture] = []
    axis = number_axis(means, layout)
    if axis is not None or len(means.rows) * len(means.columns) <= _MAX_BARS:
        caption = (
            "Average completion times, with 95% intervals where there are several runs, or sampled "
            "ones."
        )
        faster = "left of 1" if axis is None else "below 1"
        if ratios is not None:
            caption = f"(a) {caption} (b) Their ratios to {baseline}; {faster} is faster."
        figure = _drawn(means, ratios) if axis is None else _lines(means, ratios, axis)
        content.append(Picture(anchor, figure, caption))
    else:
        content.append("There are too many rows for a picture.")
    return Section(anchor, title, [*content, *tables(frame, layout, baseline, narrow=True)])


def _lines(means: Pivot, ratios: Pivot | None, axis: NumberAxis) -> Figure:
    """Draw average JCTs over an axis of numbers, a line per series, beside their ratios."""
    from matplotlib.figure import Figure

    labels = label_lines([", ".join(name) or "all" for name in axis.series])
    columns = max(1, min(len(labels), 100 // (label_width(labels) + 6)))
    rows = -(-len(labels) // columns)
    above = 0.32 + 0.15 * rows * max(label.count("\n") + 1 for label in labels)
    height = 2.9 + above
    figure = Figure(figsize=(_WIDTH, height))
    panels: Any = figure.subplots(1, 1 if ratios is None else 2, squeeze=False)[0]
    for panel, part in zip(panels, [means, *([] if ratios is None else [ratios])], strict=True):
        for number, (cells, label) in enumerate(zip(axis.series.values(), labels, strict=True)):
            found = [(x, part.cells[at]) for x, at in cells if at in part.cells]
            margins = [cell.margin if cell.has_interval else 0.0 for _, cell in found]
            panel.errorbar(
                [x for x, _ in found],
                [cell.value for _, cell in found],
                yerr=margins if any(margins) else None,
                color=COLOURS[number % len(COLOURS)],
                linestyle=DASHES[number % len(DASHES)],
                marker="o",
                markersize=3.5,
                capsize=2,
                elinewidth=0.9,
                label=label,
            )
        if axis.numbers[0] > 0 and axis.numbers[-1] > _WIDE_RANGE * axis.numbers[0]:
            panel.set_xscale("log")
        panel.set_xticks(axis.numbers, [f"{number:g}" for number in axis.numbers])
        panel.minorticks_off()
        panel.set_xlabel(axis.title)
    panels[0].set(title=_capital(METRICS[MAIN]) if ratios is None else "(a)", ylim=(0, None))
    panels[0].set_ylabel(_capital(METRICS[MAIN]))
    if ratios is not None:
        panels[1].axhline(1, color=INK, linewidth=0.9, zorder=1)
        panels[1].set(ylabel="Ratio to the baseline (below 1: faster)", title="(b)")
    figure.subplots_adjust(
        left=0.09, right=0.98, wspace=0.22, bottom=0.5 / height, top=1 - (above + 0.2) / height
    )
    handles, texts = panels[0].get_legend_handles_labels()
    legend = figure.legend(handles, texts, loc="upper left", ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _drawn(means: Pivot, ratios: Pivot | None) -> Figure:
    """Draw average JCTs by row, with a colour per column, beside their ratios to the baseline."""
    from matplotlib.figure import Figure

    count = len(means.columns)
    names = label_lines([", ".join(row) for row in means.rows])
    lines = max(name.count("\n") + 1 for name in names)
    step = max(0.3 if count == 1 else 0.14 * count + 0.12, 0.14 * lines + 0.06)
    named = means.columns != ((),)
    # Inches above for titles and, with several columns, a legend; below for the axis.
    above, below = (0.55 if named else 0.3), 0.5
    height = above + below + step * len(means.rows)
    figure = Figure(figsize=(_WIDTH, height))
    panels: Any = figure.subplots(1, 1 if ratios is None else 2, sharey=True, squeeze=False)[0]
    thickness = 0.76 / count
    for number, column in enumerate(means.columns):
        look = {"color": COLOURS[number % len(COLOURS)]}
        heights = [0.38 - thickness * (number + 0.5) - row for row in range(len(means.rows))]
        _bars(panels[0], means, column, heights, thickness * 0.94, look)
        if ratios is not None:
            _intervals(panels[1], ratios, column, heights, look)
    panels[0].set_yticks([-row for row in range(len(names))], names)
    for text in panels[0].get_yticklabels():
        text.set_parse_math(False)
    panels[0].set(xlabel=_capital(METRICS[MAIN]), ylim=(0.55 - len(names), 0.55))
    if ratios is not None:
        panels[0].set_title("(a)")
        panels[1].axvline(1, color=INK, linewidth=0.9, zorder=1)
        panels[1].set(xlabel="Ratio to the baseline (below 1: faster)", title="(b)")
        _scale(panels[1], ratios)
        panels[1].tick_params(axis="y", length=0, labelleft=False)
    for panel in panels:
        panel.grid(visible=False, axis="y")
    figure.subplots_adjust(
        left=min(0.42, 0.03 + 0.0098 * label_width(names)),
        right=0.98,
        wspace=0.08,
        bottom=below / height,
        top=1 - above / height,
    )
    if named:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", ncols=min(5, count), handlelength=1)
    return figure


def _bars(
    axes: Any,
    means: Pivot,
    column: Label,
    heights: Sequence[float],
    thickness: float,
    look: dict[str, Any],
) -> None:
    found = [means.cells.get((row, column)) for row in means.rows]
    bars = [(height, cell) for height, cell in zip(heights, found, strict=True) if cell is not None]
    margins = [cell.margin if cell.has_interval else 0.0 for _, cell in bars]
    axes.barh(
        [height for height, _ in bars],
        [cell.value for _, cell in bars],
        thickness,
        xerr=margins if any(margins) else None,
        label=", ".join(column),
        error_kw={"elinewidth": 0.9, "capsize": 2, "ecolor": INK},
        **look,
    )


def _intervals(
    axes: Any, ratios: Pivot, column: Label, heights: Sequence[float], look: dict[str, Any]
) -> None:
    for row, height in zip(ratios.rows, heights, strict=True):
        cell = ratios.cells.get((row, column))
        if cell is not None:
            if cell.has_interval:
                axes.plot([max(cell.low, _LEAST_DRAWN), cell.high], [height] * 2, **look)
            axes.plot(cell.value, height, "o", markersize=4, **look)


def _scale(axes: Any, ratios: Pivot) -> None:
    """Use a logarithmic axis where ratios are far apart, so that those near 1 can be seen."""
    values = [cell.value for cell in ratios.cells.values()]
    if max(values) < 2.5 * min(values):
        return
    ends = [cell for cell in ratios.cells.values() if cell.has_interval]
    low = max(min(values + [cell.low for cell in ends]), min(values) / 4)
    high = max(values + [cell.high for cell in ends])
    ticks = [tick for tick in _TICKS if low / 1.6 <= tick <= high * 1.6]
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(low / 1.1, high * 1.1)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _made(metadata: dict[str, str]) -> Section:
    packages = ("headway", "numba", "numpy", "polars")
    versions = [("Python", platform.python_version())]
    versions += [(name, version(name)) for name in packages]
    versions.append(("sources", metadata["headway.code"]))
    return Section(
        "made",
        "How this was made",
        [
            "By <code>headway sweep</code> from this file:",
            f"<pre>{escape(metadata['headway.sweep'])}</pre>",
            "The same file gives the same bits of <code>runs.parquet</code>, on any machine and in "
            "any number of threads. It has a row per run, with more figures than the tables above.",
            Table("versions", "Versions", ("", ""), versions, texts=2),
        ],
    )
