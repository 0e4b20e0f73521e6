"""Layers of a model: what builders need to know of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from headway.domain.errors import InputError
from headway.domain.limits import LONGEST_NS, MAX_BYTES, whole


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
