"""What was found: as a network file that simulations read, and as text for a terminal."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from headway.calibrate.network.fit import CellFit, Fit
from headway.domain.estimates import Estimate
from headway.domain.models import MEBIBYTE
from headway.files import open_output

Value = str | int | float | Sequence[str | int | float]

_WIDTH = 100
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def write_network(path: str | os.PathLike[str], fit: Fit, about: Mapping[str, Value]) -> None:
    """Write a network as TOML: [network] is what is simulated, [calibration] where it is from.

    `about` is what the caller knows of the measurement; its entries stand in [calibration], the
    figures of the fit in [calibration.fit].
    """
    if "fit" in about:
        raise ValueError("'fit' is the name of the table of the fit's own figures")
    lines = [*_network(fit), "", *_table("calibration", about), "", *_fit(fit)]
    text = "\n".join([*lines, "cells = [", *map(_cell, fit.cells), "]", ""])
    with open_output(path) as stream:
        stream.write(text.encode())


def _network(fit: Fit) -> list[str]:
    network = fit.network()
    return _table(
        "network",
        {
            "a_ns": network.a_ns,
            "b_ns_per_byte": network.b_ns_per_byte,
            "eta_ns_per_byte": network.eta_ns_per_byte,
        },
    )


def _fit(fit: Fit) -> list[str]:
    """Return the estimates as measured, which may be below 0 where the network has 0."""
    found: dict[str, Value] = {}
    for name, estimate in (
        ("a_ns", fit.a_ns),
        ("b_ns_per_byte", fit.b_ns_per_byte),
        ("eta_ns_per_byte", fit.eta_ns_per_byte),
    ):
        if estimate is not None:
            found[name] = _digits(estimate.value)
            found[f"{name}_95"] = [_digits(estimate.low), _digits(estimate.high)]
    found |= {
        "shots": fit.shots,
        "outliers": fit.outliers,
        "median_residual": _digits(fit.median_residual),
        "largest_residual": _digits(fit.largest_residual),
        "fits": fit.fits,
        "remarks": [f"{remark.code}: {remark.text}" for remark in fit.remarks],
    }
    return _table("calibration.fit", found)


def _cell(cell: CellFit) -> str:
    entries = _entries(
        {
            "k": cell.k,
            "message_bytes": cell.message_bytes,
            "shots": cell.shots,
            "outliers": cell.outliers,
            "median_ns": round(cell.median_ns),
            "predicted_ns": cell.predicted_ns,
            "residual": _digits(cell.residual),
        }
    )
    return f"    {{ {', '.join(entries)} }},"


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def _table(name: str, entries: Mapping[str, Value]) -> list[str]:
    return [f"[{name}]", *_entries(entries)]


def _entries(entries: Mapping[str, Value]) -> Iterator[str]:
    for key, value in entries.items():
        bare = re.fullmatch(r"[A-Za-z0-9_-]+", key)
        yield f"{key if bare else _string(key)} = {_value(value)}"


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (int, float)):
        return repr(value)
    parts = [_value(part) for part in value]
    line = f"[{', '.join(parts)}]"
    if len(line) <= _WIDTH:
        return line
    return "[\n" + "".join(f"    {part},\n" for part in parts) + "]"


def _string(text: str) -> str:
    """Return a TOML string; half a surrogate pair, which no UTF-8 file can hold, becomes `?`."""
    text = text.encode("utf-8", "replace").decode()
    return '"' + "".join(_ESCAPES.get(letter, _escaped(letter)) for letter in text) + '"'


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def report(fit: Fit) -> str:
    """Return the fit as plain text: coefficients, cells, remarks and the verdict."""
    lines = [
        *_coefficients(fit),
        "",
        *_grid(fit.cells),
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
    return "\n".join(lines)


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
    """Return a value and its interval, to the digit that the interval makes meaningful."""
    value, low, high = (factor * part for part in (estimate.value, estimate.low, estimate.high))
    digits = 4
    while digits < 9 and high > low and abs(value) * 10.0 ** (1 - digits) > (high - low) / 4:
        digits += 1
    return f"{value:.{digits}g} [{low:.{digits}g} to {high:.{digits}g}]"


def _grid(cells: Sequence[CellFit]) -> list[str]:
    rows = [("k", "MB", "shots", "outliers", "median ms", "quartiles ms", "model ms", "off")]
    rows += [
        (
            str(cell.k),
            f"{cell.message_bytes / MEBIBYTE:.4g}",
            str(cell.shots),
            str(cell.outliers or ""),
            _ms(cell.median_ns),
            " to ".join(_ms(quartile) for quartile in cell.quartiles_ns),
            _ms(cell.predicted_ns),
            f"{cell.residual:+.1%}",
        )
        for cell in cells
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.4g}"
