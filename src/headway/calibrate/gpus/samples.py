"""Measured operations and transformer layers, and their CSV files."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TypeVar

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import LONGEST_NS, whole, whole_from
from headway.files import STANDARD, open_input, open_output
from headway.workload.text import text_lines

PRECISION_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4}

MOVED_VALUES = {
    "copy": 2,
    "add": 3,
    "gelu": 2,
    "layer-norm": 2,
    "softmax": 2,
    "swiglu": 5,
    "adam": 7,
}
"""Values that an element-wise operation reads and writes for each element of its result.

SwiGLU is two kernels in PyTorch. Adam reads parameter, gradient and two moments, and writes all but
the gradient.
"""

GEMM_NAMES = ("forward", "input-gradient", "weight-gradient")
"""A layer's three matrix products, which differ in which operand is transposed."""

ATTENTION_NAMES = ("forward", "backward")
LAYER_NAMES = ("gpt", "llama")
KINDS = {
    "gemm": GEMM_NAMES,
    "attention": ATTENTION_NAMES,
    "elementwise": tuple(MOVED_VALUES),
    "launch": ("empty",),
}
_MAX_SIZE = 2**40

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Sample:
    """The time of one operation.

    A `gemm` is `batch` products of m x k by k x n. `attention` is causal, for `batch` heads with m
    queries and n keys of k values each. `elementwise` makes m x n values. `launch` is a kernel that
    does nothing.
    """

    kind: str
    name: str
    precision: str
    batch: int
    m: int
    n: int
    k: int
    time_ns: int = 1

    def __post_init__(self) -> None:
        _one_of(self.kind, "kind", KINDS)
        _one_of(self.name, "name", KINDS[self.kind])
        _one_of(self.precision, "precision", PRECISION_BYTES)
        for name in ("batch", "m", "n", "k"):
            whole(getattr(self, name), name, 1, _MAX_SIZE)
        whole(self.time_ns, "time_ns", 1, LONGEST_NS)

    @property
    def flops(self) -> int:
        """Floating-point operations, two for a multiply-add; those of attention without a mask."""
        if self.kind == "gemm":
            return 2 * self.batch * self.m * self.n * self.k
        if self.kind == "attention":
            products = 2 if self.name == "forward" else 5
            return 2 * products * self.batch * self.m * self.n * self.k
        return 0

    @property
    def moved_bytes(self) -> int:
        """The least bytes read and written in the GPU's memory."""
        width = PRECISION_BYTES[self.precision]
        if self.kind == "gemm":
            values = self.m * self.k + self.k * self.n + self.m * self.n
            return width * self.batch * values
        if self.kind == "attention":
            passes = 4 if self.name == "forward" else 8
            return width * self.batch * passes * self.m * self.k
        if self.kind == "elementwise":
            return width * MOVED_VALUES[self.name] * self.m * self.n
        return 0


@dataclass(frozen=True, slots=True)
class LayerSample:
    """The forward and backward time of one transformer layer, on one of `tensor` ranks.

    `gpt` has two matrices in its feed-forward part, GELU and layer norms; `llama` three, SwiGLU and
    RMS norms. Weights and activations are in bf16, and the tensor-parallel all-reduces left out.
    """

    name: str
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    sequence: int
    micro_batch: int
    tensor: int
    forward_ns: int = 1
    backward_ns: int = 1

    def __post_init__(self) -> None:
        _one_of(self.name, "name", LAYER_NAMES)
        for field in fields(self)[1:]:
            whole(getattr(self, field.name), field.name, 1, LONGEST_NS)


def write_samples(path: str | os.PathLike[str], rows: Sequence[Sample | LayerSample]) -> None:
    """Write at least one sample as CSV, or to standard output for `-`."""
    with open_output(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(field.name for field in fields(rows[0]))
        writer.writerows(map(astuple, rows))
        text.detach()


def read_samples(path: str | os.PathLike[str]) -> list[Sample]:
    """Read the samples of operations that `write_samples` wrote."""
    return _read(path, Sample)


def read_layer_samples(path: str | os.PathLike[str]) -> list[LayerSample]:
    """Read the samples of layers that `write_samples` wrote."""
    return _read(path, LayerSample)


def _read(path: str | os.PathLike[str], kind: Callable[..., Row]) -> list[Row]:
    columns = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    texts = {"kind", "name", "precision"}
    source = "standard input" if os.fspath(path) == STANDARD else os.fspath(path)
    found: list[Row] = []
    with open_input(path) as stream:
        lines = text_lines(
            stream, source, "not a text file; samples are CSV.", "lines of samples are short."
        )
        reader = csv.reader(lines, strict=True)
        try:
            header = next(reader, [])
            if header != columns:
                raise InputError(f"columns must be {','.join(columns)}.", source=source, line=1)
            for row in reader:
                try:
                    if len(row) != len(columns):
                        raise InputError(f"must have {len(columns)} columns, not {len(row)}.")
                    values = {
                        column: cell if column in texts else _whole(cell, column)
                        for column, cell in zip(columns, row, strict=True)
                    }
                    found.append(kind(**values))
                except InputError as error:
                    raise error.at(source, reader.line_num) from None
        except csv.Error as error:
            raise InputError(f"not CSV: {error}.", source=source, line=reader.line_num) from None
    if not found:
        raise InputError("has no samples.", source=source)
    return found


def _whole(text: str, column: str) -> int:
    try:
        return whole_from(text)
    except ValueError:
        raise InputError(f"must be a whole number, not {shown(text)}.", field=column) from None


def _one_of(value: str, field: str, known: Iterable[str]) -> None:
    choices = list(known)
    if value not in choices:
        raise InputError(
            f"unknown {field} {shown(value)}.{did_you_mean(str(value), choices)}", field=field
        )
