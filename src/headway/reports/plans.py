"""A figure of the plans of a model: iteration time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.figure_style import COLOURS, INK, house_style
from headway.text_table import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headway.llm.plans import RankedPlan

_WIDTH_IN = 7.0
_MARKERS = "osD^vPX*"
_NAMED = 3
_SLOWEST = 2.5
"""Plans that take more times as long as the fastest are outside the figure."""


def plans_figure(
    estimated: Sequence[RankedPlan], ranked: Sequence[RankedPlan], gpu_bytes: int, title: str
) -> Figure:
    """Draw iteration time over memory: estimates of all plans, and the fastest as simulated."""
    from matplotlib.figure import Figure

    tensors = sorted({one.plan.tensor for one in estimated})
    named = ranked[:_NAMED]
    with house_style():
        figure = Figure(figsize=(_WIDTH_IN, 5.0), layout="constrained")
        axes = figure.subplots()
        for number, tensor in enumerate(tensors):
            some = [one for one in estimated if one.plan.tensor == tensor]
            axes.plot(
                *_spots(some),
                linestyle="",
                marker=_MARKERS[number % len(_MARKERS)],
                markersize=3.5,
                alpha=0.5,
                color=COLOURS[number % len(COLOURS)],
                label=f"tensor {tensor}",
            )
        axes.plot(
            *_spots(named),
            linestyle="",
            marker="o",
            markersize=8,
            markerfacecolor="none",
            markeredgecolor=INK,
            label="fastest, simulated",
        )
        limit = gpu_bytes / 2**30
        axes.axvline(limit, color=INK, linewidth=0.8, linestyle=":")
        axes.annotate(
            "memory of a GPU",
            (limit, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            rotation=90,
            va="top",
        )
        for number, one in enumerate(named, start=1):
            spot = (one.memory.total / 2**30, one.iteration_ns / 1e9)
            axes.annotate(
                str(number),
                spot,
                xytext=(8 * (number - 2), -15),
                textcoords="offset points",
                ha="center",
            )
        fastest_s = ranked[0].iteration_ns / 1e9
        axes.set_ylim(0.85 * fastest_s, _SLOWEST * fastest_s)
        axes.set_xlim(0, 1.06 * limit)
        names = "\n".join(f"{number}: {one.plan}" for number, one in enumerate(named, start=1))
        axes.set_xlabel(f"memory of the fullest GPU (GB)\n\n{names}")
        axes.set_ylabel("iteration (s)")
        axes.set_title(printable(title), parse_math=False)
        axes.legend(loc="upper left")
    return figure


def _spots(plans: Sequence[RankedPlan]) -> tuple[list[float], list[float]]:
    return (
        [one.memory.total / 2**30 for one in plans],
        [one.iteration_ns / 1e9 for one in plans],
    )
