"""The usual figures of a result: completion times, use of the GPUs, contention by server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.figure_style import COLOURS, DASHES, FAINT, INK, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headway.results.schema import Result
    from headway.results.timeline.recorded import RecordedRun
    from headway.results.timeline.window import Window
    from headway.results.usage import Integers

_WIDTH_IN = 7.0
_BINS = 240
_WIDE_RANGE = 20
"""Completion times that differ by a larger factor are drawn on a logarithmic axis."""


def jct_figure(result: Result) -> Figure:
    """Draw the cumulative distribution of completion times, with average and percentiles."""
    from matplotlib.figure import Figure

    jct_s, summary = np.sort(result.jct_s), result.summary
    share = np.arange(1, len(jct_s) + 1) / len(jct_s)
    with house_style():
        figure = Figure(figsize=(_WIDTH_IN, 3.2), layout="constrained")
        axes = figure.subplots()
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
                label=f"{label}: {value_s:,.1f} s",
            )
        if jct_s[-1] > _WIDE_RANGE * jct_s[0]:
            axes.set_xscale("log")
        axes.set_ylim(0, 100)
        axes.set_xlabel("job completion time [s]")
        axes.set_ylabel("jobs finished within [%]")
        axes.set_title(f"Completion times of {len(jct_s):,} job{'s' * (len(jct_s) != 1)}")
        axes.legend(loc="upper left" if axes.get_xscale() == "log" else "lower right")
    return figure


def use_figure(result: Result) -> Figure:
    """Draw how many GPUs hold a job, and how many jobs are queued, over time."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    total = result.settings.cluster.gpus
    first_ns, last_ns = int(result.arrival_ns.min()), int(result.finish_ns.max())
    with house_style():
        figure = Figure(figsize=(_WIDTH_IN, 3.8), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        time_s, held = _level(*_held_spans(result), first_ns, last_ns)
        upper.fill_between(time_s, held, step="post", color=COLOURS[0], alpha=0.25, linewidth=0)
        upper.step(time_s, held, where="post", color=COLOURS[0], linewidth=1.0)
        upper.axhline(total, color=INK, linestyle=DASHES[1], linewidth=0.8)
        upper.set_ylim(0, total * 1.08)
        upper.set_ylabel("GPUs")
        upper.set_title(f"GPUs in use, of {total:,}")
        time_s, queued = _level(result.arrival_ns, result.start_ns, first_ns, last_ns)
        lower.fill_between(time_s, queued, step="post", color=COLOURS[2], alpha=0.25, linewidth=0)
        lower.step(time_s, queued, where="post", color=COLOURS[2], linewidth=1.0)
        lower.set_ylim(0, max(1.0, float(queued.max()) * 1.08))
        lower.set_ylabel("jobs")
        lower.set_title("Queued jobs")
        lower.set_xlabel("simulated time [s]")
        for axes in (upper, lower):
            axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        lower.set_xlim(first_ns / 1e9, last_ns / 1e9)
        lower.ticklabel_format(axis="x", useOffset=False, style="plain")
    return figure


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
        mean[index] = _mean_level(start_ns[here], end_ns[here], edges_ns)
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
        left.set_xlabel("simulated time [s]")
        left.set_ylabel("server")
        left.set_title("Messages on each server")
        left.yaxis.set_major_locator(MaxNLocator(nbins=20, integer=True))
        left.ticklabel_format(axis="x", useOffset=False, style="plain")
        bar = figure.colorbar(image, ax=left, location="bottom", aspect=50, pad=0.02)
        bar.set_label("messages at a time, mean")
        bar.outline.set_linewidth(0.5)
        _draw_shares(right, one, several)
    return figure


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


def _held_spans(result: Result) -> tuple[Integers, Integers]:
    """Return the spans in which each GPU holds at least one job."""
    counts = [len(gpus) for gpus in result.gpus]
    gpu = np.concatenate([np.array(gpus, np.int64) for gpus in result.gpus])
    start_ns, finish_ns = np.repeat(result.start_ns, counts), np.repeat(result.finish_ns, counts)
    order = np.lexsort((start_ns, gpu))
    starts, ends = [], []
    current, begun_ns, until_ns = -1, 0, 0
    columns = (column[order].tolist() for column in (gpu, start_ns, finish_ns))
    for holder, from_ns, to_ns in zip(*columns, strict=True):
        if holder != current or from_ns > until_ns:
            if current >= 0:
                starts.append(begun_ns)
                ends.append(until_ns)
            current, begun_ns, until_ns = holder, from_ns, to_ns
        until_ns = max(until_ns, to_ns)
    return np.array([*starts, begun_ns], np.int64), np.array([*ends, until_ns], np.int64)


def _level(
    start_ns: Integers, end_ns: Integers, first_ns: int, last_ns: int
) -> tuple[NDArray[np.float64], Integers]:
    """Return the times in seconds at which the number of open spans changes, and that number."""
    instants = np.unique(np.concatenate([[first_ns], start_ns, end_ns, [last_ns]]))
    begun = np.searchsorted(np.sort(start_ns), instants, side="right")
    ended = np.searchsorted(np.sort(end_ns), instants, side="right")
    return instants / 1e9, (begun - ended).astype(np.int64)


def _mean_level(
    start_ns: Integers, end_ns: Integers, edges_ns: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean number of open spans between each two edges."""
    area = _elapsed(start_ns, edges_ns) - _elapsed(end_ns, edges_ns)
    mean: NDArray[np.float64] = np.diff(area) / np.diff(edges_ns)
    return np.maximum(mean, 0.0)


def _elapsed(since_ns: Integers, edges_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the total time that has passed at each edge since those instants before it."""
    instants = np.sort(since_ns - edges_ns[0])
    edges = edges_ns - edges_ns[0]
    count = np.searchsorted(instants, edges, side="right")
    total: NDArray[np.float64] = count * edges - np.concatenate([[0.0], np.cumsum(instants)])[count]
    return total


def _shares(start_ns: Integers, end_ns: Integers, window: Window) -> tuple[float, float]:
    """Return the shares of a window with exactly one open span, and with several."""
    time_s, level = _level(start_ns, end_ns, window.from_ns, window.to_ns)
    length_s = np.diff(time_s)
    span_s = (window.to_ns - window.from_ns) / 1e9
    one = float(length_s[level[:-1] == 1].sum()) / span_s
    return one, float(length_s[level[:-1] > 1].sum()) / span_s
