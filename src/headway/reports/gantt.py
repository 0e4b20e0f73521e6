"""A picture of a timeline: the tasks in a window, and contention and queue over the whole run."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.domain.records import BACKWARD, COMMUNICATION, FORWARD
from headway.figure_style import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    house_style,
    save_figure,
    set_time_axis,
)
from headway.reports.gantt_layout import (
    NETWORK,
    STRENGTHS,
    Box,
    Row,
    checked_window,
    default_window,
    lay_out,
    select,
)
from headway.results.timeline.compiled import Integers
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.window import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

_WIDTH_IN, _LEFT_IN, _RIGHT_IN = 11.0, 0.95, 0.15
_BINS = 900
_MOST_STEPS = 300
"""Counters with more steps are drawn as means and maxima of bins: a line would fill the panel."""
_JOB_COLOURS = COLOURS[:-1]
"""Without black, on which labels could not be read."""

_PATTERNS = ("", "----", "xxxx", "||||")
"""Jobs with one colour differ in their patterns."""

_MAX_NAMED = 20
"""The most jobs in the legend."""


def draw_report(run: RecordedRun, window: Window | None = None) -> Figure:
    """Draw the tasks in a window and, below, the network and the queue over the whole timeline.

    The default window is the 2 s from the moment of highest contention: the most messages on one
    server, then the most messages running and waiting.

    Raises:
        InputError: The window lies outside the timeline, or holds too many tasks to draw.
    """
    from matplotlib.figure import Figure

    window = default_window(run) if window is None else checked_window(run, window)
    servers, tasks = select(run, window)
    boxes, rows = lay_out(run, window, servers, tasks)
    with house_style():
        units = rows[-1].top + rows[-1].height
        row_in = min(0.26, max(0.125, 9.5 / units))
        heights = [units * row_in, 1.25, 0.95]
        handles, columns = _legend(boxes, run)
        top_in, bottom_in, gap_in = 0.48 + 0.16 * math.ceil(len(handles) / columns), 0.45, 0.62
        height_in = sum(heights) + 2 * gap_in + top_in + bottom_in
        figure = Figure(figsize=(_WIDTH_IN, height_in))
        axes = []
        upper = height_in - top_in
        for height in heights:
            upper -= height
            width = (_WIDTH_IN - _LEFT_IN - _RIGHT_IN) / _WIDTH_IN
            box = (_LEFT_IN / _WIDTH_IN, upper / height_in, width, height / height_in)
            axes.append(figure.add_axes(box))
            upper -= gap_in
        _draw_rows(axes[0], rows, row_in)
        _draw_boxes(axes[0], boxes, window, row_in)
        legend = axes[0].legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=columns,
            borderaxespad=0.3,
            handlelength=1.4,
            columnspacing=1.2,
        )
        for entry in legend.get_texts():
            entry.set_parse_math(False)
        _draw_title(figure, run, window, servers, height_in)
        _draw_counters(axes[1], axes[2], run, window)
    return figure


def write_report(
    run: RecordedRun, path: str | os.PathLike[str], window: Window | None = None
) -> None:
    """Draw a timeline to a file; its suffix (`.svg`, `.pdf`, `.png`) chooses the format."""
    figure = draw_report(run, window)
    with warnings.catch_warnings():
        # An id may have characters that the font lacks; they become boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        save_figure(figure, path)


class Look(NamedTuple):
    """How the tasks of a job are drawn."""

    colour: str
    pattern: str


_LOOKS = [Look(colour, pattern) for pattern in _PATTERNS for colour in _JOB_COLOURS]


def job_looks(boxes: Iterable[Box]) -> dict[str, Look]:
    """Assign each job the look used least in its own rows, then least overall.

    Jobs look different as long as there are looks left, and plain ones are taken first.
    """
    rows: dict[str, set[int]] = defaultdict(set)
    for box in boxes:
        rows[box.job].add(int(box.top))
    look_of: dict[str, Look] = {}
    uses: Counter[Look] = Counter()
    for job in sorted(rows, key=lambda job: (-len(rows[job]), job)):
        near = [look_of[other] for other in look_of if rows[other] & rows[job]]
        near_looks, near_colours = Counter(near), Counter(look.colour for look in near)
        best = min(
            _LOOKS, key=lambda look: (near_looks[look], uses[look], near_colours[look.colour])
        )
        look_of[job] = best
        uses[best] += 1
    return look_of


def _tint(colour: str, strength: float) -> str:
    """Mix a colour with white."""
    parts = [int(colour[index : index + 2], 16) for index in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * strength):02X}" for part in parts)


def _ink_on(colour: str) -> str:
    """Return white or black, whichever is legible on a colour."""
    red, green, blue = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return "#FFFFFF" if 0.299 * red + 0.587 * green + 0.114 * blue < 130 else INK


def _short(label: str, limit: int = 16) -> str:
    """Return a label made printable and, if it is too long, with its middle cut out."""
    text = "".join(letter if letter.isprintable() else "·" for letter in label)
    if len(text) <= limit:
        return text
    tail = limit // 2
    return f"{text[: limit - 1 - tail]}…{text[-tail:]}"


_HATCH = "/////"
_DARK = 0.6
"""From here on a pattern in a task's own colour could not be seen."""


def _hatch(look: Look, kind: int) -> str | None:
    """Return the pattern of a task: stripes for a message, and its job's."""
    return (_HATCH if kind == COMMUNICATION else "") + look.pattern or None


def _edge(look: Look, kind: int, strength: float) -> str:
    """Return the colour of edges and patterns."""
    plain = kind != COMMUNICATION and (not look.pattern or strength > _DARK)
    return "#FFFFFF" if plain else look.colour


def _draw_boxes(axes: Axes, boxes: list[Box], window: Window, row_in: float) -> None:
    """Draw the tasks, with the job's id in those that are wide enough, and the entry's name."""
    from matplotlib.collections import PolyCollection

    look_of = job_looks(boxes)
    corners: dict[tuple[Look, int, float], list[list[tuple[float, float]]]] = defaultdict(list)
    for box in boxes:
        low, high = box.top + 0.06, box.top + box.height - 0.06
        corners[look_of[box.job], box.kind, box.strength].append(
            [(box.from_s, low), (box.to_s, low), (box.to_s, high), (box.from_s, high)]
        )
    for (look, kind, strength), polygons in sorted(corners.items()):
        axes.add_collection(
            PolyCollection(
                polygons,
                facecolors=_tint(look.colour, strength),
                edgecolors=_edge(look, kind, strength),
                linewidths=0.4 if kind == COMMUNICATION else 0.25,
                hatch=_hatch(look, kind),
            )
        )
    width_pt = 72 * (_WIDTH_IN - _LEFT_IN - _RIGHT_IN)
    points_per_s = width_pt / (window.to_ns - window.from_ns) * 1e9
    for box in boxes:
        size = min(7.0, 72 * row_in * box.height * 0.72)
        fitting = int(((box.to_s - box.from_s) * points_per_s - 2) / (0.66 * size))
        if size < 3.4 or fitting < min(4, len(box.job)):
            continue
        look = look_of[box.job]
        colour = _tint(look.colour, box.strength)
        plate = {"boxstyle": "round,pad=0.1", "fc": colour, "ec": "none"}
        axes.text(
            (box.from_s + box.to_s) / 2,
            box.top + box.height / 2,
            _label(box, fitting, len(look_of) == 1),
            size=size,
            color=_ink_on(colour),
            ha="center",
            va="center_baseline",
            parse_math=False,
            bbox=plate if _hatch(look, box.kind) else None,
        )
    axes.set_xlim(window.from_ns / 1e9, window.to_ns / 1e9)
    axes.ticklabel_format(axis="x", useOffset=False, style="plain")
    axes.set_xlabel("simulated time [s]")


def _label(box: Box, fitting: int, one_job: bool) -> str:
    """Return the text of a task: its job and, if that fits, its entry."""
    if box.entry is not None:
        label = box.entry if one_job else f"{box.job} {box.entry}"
        if len(label) <= fitting:
            return _short(label, fitting)
    return _short(box.job, min(16, fitting))


def _legend(boxes: list[Box], run: RecordedRun) -> tuple[list[Patch], int]:
    """Return the entries of the legend, and its number of columns."""
    from matplotlib.patches import Patch

    grey, look_of = "#666666", job_looks(boxes)
    has_graphs = any(graph is not None for graph in run.graphs)
    light, dark = ["forward"] * (None in run.graphs), ["backward"] * (None in run.graphs)
    if has_graphs:
        light, dark = [*light, "first task of a graph"], [*dark, "last task"]
    handles = [
        Patch(facecolor=_tint(grey, STRENGTHS[kind]), label=", ".join(labels))
        for kind, labels in ((FORWARD, light), (BACKWARD, dark))
    ]
    handles.append(
        Patch(
            facecolor=_tint(grey, STRENGTHS[COMMUNICATION]),
            edgecolor=grey,
            hatch=_HATCH,
            label="message" if has_graphs else "all-reduce",
        )
    )
    named = sorted(look_of, key=lambda job: (len(job), job))
    if len(named) > _MAX_NAMED + 1:
        named, more = named[:_MAX_NAMED], len(named) - _MAX_NAMED
    else:
        more = 0
    handles += [
        Patch(
            facecolor=look_of[job].colour,
            edgecolor=_edge(look_of[job], BACKWARD, STRENGTHS[BACKWARD]),
            hatch=_hatch(look_of[job], BACKWARD),
            label=f"job {_short(job)}",
        )
        for job in named
    ]
    if more:
        handles.append(Patch(facecolor="none", label=f"and {more} more"))
    widest = max(len(str(handle.get_label())) for handle in handles)
    return handles, 8 if widest < 12 else 5


def _draw_rows(axes: Axes, rows: list[Row], row_in: float) -> None:
    """Label the rows, and separate the servers."""
    axes.grid(visible=False, axis="y")
    axes.set_ylim(rows[-1].top + rows[-1].height, 0)
    axes.set_yticks([row.top + row.height / 2 for row in rows], [row.label for row in rows])
    axes.tick_params(axis="y", length=0, labelsize=min(7.0, 72 * row_in * 0.66))
    first = 0.0
    for row in rows:
        if row.label != NETWORK:
            continue
        end = row.top + row.height
        axes.axhspan(row.top, end, color=FAINT, alpha=0.45, lw=0, zorder=0)
        if first > 0:
            axes.axhline(first, color=INK, linewidth=0.5)
        tall = (end - first) * row_in > 0.55
        axes.text(
            -0.062,
            (first + end) / 2,
            f"server {row.server}",
            transform=axes.get_yaxis_transform(),
            rotation=90 if tall else 0,
            ha="center",
            va="center",
            size=min(8.0, max(6.0, 72 * row_in * 0.7)) if tall else 5.0,
        )
        first = end


def _draw_title(
    figure: Figure, run: RecordedRun, window: Window, servers: list[int], height_in: float
) -> None:
    """Write what is shown, and which servers."""
    title = f"{_short(Path(run.source).name, 60)}: {window}"
    if len(servers) < run.servers:
        title += f", the {len(servers)} of {run.servers:,} servers with the most traffic"
    figure.text(
        *(0.15 / _WIDTH_IN, 1 - 0.12 / height_in),
        title,
        size=10,
        weight="bold",
        va="top",
        parse_math=False,
    )


def _draw_counters(network: Axes, queue: Axes, run: RecordedRun, window: Window) -> None:
    """Draw the counters over the whole timeline, with the window shaded."""
    from matplotlib.ticker import MaxNLocator

    steps = run.steps
    lines = (
        (network, steps.waiting, "messages waiting", 1),
        (network, steps.running, "messages running", 0),
        (network, steps.peak, "most on one server", 3),
        (queue, steps.queued, "queued jobs", 2),
    )
    from_s, to_s = run.window.from_ns / 1e9, run.window.to_ns / 1e9
    exact = len(steps.time_ns) <= _MOST_STEPS
    for axes, values, label, style in lines:
        colour, dashes = COLOURS[style], DASHES[style]
        if exact:
            axes.step(
                *(steps.time_ns / 1e9, values),
                where="post",
                color=colour,
                linestyle=dashes,
                linewidth=1.2,
                label=label,
            )
        else:
            middle_s, mean, most = binned(steps.time_ns, values)
            axes.fill_between(middle_s, mean, most, color=colour, alpha=0.2, linewidth=0)
            axes.plot(middle_s, mean, color=colour, linestyle=dashes, linewidth=1.0, label=label)
    for axes in (network, queue):
        span = (window.from_ns / 1e9, window.to_ns / 1e9)
        axes.axvspan(*span, facecolor="#88888840", edgecolor="#777777", lw=1.0)
        axes.set_xlim(from_s, to_s)
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        set_time_axis(axes.xaxis, "simulated time", to_s - from_s)
    network.set_xlabel("")
    network.set_ylabel("messages")
    queue.set_ylabel("jobs")
    note = "" if exact else "line: mean, shade: maximum; "
    network.set_title(f"Contention ({note}grey: the window above)")
    network.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.1)
    queue.set_title("Queued jobs")


def binned(
    time_ns: Integers, values: Integers
) -> tuple[NDArray[np.float64], NDArray[np.float64], Integers]:
    """Return the middles of equal bins in seconds, and a counter's mean and maximum in each."""
    edges = np.linspace(time_ns[0], time_ns[-1], _BINS + 1)
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(time_ns / 1.0))])
    mean = np.diff(np.interp(edges, time_ns, area)) / np.diff(edges)
    current = np.searchsorted(time_ns, edges, side="right") - 1
    first, last = current[:-1], current[1:]
    most = np.maximum(np.maximum.reduceat(values, first), np.where(last > first, values[last], 0))
    return (edges[:-1] + edges[1:]) / 2e9, mean, most
