"""Fits the A100 and its cluster's network to the shipped rows of vTrain, and cross-validates.

With --write it writes src/headway/llm/data/a100.toml and src/headway/llm/clusters/a100-4x200.toml.
The fit uses the formula of `headway.llm.estimate`. It is made twice, the second time with each
prediction corrected by what the simulator says with the first constants; so is what is left out
predicted.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares  # type: ignore[import-untyped]

import headway.llm
from headway.experiments.validation.outcome import predict
from headway.experiments.validation.rows import Measured, read_measured, shipped_files
from headway.llm.estimate import estimated_iteration_ns
from headway.llm.gpu import GpuModel, ServerLink
from headway.llm.gpu_file import gpu_from
from headway.network.allreduce import Link, network_from_link
from headway.network.contention import NetworkModel
from headway.toml_text import table, tables

SERVER = 8
NODE_BYTES_PER_S = 100e9
RING = 64
LINK_LATENCY_NS = 15_000

FITTED = (
    "gemm_efficiency",
    "memory_efficiency",
    "unaligned_efficiency",
    "kernel_ns",
    "launch_ns",
    "collective_ns",
    "collective_launch_ns",
)
SHARES = ("gemm_efficiency", "memory_efficiency", "unaligned_efficiency", "network")


@dataclass(frozen=True)
class Constants:
    gpu: GpuModel
    network: float
    """Share of the node's bandwidth that collectives reach."""

    @classmethod
    def of(cls, start: GpuModel, x: Sequence[float]) -> Constants:
        values: dict[str, Any] = {
            name: _value(name, one) for name, one in zip(FITTED, x, strict=False)
        }
        return cls(replace(start, **values), _value("network", x[len(FITTED)]))

    def x(self) -> list[float]:
        values = [getattr(self.gpu, name) for name in FITTED] + [self.network]
        return [
            math.log(one / (1 - one)) if name in SHARES else math.log(one)
            for name, one in zip((*FITTED, "network"), values, strict=True)
        ]


def _value(name: str, x: float) -> float:
    return 1 / (1 + math.exp(-x)) if name in SHARES else math.exp(x)


def network_of(share: float) -> NetworkModel:
    """Return a ring in which collectives reach a share of a node's bandwidth."""
    link = Link(LINK_LATENCY_NS, 1e9 / NODE_BYTES_PER_S / share)
    return replace(network_from_link("ring", RING, link), ring_size=RING)


@dataclass(frozen=True)
class Row:
    """A measured row, and the simulator's time for it as a multiple of the formula's."""

    measured: Measured
    factor: float = 1.0

    @property
    def on_many(self) -> bool:
        return self.measured.plan.gpus > SERVER

    def predicted_ns(self, constants: Constants) -> float:
        model, plan = self.measured.model, self.measured.plan
        network = network_of(constants.network)
        time_ns = estimated_iteration_ns(model, plan, constants.gpu, network, fused_attention=False)
        return self.factor * time_ns


def corrected(rows: Sequence[Row], constants: Constants) -> list[Row]:
    """Return rows whose predictions are the simulator's with these constants, and near them."""
    measured = [row.measured for row in rows]
    simulated = predict(measured, constants.gpu, network_of(constants.network))
    return [
        Row(row.measured, row.factor * one.predicted_ns / row.predicted_ns(constants))
        for row, one in zip(rows, simulated, strict=True)
    ]


def fit(rows: Sequence[Row], start: Constants, scale: float, many: float) -> Constants:
    """Return constants that minimise a robust loss of the logarithms of predicted / measured.

    Errors far above `scale` count in proportion, smaller ones squared. The rows on many nodes
    together weigh `many` times as much as those on one.
    """
    on_many = np.array([row.on_many for row in rows])
    weights = np.where(on_many, many / max(1, on_many.sum()), 1 / max(1, (~on_many).sum()))

    def residuals(x: Sequence[float]) -> NDArray[np.float64]:
        found = np.log1p(errors(rows, Constants.of(start.gpu, x))) / scale
        losses = np.sign(found) * np.sqrt(2 * np.sqrt(1 + found**2) - 2)
        return np.asarray(np.sqrt(weights) * losses, np.float64)

    found = least_squares(residuals, start.x(), diff_step=1e-3, max_nfev=30)
    return Constants.of(start.gpu, found.x)


def errors(rows: Sequence[Row], constants: Constants) -> NDArray[np.float64]:
    return np.array([row.predicted_ns(constants) / row.measured.time_ns - 1 for row in rows])


def shown(label: str, found: NDArray[np.float64]) -> str:
    size = 100 * abs(found)
    return (
        f"{label:32} rows {len(found):4}  mean {size.mean():5.2f}%  median {np.median(size):5.2f}%"
        f"  p95 {np.percentile(size, 95):5.2f}%  worst {size.max():5.1f}%"
    )


def cross_validate(
    rows: Sequence[Row],
    start: Constants,
    by: Callable[[Measured], object],
    label: str,
    scale: float,
    many: float,
    folds: int,
) -> None:
    """Leave out whole groups, fit to the others and print the errors of those left out."""
    keys = [str(by(row.measured)) for row in rows]
    groups = sorted(set(keys))
    out: dict[bool, list[float]] = {True: [], False: []}
    for fold in range(folds):
        held = set(groups[fold::folds])
        kept = [row for row, key in zip(rows, keys, strict=True) if key not in held]
        rest = [row for row, key in zip(rows, keys, strict=True) if key in held]
        constants = fit(kept, start, scale, many)
        for row, error in zip(rest, errors(rest, constants), strict=True):
            out[row.on_many].append(error)
    for several, found in out.items():
        if found:
            nodes = "many nodes" if several else "one node"
            print(shown(f"held out by {label}, {nodes}", np.array(found)), flush=True)


def links(gpu: str) -> tuple[ServerLink, ...]:
    """Fit a + b * bytes to the measured all-reduces, by least squares of relative errors."""
    path = Path(str(shipped_files()[0])).with_name("vtrain_nccl_allreduce.csv")
    times: dict[int, list[tuple[float, float]]] = {}
    with path.open() as stream:
        for row in csv.DictReader(stream):
            if row["gpu"] == gpu:
                time_ns = (float(row["out_of_place_ns"]) + float(row["in_place_ns"])) / 2
                times.setdefault(int(row["ranks"]), []).append((float(row["mb"]) * 2**20, time_ns))
    found = []
    for ranks, points in sorted(times.items()):
        sizes, measured = np.array(points).T
        matrix = np.stack([1 / measured, sizes / measured], axis=1)
        (a_ns, b_ns), *_ = np.linalg.lstsq(matrix, np.ones(len(sizes)), rcond=None)
        found.append(ServerLink(ranks, float(f"{a_ns:.5g}"), float(f"{b_ns:.4g}")))
    return tuple(found)


def gpu_text(gpu: GpuModel) -> str:
    values: dict[str, Any] = {
        field.name: getattr(gpu, field.name)
        for field in fields(gpu)
        if field.name not in ("server_links", "estimates")
    }
    lines = "".join(table("gpu", values).splitlines(keepends=True)[1:])
    rows = [{f.name: getattr(link, f.name) for f in fields(link)} for link in gpu.server_links]
    return lines + "\n" + tables("server_links", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.05, help="of the robust loss")
    parser.add_argument("--many", type=float, default=8.0, help="weight of rows on many nodes")
    parser.add_argument("--folds", type=int, default=8, help="of models and plans; rows have 2")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = [Row(row) for path in shipped_files() for row in read_measured(str(path))]
    start = Constants(replace(gpu_from("a100"), server_links=links("a100")), 0.5)
    found = start
    for _ in range(2):
        found = fit(rows, found, options.scale, options.many)
        rows = corrected(rows, found)
    for name in FITTED:
        print(f"{name:24} {getattr(found.gpu, name):.4g}")
    print(f"{'network':24} {found.network:.4g}")
    single = [row for row in rows if not row.on_many]
    several = [row for row in rows if row.on_many]
    print(shown("fitted, one node", errors(single, found)))
    print(shown("fitted, many nodes", errors(several, found)), flush=True)
    if options.write:
        rounded: dict[str, Any] = {
            name: float(f"{getattr(found.gpu, name):.4g}") for name in FITTED
        }
        source = (
            "peaks: NVIDIA A100 80 GB SXM data sheet; fitted to 776 iterations and 77 all-reduces "
            "of vTrain (arXiv 2312.12391) by benchmarks/fit_gpu.py; attention_efficiency: T. Dao, "
            "FlashAttention-2 (arXiv 2307.08691)"
        )
        folder = Path(headway.llm.__path__[0])
        gpu = replace(found.gpu, name="a100", source=source, estimate=False, **rounded)
        (folder / "data" / "a100.toml").write_text(gpu_text(gpu))
        share = float(f"{found.network:.3g}")
        lines = (
            f"# A ring over {RING} nodes with 4 x 200 Gbit/s InfiniBand each, of which collectives"
            f" reach\n# {share:.1%}: fitted by benchmarks/fit_gpu.py.\n"
        )
        network: dict[str, Any] = {
            "algorithm": "ring",
            "nodes": RING,
            "ring_size": RING,
            "alpha_ns": LINK_LATENCY_NS,
            "beta_ns_per_byte": 1e9 / NODE_BYTES_PER_S / share,
        }
        (folder / "clusters" / "a100-4x200.toml").write_text(lines + table("network", network))
    for label, by in GROUPS.items() if options.folds else ():
        folds = 2 if by is _row else options.folds
        cross_validate(rows, found, by, label, options.scale, options.many, folds)


def _model(row: Measured) -> object:
    return row.model.hidden, row.model.layers


def _plan(row: Measured) -> object:
    return row.plan.tensor, row.plan.pipeline, row.plan.data


def _row(row: Measured) -> object:
    return row.source, row.line


GROUPS = {"model": _model, "plan": _plan, "row": _row}


if __name__ == "__main__":
    main()
