"""Predicted against measured iteration times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headway.experiments.validation.outcome import Prediction, by_file, worst
from headway.figure_style import COLOURS, FAINT, INK, house_style
from headway.text_table import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = ("o", "s", "^", "D", "v", "P")
_BAND = 0.15


def validation_figure(predictions: Sequence[Prediction], title: str) -> Figure:
    """Draw predicted against measured times, and how many predictions are within which error."""
    from matplotlib.figure import Figure

    files: dict[str, list[Prediction]] = {}
    for one in predictions:
        files.setdefault(by_file(one), []).append(one)
    with house_style():
        figure = Figure(figsize=(9.0, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        _draw_times(left, files)
        _draw_errors(right, files)
        figure.suptitle(printable(title), x=0.01, ha="left", fontsize=10, parse_math=False)
        for axes in (left, right):
            for name in axes.get_legend().get_texts():
                name.set_parse_math(False)
    return figure


def _draw_times(axes: Axes, files: dict[str, list[Prediction]]) -> None:
    everything = [one for members in files.values() for one in members]
    times_s = [time / 1e9 for one in everything for time in (one.row.time_ns, one.predicted_ns)]
    ends = np.array([min(times_s) / 1.3, max(times_s) * 1.3])
    axes.fill_between(
        ends, ends * (1 - _BAND), ends * (1 + _BAND), color=FAINT, linewidth=0, label="±15%"
    )
    axes.plot(ends, ends, color=INK, linewidth=0.7)
    for number, (name, members) in enumerate(files.items()):
        axes.plot(
            [one.row.time_ns / 1e9 for one in members],
            [one.predicted_ns / 1e9 for one in members],
            _MARKS[number % len(_MARKS)],
            color=COLOURS[number % len(COLOURS)],
            markersize=3.5,
            alpha=0.6,
            markeredgewidth=0,
            label=_label(name),
        )
    middle_s = float(np.sqrt(ends[0] * ends[1]))
    for (one,) in (worst(members, 1) for members in files.values()):
        # Towards the empty corner that is farther away, so that labels stay within the axes.
        left = one.row.time_ns / 1e9 < middle_s
        low = one.predicted_ns / 1e9 < ends[0] * (ends[1] / ends[0]) ** 0.1
        axes.annotate(
            f"{one.row.model_name}, {one.row.degrees}, mb{one.row.plan.micro_batch}",
            (one.row.time_ns / 1e9, one.predicted_ns / 1e9),
            textcoords="offset points",
            xytext=(40, -3) if low else (30, -25) if left else (-30, 25),
            ha="left" if left else "right",
            fontsize=6,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.4},
        )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set(xlabel="measured (s)", ylabel="predicted (s)", title="One iteration")
    axes.legend(loc="upper left")


def _draw_errors(axes: Axes, files: dict[str, list[Prediction]]) -> None:
    for number, (name, members) in enumerate(files.items()):
        sizes = np.sort([100 * abs(one.error) for one in members])
        shares = 100 * np.arange(1, len(sizes) + 1) / len(sizes)
        axes.step(
            np.concatenate([[0], sizes]),
            np.concatenate([[0], shares]),
            where="post",
            color=COLOURS[number % len(COLOURS)],
            label=f"{_label(name)}: mean {np.mean(sizes):.1f}%",
        )
    axes.set(xlabel="absolute error (%)", ylabel="predictions with no larger error (%)")
    axes.set(xlim=(0, None), ylim=(0, 102), title="How far off")
    axes.legend(loc="lower right")


def _label(file: str) -> str:
    """Return a file's name for a legend, which leaves out labels that begin with an underscore."""
    return printable(f" {file}" if file.startswith("_") else file)
