"""Layers of a model: what builders need to know of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from headway.domain.errors import InputError
from headway.domain.limits import LONGEST_NS, MAX_BYTES, MAX_GPUS, whole

MOST_LAYERS = 2**12
"""The most layers that are cut into stages."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, or several in one, on one GPU.

    Times are for the mini-batch of one GPU, in a pipeline for one microbatch. `parameter_bytes` are
    those of the parameters and of their gradients. `activation_bytes` is what the layer passes on,
    and what the backward pass returns: a pipeline sends it where it is cut after this layer.
    `tensor_bytes` is what the ranks of tensor parallelism all-reduce in the forward pass, and again
    in the backward pass.
    """

    forward_ns: int
    backward_ns: int
    parameter_bytes: int = 0
    activation_bytes: int = 0
    tensor_bytes: int = 0

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True)
class MoeLayer:
    """A layer with experts, on one GPU for its mini-batch.

    The dense part comes first: attention and routing. `token_bytes` are those of the tokens that
    each rank sends to the experts of all ranks, and that come back.
    """

    forward_ns: int
    backward_ns: int
    expert_forward_ns: int
    expert_backward_ns: int
    token_bytes: int
    parameter_bytes: int = 0
    expert_parameter_bytes: int = 0

    def __post_init__(self) -> None:
        _check(self)


def _check(layer: Layer | MoeLayer) -> None:
    for field in fields(layer):
        least, most = (1, LONGEST_NS) if field.name.endswith("_ns") else (0, MAX_BYTES)
        whole(getattr(layer, field.name), field.name, least, most)


_Item = TypeVar("_Item")


def some(items: Iterable[_Item], what: str) -> Sequence[_Item]:
    """Return items as a list, which must not be empty."""
    found = list(items)
    if not found:
        raise InputError(f"must not be empty; give at least one of {what}.", field=what)
    return found


def split_layers(layers: Iterable[Layer], stages: int) -> list[list[Layer]]:
    """Cut a model into stages of about the same time: the sum of their squares is the least.

    Args:
        layers: The model's layers, in the order of the forward pass.
        stages: How many stages; each has at least one layer.
    """
    model = some(layers, "layers")
    if len(model) > MOST_LAYERS:
        raise InputError(
            f"must be at most {MOST_LAYERS:,} to be cut into stages, not {len(model):,}.",
            field="layers",
        )
    if whole(stages, "stages", 1, MAX_GPUS) > len(model):
        raise InputError(
            f"must be at most {len(model):,}, one for each layer, not {stages:,}.", field="stages"
        )
    times = [layer.forward_ns + layer.backward_ns for layer in model]
    ends = np.concatenate([[0.0], np.cumsum(times, dtype=np.float64)])
    # cost[i]: the least sum of squares of the stages so far, if they end before layer i.
    cost = np.where(np.arange(len(ends)) == 0, 0.0, np.inf)
    begins = []
    for _ in range(stages):
        total = cost + (ends[:, np.newaxis] - ends) ** 2
        total[np.triu_indices(len(ends))] = np.inf
        begins.append(total.argmin(axis=1))
        cost = total.min(axis=1)
    found, end = [], len(model)
    for begin in reversed(begins):
        found.append(list(model[begin[end] : end]))
        end = int(begin[end])
    return found[::-1]
