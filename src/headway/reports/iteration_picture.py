"""A picture of one iteration: the streams of ranks, messages between them, the critical path."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from headway.domain.message_kinds import KINDS
from headway.durations import milliseconds_text
from headway.figure_style import INK, house_style, save_figure
from headway.files import open_output
from headway.reports.iteration import Iteration
from headway.reports.iteration_layout import OTHER, TASK_HEIGHT, Box, Row, families, lay_out
from headway.reports.page import Picture, Section, html_page, is_page
from headway.text_table import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

_WIDTH_IN, _LEFT_IN, _RIGHT_IN, _TOP_IN, _BOTTOM_IN = 11.0, 0.8, 0.15, 0.62, 0.42
_PATH = "#D55E00"
_TASK_COLOURS = ("#0072B2", "#8CCBEE", "#7B5EA7", "#C3B1DE", "#F0E442")
_OTHER_COLOUR = "#BBBBBB"
_MESSAGE_LOOKS = {
    "all-reduce": ("#E69F00", "/////"),
    "reduce-scatter": ("#E69F00", "\\\\\\\\\\"),
    "all-gather": ("#009E73", "/////"),
    "all-to-all": ("#CC79A7", "xxxxx"),
    "send": ("#666666", "....."),
}
"""Colour and pattern of each kind of message."""


def draw_iteration(iteration: Iteration, title: str) -> Figure:
    """Draw the tasks of each rank over time, its messages below, and the critical path.

    Raises:
        InputError: There are too many tasks and messages to draw.
    """
    from matplotlib.figure import Figure

    rows = lay_out(iteration)
    units = rows[-1].top + rows[-1].height
    unit_in = min(0.3, max(0.12, 9.0 / units))
    height_in = units * unit_in + _TOP_IN + _BOTTOM_IN
    with house_style():
        figure = Figure(figsize=(_WIDTH_IN, height_in))
        width = (_WIDTH_IN - _LEFT_IN - _RIGHT_IN) / _WIDTH_IN
        axes = figure.add_axes(
            (_LEFT_IN / _WIDTH_IN, _BOTTOM_IN / height_in, width, units * unit_in / height_in)
        )
        axes.set_xlim(0, iteration.length_ns / 1e6)
        axes.set_ylim(units, 0)
        axes.grid(visible=False, axis="y")
        axes.set_yticks(
            [row.top + TASK_HEIGHT / 2 for row in rows],
            [row.label for row in rows],
            parse_math=False,
        )
        axes.tick_params(axis="y", length=0, labelsize=min(8.0, 72 * unit_in * 0.7))
        axes.set_xlabel("time [ms]")
        _draw_links(axes, iteration, rows)
        handles = [
            *_draw_tasks(axes, iteration, rows, unit_in),
            *_draw_messages(axes, iteration, rows),
        ]
        handles.append(_draw_path(axes, iteration, rows))
        axes.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=len(handles),
            borderaxespad=0.4,
            handlelength=1.6,
            columnspacing=1.4,
        )
        shown = sum(len(row.ranks) for row in rows)
        if shown < iteration.graph.ranks:
            title += f" ({shown:,} of {iteration.graph.ranks:,} ranks)"
        figure.text(
            0.15 / _WIDTH_IN,
            1 - 0.12 / height_in,
            printable(title),
            size=10,
            weight="bold",
            va="top",
            parse_math=False,
        )
    return figure


def write_iteration(iteration: Iteration, title: str, path: str | os.PathLike[str]) -> None:
    """Draw an iteration to an `.svg`, `.pdf` or `.png` file, or on an `.html` page."""
    figure = draw_iteration(iteration, title)
    if not is_page(path):
        save_figure(figure, path)
        return
    parts = ", ".join(
        f"{part} {milliseconds_text(time_ns)} ms"
        for part, time_ns in iteration.path_parts_ns.items()
    )
    caption = "Tasks of each rank, its messages below, and the critical path outlined."
    page = html_page(
        title,
        f"Critical path: {parts}.",
        [Section("iteration", "One iteration", [Picture("iteration", figure, caption)])],
    )
    with open_output(path) as stream:
        stream.write(page.encode())


def _corners(box: Box) -> list[tuple[float, float]]:
    low, high = box.top + 0.05, box.top + box.height - 0.05
    return [(box.from_ms, low), (box.to_ms, low), (box.to_ms, high), (box.from_ms, high)]


def _middle(box: Box) -> float:
    return box.top + box.height / 2


def _draw_tasks(
    axes: Axes, iteration: Iteration, rows: Sequence[Row], unit_in: float
) -> Iterator[Patch]:
    """Draw tasks in the colours of their families; yield the entries of the legend."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    family_of = families(iteration, rows)
    named = sorted(set(family_of.values()) - {OTHER}, key=list(family_of.values()).index)
    # Backward first, so that the darker colour is for what usually takes longer.
    named.sort(key=lambda one: ("backward" not in one, "forward" not in one, len(one)))
    colours = dict(zip(_by_pairs(named), _TASK_COLOURS, strict=False)) | {OTHER: _OTHER_COLOUR}
    boxes: dict[str, list[Box]] = defaultdict(list)
    for row in rows:
        for box in row.tasks:
            boxes[family_of[iteration.name(box.node)]].append(box)
    for one in sorted(boxes, key=list(family_of.values()).index):
        corners = [_corners(box) for box in boxes[one]]
        collection = PolyCollection(
            corners, facecolors=colours[one], edgecolors="#FFFFFF", linewidths=0.4
        )
        axes.add_collection(collection)
        for box in boxes[one]:
            _label(axes, iteration, box, colours[one], unit_in)
        yield Patch(facecolor=colours[one], label=printable(one))


def _by_pairs(named: Sequence[str]) -> list[str]:
    """Order families so that backward and forward of one thing have two shades of a colour."""
    ordered: list[str] = []
    for one in named:
        if one not in ordered:
            ordered.append(one)
            other = one.replace("backward", "forward")
            if other != one and other in named:
                ordered.append(other)
    return ordered


def _label(axes: Axes, iteration: Iteration, box: Box, colour: str, unit_in: float) -> None:
    """Write the name of a task into its box, or its number, if that fits."""
    size = min(7.0, 72 * unit_in * 0.6)
    points = 72 * (_WIDTH_IN - _LEFT_IN - _RIGHT_IN)
    width = (box.to_ms - box.from_ms) / (iteration.length_ns / 1e6) * points
    name = printable(iteration.name(box.node))
    number = re.search(r"\d+$", name)
    for text in (name, number.group() if number else ""):
        if text and size >= 3.4 and len(text) * 0.62 * size < width - 2:
            axes.text(
                (box.from_ms + box.to_ms) / 2,
                _middle(box),
                text,
                size=size,
                color="#FFFFFF" if colour in (_TASK_COLOURS[0], _TASK_COLOURS[2]) else INK,
                ha="center",
                va="center_baseline",
                parse_math=False,
            )
            return


def _draw_messages(axes: Axes, iteration: Iteration, rows: Sequence[Row]) -> Iterator[Patch]:
    """Draw messages by kind; yield the entries of the legend."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    corners: dict[str, list[list[tuple[float, float]]]] = defaultdict(list)
    for row in rows:
        for box in row.messages:
            corners[iteration.kind(box.node)].append(_corners(box))
    for kind in KINDS:
        if kind in corners:
            colour, hatch = _MESSAGE_LOOKS[kind]
            collection = PolyCollection(
                corners[kind],
                facecolors="#FFFFFF",
                edgecolors=colour,
                hatch=hatch,
                linewidths=0.6,
            )
            axes.add_collection(collection)
            yield Patch(facecolor="#FFFFFF", edgecolor=colour, hatch=hatch, label=kind)


def _draw_links(axes: Axes, iteration: Iteration, rows: Sequence[Row]) -> None:
    """Draw a line where a message begins, through the rows of its ranks; a send's is slanted."""
    from matplotlib.collections import LineCollection

    places: dict[int, list[Box]] = defaultdict(list)
    for row in rows:
        for box in row.messages:
            places[box.node].append(box)
    lines, colours = [], []
    for node, boxes in places.items():
        kind = iteration.kind(node)
        if len(boxes) < 2:
            continue
        middles = [_middle(box) for box in boxes]
        if kind == "send":
            if _sender(iteration, node) != iteration.ranks(node)[0]:
                middles.reverse()
            lines.append([(boxes[0].from_ms, middles[0]), (boxes[0].to_ms, middles[1])])
        else:
            lines.append([(boxes[0].from_ms, middles[0]), (boxes[0].from_ms, middles[-1])])
        colours.append(_MESSAGE_LOOKS[kind][0])
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=0.8, zorder=0.9))


def _sender(iteration: Iteration, node: int) -> int:
    """Return the rank that sends: that of the task that ended last before a message."""
    tasks = [int(one) for one in iteration.before(node) if one < iteration.graph.expanded.tasks]
    if not tasks:
        return iteration.ranks(node)[0]
    return iteration.ranks(max(tasks, key=lambda task: int(iteration.end_ns[task])))[0]


def _draw_path(axes: Axes, iteration: Iteration, rows: Sequence[Row]) -> Patch:
    """Outline the nodes of the critical path, and join them; return the entry of the legend."""
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.patches import Patch

    boxes: dict[int, list[Box]] = defaultdict(list)
    for row in rows:
        for box in row.boxes:
            boxes[box.node].append(box)
    outlined, joints = [], []
    drawn = [boxes[node] for node in iteration.critical_path if boxes[node]]
    for node_boxes in drawn:
        outlined += [_corners(box) for box in node_boxes]
    for before, after in pairwise(drawn):
        start = _middle(before[0])
        _, end = min((abs(_middle(box) - start), _middle(box)) for box in after)
        joints.append([(after[0].from_ms, start), (after[0].from_ms, end)])
    axes.add_collection(
        PolyCollection(outlined, facecolors="none", edgecolors=_PATH, linewidths=1.4, zorder=2.5)
    )
    axes.add_collection(LineCollection(joints, colors=_PATH, linewidths=1.4, zorder=2.4))
    return Patch(facecolor="none", edgecolor=_PATH, linewidth=1.4, label="critical path")
