"""Writes a fit as a network file for simulations."""

from __future__ import annotations

import os
from collections.abc import Mapping

from headway import toml_text as toml
from headway.calibrate.network.fit import CellFit, Fit
from headway.files import open_output

_CHOICES = """\
# The paper's model. Uncomment these two lines so that jobs on fewer servers than measured send
# less, and messages share the capacity that others leave unused:
# ring_size = {nodes}
# law = "max-min"
"""


def write_network(path: str | os.PathLike[str], fit: Fit, about: Mapping[str, toml.Value]) -> None:
    """Write a network as TOML: [network] for simulations, [calibration] for its origin.

    `about` describes the measurement and becomes [calibration]; the figures of the fit become
    [calibration.fit].
    """
    if "fit" in about:
        raise ValueError("'fit' is reserved for the table of the fit's figures")
    network = fit.network
    parts = (
        toml.table(
            "network",
            {
                "a_ns": network.a_ns,
                "b_ns_per_byte": network.b_ns_per_byte,
                "eta_ns_per_byte": network.eta_ns_per_byte,
            },
        )
        + _CHOICES.format(nodes=about.get("nodes", "N")),
        toml.table("calibration", about),
        toml.table("fit", _fit(fit), inside="calibration"),
    )
    with open_output(path) as stream:
        stream.write("\n".join(parts).encode())


def _fit(fit: Fit) -> dict[str, toml.Value]:
    """Return the estimates as measured; some may be below 0 where the network has 0."""
    found: dict[str, toml.Value] = {}
    for name, estimate in (
        ("a_ns", fit.a_ns),
        ("b_ns_per_byte", fit.b_ns_per_byte),
        ("eta_ns_per_byte", fit.eta_ns_per_byte),
    ):
        if estimate is not None:
            found[name] = _digits(estimate.value)
            found[f"{name}_95"] = [_digits(estimate.low), _digits(estimate.high)]
    return found | {
        "shots": fit.shots,
        "outliers": fit.outliers,
        "median_residual": _digits(fit.median_residual),
        "largest_residual": _digits(fit.largest_residual),
        "fits": fit.fits,
        "remarks": [f"{remark.code}: {remark.text}" for remark in fit.remarks],
        "cells": [_cell(cell) for cell in fit.cells],
    }


def _cell(cell: CellFit) -> dict[str, toml.Scalar]:
    return {
        "k": cell.k,
        "message_bytes": cell.message_bytes,
        "shots": cell.shots,
        "outliers": cell.outliers,
        "median_ns": round(cell.median_ns),
        "predicted_ns": cell.predicted_ns,
        "residual": _digits(cell.residual),
    }


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
