"""Formats a fit as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from headway.calibrate.network.fit import CellFit, Fit
from headway.domain.estimates import Estimate
from headway.domain.models import MEBIBYTE
from headway.text_table import UNLIMITED, TextTable, wrap

_WIDTH = 100


def report(fit: Fit, width: int = UNLIMITED) -> str:
    """Return the fit as plain text: coefficients, cells, remarks and the verdict.

    Lines have at most `width` characters.
    """
    lines = [
        *_coefficients(fit),
        "",
        *_grid(fit.cells, width),
        "",
        f"{fit.shots:,} shots" + (f", {fit.outliers:,} outliers left out" if fit.outliers else ""),
    ]
    for remark in fit.remarks:
        lines += textwrap.wrap(f"{remark.code}: {remark.text}", _WIDTH, subsequent_indent="  ")
    verdict = "describes" if fit.fits else "does NOT describe"
    lines.append(
        f"The model {verdict} this network: cells are off by {fit.median_residual:.1%} (median) "
        f"and at most {fit.largest_residual:.1%}."
    )
    if not fit.fits:
        worst = max(fit.cells, key=lambda cell: abs(cell.residual))
        lines += textwrap.wrap(
            f"The worst cell is k = {worst.k}, {worst.message_bytes / MEBIBYTE:.4g} MB: "
            f"{_ms(worst.median_ns)} ms measured, {_ms(worst.predicted_ns)} ms by the model. "
            "Measure again while nothing else uses the network, with more repeats; if it stays, "
            "what the remarks above say is how this network differs from the model, and "
            "simulations of it are rough.",
            _WIDTH,
        )
    return "\n".join(part for line in lines for part in wrap(line, width))


def _coefficients(fit: Fit) -> Iterator[str]:
    yield "T = a + k*b*M + (k-1)*eta*M, with 95% intervals"
    yield f"  a    {_interval(fit.a_ns, 1e-6)} ms"
    b = fit.b_ns_per_byte
    yield f"  b    {_interval(b)} ns/byte  ({8 / b.value:.4g} Gbit/s of message)"
    if fit.eta_ns_per_byte is None:
        yield "  eta  not measured"
    else:
        share = fit.eta_ns_per_byte.value / b.value
        yield f"  eta  {_interval(fit.eta_ns_per_byte)} ns/byte  ({share:.1%} of b)"


def _interval(estimate: Estimate, factor: float = 1.0) -> str:
    """Return a value and its interval with as many digits as the interval justifies."""
    value, low, high = (factor * part for part in (estimate.value, estimate.low, estimate.high))
    digits = 4
    while digits < 9 and high > low and abs(value) * 10.0 ** (1 - digits) > (high - low) / 4:
        digits += 1
    return f"{value:.{digits}g} [{low:.{digits}g} to {high:.{digits}g}]"


def _grid(cells: Sequence[CellFit], width: int) -> list[str]:
    table = TextTable(
        ["k", "MB"], ["shots", "outliers", "median ms", "quartiles ms", "model ms", "off"]
    )
    for cell in cells:
        table.add_row(
            str(cell.k),
            f"{cell.message_bytes / MEBIBYTE:.4g}",
            str(cell.shots),
            str(cell.outliers or ""),
            _ms(cell.median_ns),
            " to ".join(_ms(quartile) for quartile in cell.quartiles_ns),
            _ms(cell.predicted_ns),
            f"{cell.residual:+.1%}",
        )
    return [line.text for line in table.lines(width)]


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.4g}"
