"""The figures of the report: the paper's Fig. 2 and 4 to 6 with our data, and a few more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.experiments.reproduction.claims import Finding
from headway.experiments.reproduction.contention import (
    MAX_CONCURRENT,
    MESSAGE_BYTES,
    SIZES_BYTES,
    Example,
    concurrent_all_reduce_s,
)
from headway.experiments.reproduction.evaluation import CLASSES, Evaluation
from headway.experiments.reproduction.paper import ALONE_S, PUBLISHED, TOGETHER_S, Case
from headway.experiments.statistics import Estimate, Sample, mean
from headway.figure_style import COLOURS, DASHES, INK
from headway.network.contention import NetworkModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.2
"""The text width of a two-column paper, in inches."""

_MARKER: dict[str, Any] = {
    "marker": "D",
    "markersize": 5,
    "markerfacecolor": "white",
    "markeredgecolor": INK,
}
"""The marker of published figures."""


def comparison(evaluation: Evaluation, cases: Mapping[str, Case]) -> Figure:
    """Draw what the paper's Fig. 4, 5 and 6 each draw: JCTs, GPU utilization, average JCT."""
    figure = new_figure(2.5)
    jct, utilization, average = figure.subplots(1, 3)
    for index, (name, case) in enumerate(cases.items()):
        look = {"color": COLOURS[index], "linestyle": DASHES[index], "label": name}
        jct.plot(*_cumulative(evaluation.jct_s(case)), **look)
        utilization.plot(*_cumulative(100 * evaluation.gpu_utilization(case)), **look)
    jct.set_xscale("log")
    jct.set(xlabel="Job completion time [s]", ylabel="Jobs [%]", ylim=(0, 100))
    utilization.set(xlabel="GPU utilization [%]", ylabel="GPUs [%]", xlim=(0, None), ylim=(0, 100))
    utilization.legend(loc="lower right", handlelength=3)
    _bars(
        average,
        {name: mean(evaluation.sample(case, "average_jct_s")) for name, case in cases.items()},
    )
    published = [PUBLISHED[case].average_jct_s for case in cases.values() if case in PUBLISHED]
    if len(published) == len(cases):
        average.plot(range(len(cases)), published, linestyle="", label="published", **_MARKER)
        average.legend(loc="upper right")
    average.set(ylabel="Average JCT [s]", ylim=(0, average.get_ylim()[1] * 1.15))
    for axes, title in zip((jct, utilization, average), "abc", strict=True):
        axes.set_title(f"({title})")
    return figure


def classes(evaluation: Evaluation, groups: Sequence[Mapping[str, Case]]) -> Figure:
    """Draw the average completion time of each class of jobs."""
    figure = new_figure(2.6)
    panels = figure.subplots(1, len(groups), sharey=True)
    for axes, cases in zip(panels, groups, strict=True):
        width = 0.82 / len(cases)
        for index, (name, case) in enumerate(cases.items()):
            bars = evaluation.class_average_jct_s(case)
            at = np.arange(len(CLASSES)) - 0.41 + width * (index + 0.5)
            axes.bar(
                at,
                [bar.value for bar in bars],
                width,
                yerr=_whiskers(bars),
                error_kw={"elinewidth": 0.7, "ecolor": INK},
                color=COLOURS[index],
                label=name,
            )
        axes.set_xticks(range(len(CLASSES)), [name.replace(", ", ",\n") for name in CLASSES])
        axes.set_yscale("log")
        axes.grid(visible=False, axis="x")
        axes.legend(loc="upper left", ncols=2, columnspacing=0.8, handlelength=1)
    panels[0].set(ylabel="Average JCT [s]", ylim=(100, None))
    figure.subplots_adjust(wspace=0.08)
    return figure


def contention(network: NetworkModel) -> Figure:
    """Draw the paper's Fig. 2: one all-reduce by size, and k at once of 100 MB each."""
    figure = new_figure(2.6)
    single, several = figure.subplots(1, 2)
    sizes = np.array(SIZES_BYTES)
    line = [network.all_reduce_ns(int(size)) / 1e6 for size in sizes]
    points = [concurrent_all_reduce_s(int(size), 1, network) * 1e3 for size in sizes]
    single.plot(sizes / 2**20, line, color=COLOURS[0], label="a + b M")
    single.plot(sizes / 2**20, points, "o", markersize=3.5, color=COLOURS[3], label="engine")
    single.set_xscale("log")
    single.set_yscale("log")
    single.set(xlabel="Message size M [MB]", ylabel="Time of one all-reduce [ms]")
    ks = np.arange(1, MAX_CONCURRENT + 1)
    with_penalty = [network.all_reduce_ns(MESSAGE_BYTES, int(k)) / 1e6 for k in ks]
    fair = (network.a_ns + ks * network.b_ns_per_byte * MESSAGE_BYTES) / 1e6
    points = [concurrent_all_reduce_s(MESSAGE_BYTES, int(k), network) * 1e3 for k in ks]
    several.plot(ks, with_penalty, color=COLOURS[0], label="a + k b M + (k − 1) η M")
    several.plot(ks, fair, color=COLOURS[2], linestyle=DASHES[1], label="a + k b M")
    several.plot(ks, points, "o", markersize=3.5, color=COLOURS[3], label="engine")
    several.set(
        xlabel="All-reduces at once, k", ylabel="Time of each (100 MB) [ms]", ylim=(0, None)
    )
    for axes, title in zip((single, several), "ab", strict=True):
        axes.set_title(f"({title})")
        axes.legend(loc="upper left")
    return figure


def introduction(examples: Sequence[Example]) -> Figure:
    """Draw the introduction's example with each of the paper's models."""
    figure = new_figure(2.6)
    axes = figure.subplots()
    series = {
        "one job alone": [example.alone_s for example in examples],
        "four at once, all admitted": [example.together_s for example in examples],
        "four at once, Ada-SRSF": [example.together_ada_srsf_s for example in examples],
        "four at once, SRSF(1)": [example.together_srsf_1_s for example in examples],
    }
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        at = np.arange(len(examples)) - 0.4 + width * (index + 0.5)
        axes.bar(at, values, width * 0.95, color=COLOURS[index], label=name)
    for value, text in ((ALONE_S, "published, alone"), (TOGETHER_S, "published, four at once")):
        axes.axhline(value, color=INK, linewidth=0.9, linestyle=DASHES[1])
        axes.text(len(examples) - 0.42, value, f" {text}\n {value:.0f} s", va="center", fontsize=7)
    axes.set_xticks(range(len(examples)), [example.model for example in examples])
    axes.set(
        xlim=(-0.5, len(examples) - 0.45), ylabel="Average JCT [s]", xlabel="Model of the jobs"
    )
    axes.grid(visible=False, axis="x")
    figure.subplots_adjust(right=0.8)
    axes.legend(loc="upper right", ncols=2)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
    return figure


def claims(findings: Mapping[str, Sequence[Finding]]) -> Figure:
    """Draw every claimed ratio: the published one, and ours in each setting with its interval."""
    published = {
        finding.claim: finding.published_ratio
        for finding in next(iter(findings.values()))
        if finding.published_ratio is not None
    }
    rows = {claim: -row for row, claim in enumerate(published)}
    figure = new_figure(0.8 + 0.26 * len(rows))
    axes = figure.subplots()
    for number, (setting, found) in enumerate(findings.items()):
        look: dict[str, Any] = {
            "color": COLOURS[(0, 3)[number]],
            "marker": "os"[number],
            "markersize": 4,
        }
        for finding in found:
            if finding.ratio is not None:
                row, ratio = rows[finding.claim] + 0.16 - 0.32 * number, finding.ratio
                axes.plot([max(ratio.low, 0.05), ratio.high], [row] * 2, color=look["color"])
                axes.plot(ratio.value, row, **look)
        axes.plot([], [], label=f"ours, {setting}, with 95% interval", **look)
    axes.plot(list(published.values()), list(rows.values()), linestyle="", **_MARKER)
    axes.plot([], [], linestyle="", label="published", **_MARKER)
    axes.axvline(1, color=INK, linewidth=0.9)
    axes.set_xscale("log")
    ticks = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(list(rows.values()), list(rows))
    axes.set(xlabel="Ratio of the two means (1: no difference)")
    lows = [f.ratio.low for found in findings.values() for f in found if f.ratio is not None]
    axes.set(xlim=(max(0.05, min(0.2, *lows)), 4), ylim=(0.4 - len(rows), 0.6))
    figure.legend(loc="upper right", ncols=3, columnspacing=1.2)
    figure.subplots_adjust(left=0.47, bottom=0.12, top=0.92)
    return figure


def new_figure(height: float) -> Figure:
    """Return an empty figure of the report's width, with room for titles and labels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    figure.subplots_adjust(
        left=0.085, right=0.99, bottom=0.48 / height, top=1 - 0.24 / height, wspace=0.36
    )
    return figure


def _cumulative(values: Sample) -> tuple[Sample, Sample]:
    """Return the points of a cumulative distribution: at most 400, and percent."""
    percent = np.linspace(0, 100, min(len(values), 400))
    return np.percentile(values, percent), percent


def _bars(axes: Axes, bars: Mapping[str, Estimate]) -> None:
    axes.bar(
        range(len(bars)),
        [bar.value for bar in bars.values()],
        0.7,
        yerr=_whiskers(list(bars.values())),
        color=COLOURS[: len(bars)],
        error_kw={"elinewidth": 1, "capsize": 3, "ecolor": INK},
    )
    short = [
        name.removeprefix("κ = ").replace("(", "\n(").replace("Ada-", "Ada-\n") for name in bars
    ]
    axes.set_xticks(range(len(bars)), short)
    if all(name.startswith("κ") for name in bars):
        axes.set_xlabel("κ")
    axes.grid(visible=False, axis="x")


def _whiskers(bars: Sequence[Estimate]) -> list[list[float]]:
    return [[bar.margin for bar in bars]] * 2
