"""The usual figures of a result: completion times, use of the GPUs, contention by server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.durations import duration_text
from headway.figure_style import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    house_style,
    set_time_axis,
    time_unit,
)
from headway.results.levels import held_spans, level, mean_level
from headway.results.time_parts import shown_parts_ns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headway.results.schema import AnyResult
    from headway.results.timeline.recorded import RecordedRun
    from headway.results.timeline.window import Window
    from headway.results.usage import Integers

_WIDTH_IN = 7.0
_BINS = 240
_PART_LOOKS = {
    "waiting": (COLOURS[2], ""),
    "computing": (COLOURS[0], ""),
    "sending": (COLOURS[5], "////"),
    "own messages": (COLOURS[4], "xxxx"),
    "contention": (COLOURS[3], "...."),
}
"""The colour and the hatch of each part of a completion time."""

_WIDE_RANGE = 20
"""Completion times that differ by a larger factor are drawn on a logarithmic axis."""


def overview_figure(result: AnyResult) -> Figure:
    """Draw a run on one page: completion times, GPUs in use, queue, waits by job size."""
    from matplotlib.figure import Figure

    with house_style():
        figure = Figure(figsize=(_WIDTH_IN + 3, 6.4), layout="constrained")
        grid = figure.subplots(2, 2)
        _draw_jct(grid[0, 0], result)
        _draw_held(grid[0, 1], result)
        _draw_queue(grid[1, 1], result)
        _draw_waits(grid[1, 0], result)
    return figure


def jct_figure(result: AnyResult) -> Figure:
    """Draw the cumulative distribution of completion times, with average and percentiles."""
    from matplotlib.figure import Figure

    with house_style():
        figure = Figure(figsize=(_WIDTH_IN, 3.2), layout="constrained")
        _draw_jct(figure.subplots(), result)
    return figure


def use_figure(result: AnyResult) -> Figure:
    """Draw how many GPUs hold a job, and how many jobs are queued, over time."""
    from matplotlib.figure import Figure

    with house_style():
        figure = Figure(figsize=(_WIDTH_IN, 3.8), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        _draw_held(upper, result)
        _draw_queue(lower, result)
        upper.set_xlabel("")
    return figure


def contention_by_server_figure(result: AnyResult) -> Figure:
    """Draw the time that jobs lost to contention, divided evenly among the servers of each job."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    cluster = result.settings.cluster
    lost_s = np.zeros(cluster.servers)
    for gpus, time_ns in zip(result.gpus, result.parts_ns["contention"].tolist(), strict=True):
        servers = cluster.servers_of(gpus)
        lost_s[servers] += time_ns / 1e9 / len(servers)
    with house_style():
        figure = Figure(figsize=(_WIDTH_IN + 3, 2.4), layout="constrained")
        axes = figure.subplots()
        axes.bar(np.arange(len(lost_s)), lost_s, width=0.8, color=COLOURS[3])
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=20, integer=True))
        axes.set_xlim(-0.6, len(lost_s) - 0.4)
        axes.set_xlabel("server")
        set_time_axis(axes.yaxis, "time lost", float(lost_s.max()))
        axes.set_title("Contention by server")
    return figure


def _draw_jct(axes: Axes, result: AnyResult) -> None:
    jct_s, summary = np.sort(result.jct_s), result.summary
    share = np.arange(1, len(jct_s) + 1) / len(jct_s)
    axes.step(
        np.concatenate([jct_s[:1], jct_s]),
        np.concatenate([[0], 100 * share]),
        where="post",
        color=COLOURS[0],
    )
    marks = (
        ("median", summary.median_jct_s, 2),
        ("average", summary.average_jct_s, 1),
        ("95th percentile", summary.p95_jct_s, 3),
    )
    for label, value_s, style in marks:
        axes.axvline(
            value_s,
            color=COLOURS[style],
            linestyle=DASHES[style],
            linewidth=1.2,
            label=f"{label}: {_time_text(value_s, float(jct_s[-1]))}",
        )
    if jct_s[-1] > _WIDE_RANGE * jct_s[0]:
        axes.set_xscale("log")
    axes.set_ylim(0, 100)
    set_time_axis(axes.xaxis, "job completion time", float(jct_s[-1]))
    axes.set_ylabel("jobs finished within [%]")
    axes.set_title(f"Completion times of {len(jct_s):,} job{'s' * (len(jct_s) != 1)}")
    axes.legend(loc="upper left" if axes.get_xscale() == "log" else "lower right")


def _time_text(time_s: float, longest_s: float) -> str:
    """Return a time in words where the axis is not in seconds."""
    unit, _ = time_unit(longest_s)
    return f"{time_s:,.1f} s" if unit == "s" else duration_text(time_s)


def _draw_held(axes: Axes, result: AnyResult) -> None:
    total = result.settings.cluster.gpus
    _draw_level(axes, *held_spans(result), COLOURS[0], result)
    axes.axhline(total, color=INK, linestyle=DASHES[1], linewidth=0.8)
    axes.set_ylim(0, total * 1.08)
    axes.set_ylabel("GPUs")
    axes.set_title(f"GPUs in use, of {total:,}")


def _draw_queue(axes: Axes, result: AnyResult) -> None:
    most = _draw_level(axes, result.arrival_ns, result.start_ns, COLOURS[2], result)
    axes.set_ylim(0, max(1.0, most * 1.08))
    axes.set_ylabel("jobs")
    axes.set_title("Queued jobs")


def _draw_level(
    axes: Axes, start_ns: Integers, end_ns: Integers, colour: str, result: AnyResult
) -> int:
    """Draw the number of open spans over the makespan; return the largest."""
    from matplotlib.ticker import MaxNLocator

    first_ns, last_ns = int(result.arrival_ns.min()), int(result.finish_ns.max())
    instants_ns, number = level(start_ns, end_ns, first_ns, last_ns)
    time_s = instants_ns / 1e9
    axes.fill_between(time_s, number, step="post", color=colour, alpha=0.25, linewidth=0)
    axes.step(time_s, number, where="post", color=colour, linewidth=1.0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.set_xlim(first_ns / 1e9, last_ns / 1e9)
    set_time_axis(axes.xaxis, "simulated time", (last_ns - first_ns) / 1e9)
    return int(number.max())


def _draw_waits(axes: Axes, result: AnyResult) -> None:
    """Draw the mean completion time of the jobs of each size, divided into its parts."""
    sizes = np.array([len(gpus) for gpus in result.gpus])
    doublings = np.ceil(np.log2(sizes))
    shown = np.unique(doublings)
    left = np.zeros(len(shown))
    rows = np.arange(len(shown))
    for name, part in shown_parts_ns(result.parts_ns).items():
        colour, hatch = _PART_LOOKS[name]
        means = np.array([part[doublings == one].mean() / 1e9 for one in shown])
        axes.barh(
            rows,
            means,
            left=left,
            height=0.7,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0,
            label=name,
        )
        left += means
    axes.set_yticks(rows, [_range(sizes[doublings == one]) for one in shown])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_ylabel("GPUs of the job")
    set_time_axis(axes.xaxis, "mean completion time", float(left.max()))
    axes.set_title("Where the time goes, by job size")
    axes.legend(ncols=2)


def contention_figure(run: RecordedRun) -> Figure:
    """Draw the mean number of messages on each server over time, and how often it has several."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    window, servers = run.window, run.servers
    edges_ns = np.linspace(window.from_ns, window.to_ns, _BINS + 1)
    mean = np.zeros((servers, _BINS))
    one, several = np.zeros(servers), np.zeros(servers)
    spans = run.messages.select("servers", "start_ns", "end_ns").explode("servers")
    server, start_ns, end_ns = (spans[name].to_numpy() for name in spans.columns)
    start_ns = np.clip(start_ns, window.from_ns, window.to_ns)
    end_ns = np.clip(end_ns, window.from_ns, window.to_ns)
    for index in range(servers):
        here = server == index
        mean[index] = mean_level(start_ns[here], end_ns[here], edges_ns)
        one[index], several[index] = _shares(start_ns[here], end_ns[here], window)
    with house_style():
        height_in = min(9.0, 1.5 + max(1.2, 0.16 * servers))
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
        image = left.imshow(
            mean,
            aspect="auto",
            interpolation="nearest",
            cmap="Blues",
            vmin=0,
            vmax=max(1.0, float(mean.max())),
            extent=(window.from_ns / 1e9, window.to_ns / 1e9, servers - 0.5, -0.5),
        )
        left.grid(visible=False)
        left.set_ylabel("server")
        left.set_title("Messages on each server")
        left.yaxis.set_major_locator(MaxNLocator(nbins=20, integer=True))
        set_time_axis(left.xaxis, "simulated time", (window.to_ns - window.from_ns) / 1e9)
        bar = figure.colorbar(image, ax=left, location="bottom", aspect=50, pad=0.02)
        bar.set_label("messages at a time, mean")
        bar.outline.set_linewidth(0.5)
        _draw_shares(right, one, several)
    return figure


def _range(sizes: Integers) -> str:
    low, high = int(sizes.min()), int(sizes.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _draw_shares(axes: Axes, one: NDArray[np.float64], several: NDArray[np.float64]) -> None:
    """Draw for each server the share of time with one message and with several."""
    index = np.arange(len(one))
    axes.barh(index, 100 * one, height=0.8, color=COLOURS[0], label="one message")
    axes.barh(index, 100 * several, left=100 * one, height=0.8, color=COLOURS[3], label="several")
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=FAINT)
    axes.set_xlim(0, max(1.0, 105 * float((one + several).max())))
    axes.set_xlabel("time with messages [%]")
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), borderaxespad=0.2, handlelength=1.0)


def _shares(start_ns: Integers, end_ns: Integers, window: Window) -> tuple[float, float]:
    """Return the shares of a window with exactly one open span, and with several."""
    instants_ns, number = level(start_ns, end_ns, window.from_ns, window.to_ns)
    length_s = np.diff(instants_ns / 1e9)
    span_s = (window.to_ns - window.from_ns) / 1e9
    one = float(length_s[number[:-1] == 1].sum()) / span_s
    return one, float(length_s[number[:-1] > 1].sum()) / span_s
