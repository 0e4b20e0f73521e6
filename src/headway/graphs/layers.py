"""Layers of a model, cut into stages, and layers with experts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from headway.domain.errors import InputError
from headway.domain.layers import MOST_LAYERS, Layer, check_layer
from headway.domain.limits import MAX_GPUS, whole


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
    name: str = ""

    def __post_init__(self) -> None:
        check_layer(self)


AnyLayer = Layer | MoeLayer

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
    if stages == len(model):
        return [[layer] for layer in model]
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


def split_over_ranks(layers: Iterable[Layer], ranks: int) -> list[Layer]:
    """Return what one of the ranks of tensor parallelism has of each layer.

    Times and parameters are divided. A layer that has no `tensor_bytes` all-reduces what it passes
    on twice in each pass, as the blocks of a transformer do.
    """
    whole(ranks, "tensor_parallel", 1, MAX_GPUS)
    return [
        replace(
            layer,
            forward_ns=max(1, round(layer.forward_ns / ranks)),
            backward_ns=max(1, round(layer.backward_ns / ranks)),
            parameter_bytes=round(layer.parameter_bytes / ranks),
            tensor_bytes=layer.tensor_bytes or 2 * layer.activation_bytes,
        )
        for layer in layers
    ]


def with_experts(layers: Iterable[Layer], experts: int, top: int, ranks: int) -> list[AnyLayer]:
    """Replace every other one of equal layers in a row by experts, as GShard does.

    Each expert has the parameters of the layer that it replaces. Other layers stay as they are.

    Args:
        layers: The model's layers, in the order of the forward pass; layers are equal if they have
            the same parameters.
        experts: The experts of a layer.
        top: The experts that each token is sent to.
        ranks: Over how many ranks the experts of a layer are spread; it divides `experts`.
    """
    found: list[AnyLayer] = []
    for layer in layers:
        before = found[-1] if found else None
        if isinstance(before, Layer) and 0 < layer.parameter_bytes == before.parameter_bytes:
            found[-1] = MoeLayer(
                before.forward_ns,
                before.backward_ns,
                top * layer.forward_ns,
                top * layer.backward_ns,
                top * before.activation_bytes,
                before.parameter_bytes,
                experts // ranks * layer.parameter_bytes,
                before.name,
            )
        else:
            found.append(layer)
    return found
