"""The measured operations in PyTorch: each is a function that enqueues it once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from headway.calibrate.gpus.samples import Sample

Run = Callable[[], object]

_SPREAD_BYTES = 256 * 2**20
"""Operands are spread over so much memory that they are not found in a cache."""

_MOST_COPIES = 8
_TYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
}

Made = TypeVar("Made")


def operation(sample: Sample, device: str) -> Run:
    """Return a function that runs a sample's operation once, on fresh operands."""
    made = {
        "gemm": _gemm,
        "attention": _attention,
        "elementwise": _elementwise,
        "launch": _launch,
    }
    return made[sample.kind](sample, device)


def _gemm(sample: Sample, device: str) -> Run:
    m, n, k = sample.m, sample.n, sample.k
    kind = _TYPES[sample.precision]

    def operands() -> tuple[Tensor, Tensor]:
        if sample.name == "forward":  # Activations by the transpose of a weight.
            return _random(kind, device, m, k), _random(kind, device, n, k).t()
        if sample.name == "input-gradient":
            return _random(kind, device, m, k), _random(kind, device, k, n)
        return _random(kind, device, k, m).t(), _random(kind, device, k, n)

    pairs = _copies(operands, sample.moved_bytes)
    out = torch.empty(m, n, dtype=kind, device=device)

    def run() -> object:
        left, right = next(pairs)
        return torch.mm(left, right, out=out)

    return run


def _attention(sample: Sample, device: str) -> Run:
    shape = (1, sample.batch, sample.m, sample.k)
    kind = _TYPES[sample.precision]
    query, key, value = (_random(kind, device, *shape).requires_grad_() for _ in range(3))
    if sample.name == "forward":

        def run() -> object:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

        return run
    out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    gradient = torch.randn_like(out)

    def backward() -> object:
        return torch.autograd.grad(out, (query, key, value), gradient, retain_graph=True)

    return backward


def _elementwise(sample: Sample, device: str) -> Run:
    kind = _TYPES[sample.precision]
    if sample.name == "adam":
        return _adam(sample.m * sample.n, device)
    tensors = _copies(lambda: _random(kind, device, sample.m, sample.n), sample.moved_bytes)
    other = _random(kind, device, sample.m, sample.n)
    out = torch.empty_like(other)
    weight = torch.ones(sample.n, dtype=kind, device=device)
    doing: dict[str, Callable[[Tensor], object]] = {
        "copy": out.copy_,
        "add": lambda x: torch.add(x, other, out=out),
        "gelu": lambda x: functional.gelu(x, approximate="tanh"),
        "layer-norm": lambda x: functional.layer_norm(x, (sample.n,), weight, weight),
        "softmax": lambda x: functional.softmax(x, dim=-1),
        "swiglu": lambda x: functional.silu(x) * other,
    }
    do = doing[sample.name]
    return lambda: do(next(tensors))


def _adam(size: int, device: str) -> Run:
    parameter = torch.nn.Parameter(_random(torch.float32, device, size))
    parameter.grad = torch.randn_like(parameter)
    return torch.optim.AdamW([parameter], fused=True).step


def _launch(sample: Sample, device: str) -> Run:
    one = torch.zeros(1, dtype=_TYPES[sample.precision], device=device)
    return one.zero_


def _copies(make: Callable[[], Made], size_bytes: int) -> Iterator[Made]:
    """Return operands in turn, in so many copies that a cache does not hold them all."""
    count = min(_MOST_COPIES, -(-_SPREAD_BYTES // size_bytes))
    return cycle([make() for _ in range(count)])


def _random(kind: torch.dtype, device: str, *shape: int) -> Tensor:
    """Return random values: a GPU's power, and so its clock, depends on what it multiplies."""
    return torch.randn(*shape, dtype=kind, device=device)
