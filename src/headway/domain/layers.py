"""Layers of a model: what an iteration costs, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from typing import Any

from headway.domain.errors import InputError
from headway.domain.limits import LONGEST_NS, MAX_BYTES, whole

MOST_LAYERS = 2**12
"""The most layers of a model that is cut into parts."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, or several in one, on one GPU.

    Times are for the mini-batch of one GPU, in a pipeline for one microbatch. `parameter_bytes` are
    those of the parameters and of their gradients. `activation_bytes` is what the layer passes on,
    and what the backward pass returns: a pipeline sends it where it is cut after this layer.
    `tensor_bytes` is what the ranks of tensor parallelism all-reduce in the forward pass, and again
    in the backward pass. `name` is for people only.
    """

    forward_ns: int
    backward_ns: int
    parameter_bytes: int = 0
    activation_bytes: int = 0
    tensor_bytes: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        check_layer(self)


def check_layer(layer: Any) -> None:
    """Check the times and sizes of a layer, whose fields end in `_ns` and `_bytes`."""
    for field in fields(layer):
        if field.name != "name":
            least, most = (1, LONGEST_NS) if field.name.endswith("_ns") else (0, MAX_BYTES)
            whole(getattr(layer, field.name), field.name, least, most)


def merged(layers: Sequence[Layer]) -> Layer:
    """Return several layers in a row as one."""
    return Layer(
        sum(layer.forward_ns for layer in layers),
        sum(layer.backward_ns for layer in layers),
        sum(layer.parameter_bytes for layer in layers),
        layers[-1].activation_bytes,
        sum(layer.tensor_bytes for layer in layers),
    )


def equal_layers(
    count: int, *, forward_ns: int, backward_ns: int, parameter_bytes: int
) -> tuple[Layer, ...]:
    """Return a model of which only the totals are known as equal layers, up to rounding."""
    return fitted([Layer(1, 1, 1)] * count, forward_ns, backward_ns, parameter_bytes)


def fitted(
    layers: Sequence[Layer], forward_ns: int, backward_ns: int, parameter_bytes: int
) -> tuple[Layer, ...]:
    """Scale layers in proportion so that they add up to these totals exactly.

    Layers that add up to them already stay as they are. A time is at least 1 ns.
    """
    forward = _times([layer.forward_ns for layer in layers], forward_ns, "forward_ns")
    backward = _times([layer.backward_ns for layer in layers], backward_ns, "backward_ns")
    sizes = _shares(parameter_bytes, [layer.parameter_bytes for layer in layers])
    return tuple(
        replace(layer, forward_ns=forward[at], backward_ns=backward[at], parameter_bytes=sizes[at])
        for at, layer in enumerate(layers)
    )


def _times(times_ns: Sequence[int], total_ns: int, field: str) -> list[int]:
    count = len(times_ns)
    if total_ns < count:
        raise InputError(
            f"must be at least {count:,} ns, 1 for each layer, not {total_ns:,}.", field=field
        )
    found = _shares(total_ns, times_ns)
    return found if min(found) else [1 + time for time in _shares(total_ns - count, times_ns)]


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """Split a total in proportion to weights, or equally if all are 0; rounded sums keep it."""
    weights = weights if any(weights) else [1] * len(weights)
    whole_weight = sum(weights)
    ends = [
        (2 * total * end + whole_weight) // (2 * whole_weight)
        for end in accumulate(weights, initial=0)
    ]
    return [after - before for before, after in pairwise(ends)]
