"""A picture of a timeline: the tasks in a window, and contention and queue over the whole run."""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.domain.errors import InputError
from headway.domain.records import BACKWARD, FORWARD, MESSAGE
from headway.figure_style import COLOURS, DASHES, FAINT, INK, house_style, save_figure
from headway.results.timeline.compiled import Integers
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.window import Window

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

MOST_BOXES = 20_000
"""The most tasks in a picture; more would be a blur, and a file too big to open."""

_WINDOW_NS = 2_000_000_000
_MOST_ROWS = 160
_WIDTH_IN, _LEFT_IN, _RIGHT_IN = 11.0, 0.95, 0.15
_BINS = 900
_JOB_COLOURS = COLOURS[:-1]
"""Without black, on which labels could not be read."""

_LANE, _MOST_LANES = 0.85, 4
"""The height of a lane of a network, in rows, and up to how many lanes have this height."""

_MOST_NAMED = 20
"""The most jobs in the legend."""

_NETWORK = "network"
_LABELS = ("forward", "backward", "all-reduce")
"""Labels of the row of a network, and of the kinds of tasks."""


@dataclass(frozen=True, slots=True)
class _Box:
    """A task in a picture; rows count from the top."""

    from_s: float
    to_s: float
    top: float
    height: float
    kind: int
    job: str


@dataclass(frozen=True, slots=True)
class _Row:
    """A GPU or a network in a picture."""

    label: str
    server: int
    top: float
    height: float


def draw_report(run: RecordedRun, window: Window | None = None) -> Figure:
    """Draw the tasks in a window and, below, the network and the queue over the whole timeline.

    The default window is the 2 s from the moment of highest contention: the most messages on one
    server, then the most all-reduces running and waiting.

    Raises:
        InputError: The window lies outside the timeline, or holds too many tasks to draw.
    """
    from matplotlib.figure import Figure

    window = _default_window(run) if window is None else _checked(run, window)
    servers, tasks = _select(run, window)
    boxes, rows = _layout(run, window, servers, tasks)
    with house_style():
        units = rows[-1].top + rows[-1].height
        row_in = min(0.26, max(0.125, 9.5 / units))
        heights = [units * row_in, 1.25, 0.95]
        handles, columns = _legend(boxes)
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


def _select(run: RecordedRun, window: Window) -> tuple[list[int], polars.DataFrame]:
    """Return the servers to show, and their tasks in a window, a message once for each server.

    If there are too many servers, those with the most traffic are shown.
    """
    import polars

    overlaps = (polars.col("start_ns") < window.to_ns) & (polars.col("end_ns") > window.from_ns)
    tasks = run.tasks.filter(overlaps)
    messages = tasks.filter(polars.col("gpu").is_null()).explode("servers")
    messages = messages.rename({"servers": "server"})
    compute = tasks.filter(polars.col("gpu").is_not_null()).drop("servers")
    server = polars.Series(run.server_of_gpu[compute["gpu"].to_numpy()], dtype=polars.Int32)
    compute = compute.with_columns(server=server).select(messages.columns)
    both = polars.concat([compute, messages])
    room = max(1, _MOST_ROWS // (max(run.server_gpus) + 1))
    if room >= run.servers:
        return list(range(run.servers)), both
    traffic_ns = np.zeros(run.servers, np.int64)
    length_ns = (messages["end_ns"] - messages["start_ns"]).to_numpy()
    np.add.at(traffic_ns, messages["server"].to_numpy(), length_ns)
    servers = sorted(np.argsort(-traffic_ns, kind="stable")[:room].tolist())
    return servers, both.filter(polars.col("server").is_in(servers))


def _default_window(run: RecordedRun) -> Window:
    """Return 2 s from the moment of highest contention, or less if that holds too many tasks."""
    covers, steps = run.window, run.steps
    sending = steps.running + steps.waiting
    peak_ns = int(steps.time_ns[np.argmax(steps.peak * (sending.max() + 1) + sending)])
    length_ns = min(_WINDOW_NS, covers.to_ns - covers.from_ns)
    while True:
        from_ns = max(covers.from_ns, min(peak_ns, covers.to_ns - length_ns))
        window = Window(from_ns, from_ns + length_ns)
        if length_ns == 1 or len(_select(run, window)[1]) <= MOST_BOXES:
            return window
        length_ns //= 2


def _checked(run: RecordedRun, window: Window) -> Window:
    """Return the part of a window that the timeline covers, if it can be drawn."""
    covers = run.window
    if window.from_ns >= covers.to_ns or window.to_ns <= covers.from_ns:
        raise InputError(
            f"covers {covers}, which does not overlap the window from {window}.", source=run.source
        )
    window = Window(max(window.from_ns, covers.from_ns), min(window.to_ns, covers.to_ns))
    count = len(_select(run, window)[1])
    if count > MOST_BOXES:
        raise InputError(
            f"the window from {window} holds {count:,} tasks, and a picture shows at most "
            f"{MOST_BOXES:,}; choose a shorter one with --from and --to.",
            source=run.source,
        )
    return window


def _layout(
    run: RecordedRun, window: Window, servers: list[int], tasks: polars.DataFrame
) -> tuple[list[_Box], list[_Row]]:
    """Return the boxes, and the rows: for each server its GPUs and then its network."""
    columns = ("job_id", "server", "gpu", "start_ns", "end_ns")
    found = tasks.sort("start_ns", maintain_order=True).select(columns)
    kinds = tasks.sort("start_ns", maintain_order=True)["kind"].to_physical().to_list()
    records = list(zip(found.iter_rows(), kinds, strict=True))
    lane_of: dict[int, int] = {}
    lanes: dict[int, list[int]] = defaultdict(list)
    for index, ((_, server, gpu, start_ns, end_ns), _) in enumerate(records):
        if gpu is None:
            lane_of[index] = _free_lane(lanes[server], start_ns, end_ns)

    rows: list[_Row] = []
    first_gpu = np.concatenate([[0], np.cumsum(run.server_gpus)]).tolist()
    top_of_gpu: dict[int, float] = {}
    network_of: dict[int, _Row] = {}
    top = 0.0
    for server in servers:
        for gpu in range(first_gpu[server], first_gpu[server + 1]):
            top_of_gpu[gpu] = top
            rows.append(_Row(f"GPU {gpu}", server, top, 1.0))
            top += 1.0
        height = min(max(1.0, _LANE * len(lanes[server])), _LANE * _MOST_LANES)
        network_of[server] = _Row(_NETWORK, server, top, height)
        rows.append(network_of[server])
        top += height
    boxes = []
    for index, ((job_id, server, gpu, start_ns, end_ns), kind) in enumerate(records):
        from_s, to_s = max(start_ns, window.from_ns) / 1e9, min(end_ns, window.to_ns) / 1e9
        if gpu is None:
            network = network_of[server]
            height = network.height / len(lanes[server])
            top = network.top + lane_of[index] * height
        else:
            top, height = top_of_gpu[gpu], 1.0
        boxes.append(_Box(from_s, to_s, top, height, kind, job_id))
    return boxes, rows


def _free_lane(lanes: list[int], start_ns: int, end_ns: int) -> int:
    """Return a lane for a message, and note its end; messages come in the order of their starts."""
    for lane, ended_ns in enumerate(lanes):
        if ended_ns <= start_ns:
            lanes[lane] = end_ns
            return lane
    lanes.append(end_ns)
    return len(lanes) - 1


def _colours(boxes: Iterable[_Box]) -> dict[str, str]:
    """Assign each job the colour used least in its own rows, then least overall."""
    rows: dict[str, set[int]] = defaultdict(set)
    for box in boxes:
        rows[box.job].add(int(box.top))
    colour_of: dict[str, str] = {}
    uses: Counter[str] = Counter()
    for job in sorted(rows, key=lambda job: (-len(rows[job]), job)):
        near = Counter(colour_of[other] for other in colour_of if rows[other] & rows[job])
        best = min(_JOB_COLOURS, key=lambda colour: (near[colour], uses[colour]))
        colour_of[job] = best
        uses[best] += 1
    return colour_of


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


_STRENGTHS = {FORWARD: 0.4, BACKWARD: 1.0, MESSAGE: 0.25}
_HATCH = "/////"


def _draw_boxes(axes: Axes, boxes: list[_Box], window: Window, row_in: float) -> None:
    """Draw the tasks, with the job's id in those that are wide enough."""
    from matplotlib.collections import PolyCollection

    colour_of = _colours(boxes)
    corners: dict[tuple[str, int], list[list[tuple[float, float]]]] = defaultdict(list)
    for box in boxes:
        low, high = box.top + 0.06, box.top + box.height - 0.06
        corners[colour_of[box.job], box.kind].append(
            [(box.from_s, low), (box.to_s, low), (box.to_s, high), (box.from_s, high)]
        )
    for (colour, kind), polygons in sorted(corners.items()):
        axes.add_collection(
            PolyCollection(
                polygons,
                facecolors=_tint(colour, _STRENGTHS[kind]),
                edgecolors=colour if kind == MESSAGE else "#FFFFFF",
                linewidths=0.4 if kind == MESSAGE else 0.25,
                hatch=_HATCH if kind == MESSAGE else None,
            )
        )
    width_pt = 72 * (_WIDTH_IN - _LEFT_IN - _RIGHT_IN)
    points_per_s = width_pt / (window.to_ns - window.from_ns) * 1e9
    for box in boxes:
        size = min(7.0, 72 * row_in * box.height * 0.72)
        fitting = int(((box.to_s - box.from_s) * points_per_s - 2) / (0.66 * size))
        if size < 3.4 or fitting < min(4, len(box.job)):
            continue
        colour = _tint(colour_of[box.job], _STRENGTHS[box.kind])
        plate = {"boxstyle": "round,pad=0.1", "fc": colour, "ec": "none"}
        axes.text(
            (box.from_s + box.to_s) / 2,
            box.top + box.height / 2,
            _short(box.job, min(16, fitting)),
            size=size,
            color=_ink_on(colour),
            ha="center",
            va="center_baseline",
            parse_math=False,
            bbox=plate if box.kind == MESSAGE else None,
        )
    axes.set_xlim(window.from_ns / 1e9, window.to_ns / 1e9)
    axes.ticklabel_format(axis="x", useOffset=False, style="plain")
    axes.set_xlabel("simulated time [s]")


def _legend(boxes: list[_Box]) -> tuple[list[Patch], int]:
    """Return the entries of the legend, and its number of columns."""
    from matplotlib.patches import Patch

    grey, colour_of = "#666666", _colours(boxes)
    handles = [
        Patch(facecolor=_tint(grey, _STRENGTHS[FORWARD]), label=_LABELS[FORWARD]),
        Patch(facecolor=grey, label=_LABELS[BACKWARD]),
        Patch(
            facecolor=_tint(grey, _STRENGTHS[MESSAGE]),
            edgecolor=grey,
            hatch=_HATCH,
            label=_LABELS[MESSAGE],
        ),
    ]
    named = sorted(colour_of, key=lambda job: (len(job), job))
    if len(named) > _MOST_NAMED + 1:
        named, more = named[:_MOST_NAMED], len(named) - _MOST_NAMED
    else:
        more = 0
    handles += [Patch(facecolor=colour_of[job], label=f"job {_short(job)}") for job in named]
    if more:
        handles.append(Patch(facecolor="none", label=f"and {more} more"))
    widest = max(len(str(handle.get_label())) for handle in handles)
    return handles, 8 if widest < 12 else 5


def _draw_rows(axes: Axes, rows: list[_Row], row_in: float) -> None:
    """Label the rows, and separate the servers."""
    axes.grid(visible=False, axis="y")
    axes.set_ylim(rows[-1].top + rows[-1].height, 0)
    axes.set_yticks([row.top + row.height / 2 for row in rows], [row.label for row in rows])
    axes.tick_params(axis="y", length=0, labelsize=min(7.0, 72 * row_in * 0.66))
    first = 0.0
    for row in rows:
        if row.label != _NETWORK:
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
        (network, steps.waiting, "all-reduces waiting", 1),
        (network, steps.running, "all-reduces running", 0),
        (network, steps.peak, "most on one server", 3),
        (queue, steps.queued, "queued jobs", 2),
    )
    from_s, to_s = run.window.from_ns / 1e9, run.window.to_ns / 1e9
    exact = len(steps.time_ns) <= 2 * _BINS
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
            middle_s, mean, most = _binned(steps.time_ns, values)
            axes.fill_between(middle_s, mean, most, color=colour, alpha=0.2, linewidth=0)
            axes.plot(middle_s, mean, color=colour, linestyle=dashes, linewidth=1.0, label=label)
    for axes in (network, queue):
        span = (window.from_ns / 1e9, window.to_ns / 1e9)
        axes.axvspan(*span, facecolor="#88888840", edgecolor="#777777", lw=1.0)
        axes.set_xlim(from_s, to_s)
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        axes.ticklabel_format(axis="x", useOffset=False, style="plain")
    network.set_ylabel("all-reduces")
    queue.set_ylabel("jobs")
    note = "" if exact else "line: mean, shade: maximum; "
    network.set_title(f"Contention ({note}grey: the window above)")
    network.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.1)
    queue.set_title("Queued jobs")
    queue.set_xlabel("simulated time [s]")


def _binned(
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
