"""The figures of the experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headway.domain.models import MODELS
from headway.experiments.overlap.bounds import Iteration
from headway.experiments.overlap.cases import BY_BUCKET, MEMORIES, POLICIES, SHOWN, with_workload
from headway.experiments.overlap.findings import gain
from headway.experiments.overlap.workloads import BUCKETS, OVERLAPPED, PAPER
from headway.experiments.reproduction.evaluation import CLASSES, Evaluation
from headway.experiments.reproduction.figures import new_figure
from headway.experiments.statistics import Estimate, paired_ratio
from headway.figure_style import COLOURS, DASHES, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def gains(evaluation: Evaluation) -> Figure:
    """Draw the ratio with overlap to without, of average JCT and makespan, under every policy."""
    figure = new_figure(0.9 + 0.28 * len(POLICIES))
    panels = figure.subplots(1, 2, sharey=True)
    rows = {name: -row for row, name in enumerate(POLICIES)}
    titles = ("Average JCT, overlapped / plain", "Makespan, overlapped / plain")
    for number, (memory, gb) in enumerate(MEMORIES.items()):
        found = {
            name: gain(evaluation, replace(case, gpu_memory_gb=gb))
            for name, case in POLICIES.items()
        }
        for axes, metric in zip(panels, ("jct", "makespan"), strict=True):
            ratios = {
                rows[name] + 0.15 - 0.3 * number: getattr(one, metric)
                for name, one in found.items()
            }
            _intervals(axes, ratios, number, memory)
    for axes, title in zip(panels, titles, strict=True):
        axes.axvline(1, color=INK, linewidth=0.9)
        axes.set(xlabel=title, ylim=(0.5 - len(rows), 0.5))
    panels[0].set_yticks(list(rows.values()), list(rows))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="upper right", ncols=2)
    figure.subplots_adjust(left=0.2, wspace=0.08, top=0.9)
    return figure


def groups(evaluation: Evaluation) -> Figure:
    """Draw the ratio of average JCTs by class of jobs and by model, for some policies."""
    figure = new_figure(2.7)
    panels = figure.subplots(1, 2, sharey=True)
    columns: dict[str, Sequence[object]] = {
        "class": list(range(len(CLASSES))),
        "model": list(MODELS),
    }
    labels = {"class": [name.replace(", ", ",\n") for name in CLASSES], "model": list(MODELS)}
    for axes, (column, values) in zip(panels, columns.items(), strict=True):
        for index, (name, case) in enumerate(SHOWN.items()):
            ratios = evaluation.group_ratios(with_workload(case, OVERLAPPED), case, column, values)
            at = np.arange(len(values)) + 0.2 * (index - 1)
            axes.errorbar(
                at,
                [one.value for one in ratios],
                [one.margin for one in ratios],
                linestyle="",
                marker="osD"[index],
                markersize=4,
                capsize=2,
                color=COLOURS[(0, 3, 2)[index]],
                label=name,
            )
        axes.axhline(1, color=INK, linewidth=0.9)
        axes.set_xticks(range(len(values)), labels[column])
        axes.grid(visible=False, axis="x")
    panels[0].set(ylabel="Average JCT, overlapped / plain")
    panels[0].set_title("(a) by class of jobs")
    panels[1].set_title("(b) by model")
    handles, names = panels[1].get_legend_handles_labels()
    figure.legend(handles, names, loc="upper right", ncols=len(names), columnspacing=1.2)
    figure.subplots_adjust(wspace=0.08, top=0.84)
    return figure


def iterations(alone: Sequence[Iteration]) -> Figure:
    """Draw one iteration of each model alone: plain, overlapped, and the bound."""
    figure = new_figure(2.6)
    axes = figure.subplots()
    for index, one in enumerate(alone):
        parts = {
            "forward": (0, one.forward_ns),
            "backward": (one.forward_ns, one.backward_ns),
            "all-reduce": (one.forward_ns + one.backward_ns, one.all_reduce_ns),
        }
        for place, (name, (begin, length)) in enumerate(parts.items()):
            axes.barh(
                -index + 0.22,
                length / 1e6,
                0.3,
                begin / 1e6,
                color=COLOURS[(0, 5, 1)[place]],
                label=name if index == 0 else None,
            )
        axes.barh(
            -index - 0.14,
            one.length_ns / 1e6,
            0.3,
            color=COLOURS[2],
            label="overlapped" if index == 0 else None,
        )
        axes.plot(
            [one.least_ns / 1e6] * 2,
            [-index - 0.34, -index + 0.06],
            color=INK,
            linewidth=1.5,
            label="least with any overlap" if index == 0 else None,
        )
    axes.set_yticks([-index for index in range(len(alone))], [one.model for one in alone])
    axes.set(xlabel="One iteration alone on two servers [ms]", xlim=(0, None))
    axes.grid(visible=False, axis="y")
    axes.legend(loc="lower right")
    figure.subplots_adjust(left=0.12)
    return figure


def buckets(evaluation: Evaluation, alone: Mapping[str, Sequence[Iteration]]) -> Figure:
    """Draw the iteration alone and the average JCT by size of buckets, as ratios to plain jobs."""
    figure = new_figure(2.7)
    left, right = figure.subplots(1, 2)
    sizes = [label for label, workload in BUCKETS.items() if workload != PAPER]
    at = np.arange(len(sizes))
    for index, model in enumerate(MODELS):
        ratios = []
        for label in sizes:
            (one,) = [one for one in alone[BUCKETS[label]] if one.model == model]
            ratios.append(one.length_ns / one.plain_ns)
        left.plot(
            at,
            ratios,
            color=COLOURS[index],
            linestyle=DASHES[index],
            marker="o",
            label=model,
            markersize=3.5,
        )
    for index, (name, case) in enumerate(BY_BUCKET.items()):
        plain = evaluation.sample(case, "average_jct_s")
        found = [
            paired_ratio(
                evaluation.sample(with_workload(case, BUCKETS[label]), "average_jct_s"), plain
            )
            for label in sizes
        ]
        right.errorbar(
            at + 0.04 * index,
            [one.value for one in found],
            [one.margin for one in found],
            color=COLOURS[(0, 2)[index]],
            linestyle=DASHES[index],
            marker="oD"[index],
            markersize=3.5,
            capsize=2,
            label=name,
        )
    for axes, title in ((left, "(a) one iteration alone"), (right, "(b) average JCT of 160 jobs")):
        axes.axhline(1, color=INK, linewidth=0.9)
        axes.set_xticks(at, sizes)
        axes.set(xlabel="Size of a bucket", ylabel="Ratio to the plain jobs")
        axes.set_title(title)
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.4 * (high - low), high)
        axes.legend(loc="lower left")
    return figure


def _intervals(axes: Axes, ratios: Mapping[float, Estimate], number: int, label: str) -> None:
    colour, marker = COLOURS[(0, 3)[number]], "os"[number]
    for row, ratio in ratios.items():
        axes.plot([ratio.low, ratio.high], [row] * 2, color=colour)
        axes.plot(ratio.value, row, color=colour, marker=marker, markersize=4)
    axes.plot([], [], color=colour, marker=marker, markersize=4, label=label)
