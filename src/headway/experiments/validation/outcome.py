"""Predictions of measured iterations, and their errors by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headway.configuration import network_from
from headway.domain.errors import InputError
from headway.experiments.prediction import predicted_iteration_ns
from headway.experiments.validation.rows import Measured
from headway.llm.clusters import usual_network
from headway.llm.gpu import GpuModel
from headway.llm.gpu_file import gpu_from
from headway.network.contention import NetworkModel


@dataclass(frozen=True, slots=True)
class Prediction:
    """A row and its predicted time; only rows with a measured time have an error."""

    row: Measured
    predicted_ns: int

    @property
    def error(self) -> float:
        """How far the prediction is off: 0.1 is 10% too long."""
        return self.predicted_ns / self.row.time_ns - 1


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of a group of predictions, as shares of the measured times.

    `tau` is Kendall's rank correlation of predicted and measured times, None for one row.
    """

    name: str
    rows: int
    mean: float
    median: float
    p95: float
    worst: float
    bias: float
    tau: float | None


def predict(
    rows: Sequence[Measured], gpu: GpuModel, network: NetworkModel | None = None
) -> list[Prediction]:
    """Predict rows, alone on servers of their size.

    `gpu` is the type of rows that do not name one. Without a network, servers have that which is
    usual for their type of GPU.

    Raises:
        InputError: A row's GPU does not have its precision, or its graph is too large.
    """
    kinds = gpus_of(rows, gpu)
    networks = {
        name: network or network_from(usual_network(kind.name)) for name, kind in kinds.items()
    }
    return [_predicted(row, kinds[row.case.gpu], networks[row.case.gpu]) for row in rows]


def _predicted(row: Measured, gpu: GpuModel, network: NetworkModel) -> Prediction:
    try:
        time_ns = predicted_iteration_ns(
            row.model,
            row.plan,
            gpu,
            network,
            gpus_per_server=row.case.gpus_per_server,
            fused_attention=row.case.fused_attention,
        )
    except InputError as error:
        raise error.at(row.source, row.line) from None
    return Prediction(row, time_ns)


def gpus_of(rows: Sequence[Measured], gpu: GpuModel) -> dict[str | None, GpuModel]:
    """Return the types of GPU that rows name; `gpu` is that of rows that name none."""
    return {row.case.gpu: gpu_from(row.case.gpu) if row.case.gpu else gpu for row in rows}


def measured(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Return the predictions of rows that have a measured time."""
    return [one for one in predictions if one.row.case.time_ns is not None]


def errors_by(
    predictions: Sequence[Prediction], group: Callable[[Prediction], str]
) -> list[Errors]:
    """Return the errors of each group, in the order in which groups first appear."""
    groups: dict[str, list[Prediction]] = {}
    for one in predictions:
        groups.setdefault(group(one), []).append(one)
    return [_errors(name, members) for name, members in groups.items()]


def by_file(one: Prediction) -> str:
    """Group by file."""
    return Path(one.row.source).name


def by_model(one: Prediction) -> str:
    """Group by model, those of one node apart from the others."""
    return f"{one.row.model_name}, {_nodes(one)}"


def by_plan(one: Prediction) -> str:
    """Group by degrees of parallelism, those of one node apart from the others."""
    return f"{one.row.degrees}, {_nodes(one)}"


def worst(predictions: Sequence[Prediction], count: int) -> list[Prediction]:
    """Return the predictions with the largest errors, largest first."""
    return sorted(predictions, key=lambda one: -abs(one.error))[:count]


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b: pairs in the same order minus pairs in opposite order, as a share.

    Pairs that are equal in one of the two are left out of its count; None if nothing is left.
    """
    signs = [
        np.sign(np.subtract.outer(values, values)) for values in map(np.asarray, (first, second))
    ]
    pairs = float(np.sqrt((signs[0] ** 2).sum() * (signs[1] ** 2).sum()))
    return float((signs[0] * signs[1]).sum()) / pairs if pairs else None


def _nodes(one: Prediction) -> str:
    case = one.row.case
    nodes = "one node" if case.plan.gpus <= case.gpus_per_server else "many nodes"
    return f"{nodes}, {case.gpu}" if case.gpu else nodes


def _errors(name: str, members: Sequence[Prediction]) -> Errors:
    signed = np.array([one.error for one in members])
    size = np.abs(signed)
    tau = kendall_tau([one.predicted_ns for one in members], [one.row.time_ns for one in members])
    return Errors(
        name,
        len(members),
        float(size.mean()),
        float(np.median(size)),
        float(np.percentile(size, 95)),
        float(size.max()),
        float(signed.mean()),
        tau,
    )
