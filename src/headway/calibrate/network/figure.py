"""The figure of a fit, after the paper's Fig. 2: time by message size, and by k."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headway.calibrate.network.cells import Cell, cells_of
from headway.calibrate.network.fit import Fit
from headway.calibrate.network.samples import Sample, Shot
from headway.domain.estimates import Estimate
from headway.domain.models import MEBIBYTE
from headway.figure_style import COLOURS, DASHES, house_style, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 7.2, 2.9
"""Inches: the text width of a two-column paper."""


def draw(fit: Fit, samples: Iterable[Sample], path: str | os.PathLike[str]) -> None:
    """Draw the shots and the fitted lines; the suffix of the path sets the format."""
    from matplotlib.figure import Figure

    cells = cells_of(samples)
    several = fit.eta_ns_per_byte is not None
    with house_style():
        figure = Figure(figsize=(_WIDTH if several else _WIDTH / 2, _HEIGHT), layout="constrained")
        panels = figure.subplots(1, 2 if several else 1, squeeze=False)[0]
        _by_size(panels[0], fit, [cell for cell in cells if cell.k == 1])
        if several:
            message_bytes = _most_measured(cells)
            members = [cell for cell in cells if cell.message_bytes == message_bytes]
            _by_k(panels[1], fit, members, message_bytes)
        save_figure(figure, path)


def _by_size(axes: Axes, fit: Fit, cells: Sequence[Cell]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    network = fit.network
    smallest, largest = cells[0].message_bytes, cells[-1].message_bytes
    sizes = [smallest * (largest / smallest) ** (step / 100) for step in range(101)]
    axes.plot(
        [size / MEBIBYTE for size in sizes],
        [(network.a_ns + network.b_ns_per_byte * size) / 1e6 for size in sizes],
        color=COLOURS[0],
        label="a + b M",
    )
    _scatter(axes, [(cell.message_bytes / MEBIBYTE, cell) for cell in cells])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(xlabel="Message size M [MB]", ylabel="Time of one all-reduce [ms]")
    for axis in (axes.xaxis, axes.yaxis):
        # 1, 2 and 5 of every decade: readable whether the sizes span one decade or five.
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if largest < 1000 * smallest else (1,)))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set_title(
        f"a = {_interval(fit.a_ns, 1e-6)} ms\nb = {_interval(fit.b_ns_per_byte)} ns/byte"
    )
    axes.legend(loc="upper left")


def _by_k(axes: Axes, fit: Fit, cells: Sequence[Cell], message_bytes: int) -> None:
    network, eta = fit.network, fit.eta_ns_per_byte
    assert eta is not None
    ks = range(1, max(cell.k for cell in cells) + 1)
    fair = [(network.a_ns + k * network.b_ns_per_byte * message_bytes) / 1e6 for k in ks]
    model = [network.all_reduce_ns(message_bytes, k) / 1e6 for k in ks]
    axes.plot(ks, model, color=COLOURS[0], label="a + k b M + (k − 1) η M")
    axes.plot(ks, fair, color=COLOURS[2], linestyle=DASHES[1], label="a + k b M")
    _scatter(axes, [(cell.k, cell) for cell in cells])
    axes.set(
        xlabel="All-reduces at once, k",
        ylabel=f"Time of the last ({message_bytes / MEBIBYTE:.3g} MB) [ms]",
        ylim=(0, None),
    )
    axes.locator_params(axis="x", integer=True)
    axes.set_title(
        f"η = {_interval(eta)} ns/byte\n({eta.value / fit.b_ns_per_byte.value:.1%} of b)"
    )
    axes.legend(loc="upper left")


def _scatter(axes: Axes, cells: Sequence[tuple[float, Cell]]) -> None:
    """Draw every shot: kept ones as dots, outliers as crosses."""
    for name, marker, size in (("kept", "o", 3.0), ("outliers", "x", 4.0)):
        points: list[tuple[float, Shot]] = [
            (place, shot) for place, cell in cells for shot in getattr(cell, name)
        ]
        if points:
            axes.plot(
                [place for place, _ in points],
                [shot.time_ns / 1e6 for _, shot in points],
                linestyle="",
                marker=marker,
                markersize=size,
                color=COLOURS[3],
                alpha=0.6,
                label="measured" if name == "kept" else "outlier",
            )


def _most_measured(cells: Sequence[Cell]) -> int:
    """Return the size measured at the most values of k, the largest if there are several."""
    counts: dict[int, int] = {}
    for cell in cells:
        counts[cell.message_bytes] = counts.get(cell.message_bytes, 0) + 1
    return max(counts, key=lambda size: (counts[size], size))


def _interval(estimate: Estimate, factor: float = 1.0) -> str:
    return (
        f"{factor * estimate.value:.3g} ({factor * estimate.low:.3g} to "
        f"{factor * estimate.high:.3g})"
    )
