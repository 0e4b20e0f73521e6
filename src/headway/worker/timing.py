"""The durations of the parts of iterations, measured without waiting for a GPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import torch

_cuda: Any = torch.cuda
"""Not typed in PyTorch."""

Mark: TypeAlias = Any
"""A point in time: nanoseconds on the CPU (an int), or an event on a GPU's stream."""

_MAX_MARKS = 2048


class Laps(NamedTuple):
    """An iteration's marks: the begin and end of each forward pass and each pause.

    Pauses before the first forward pass are `early_pauses`. `buckets` is when the gradients of each
    bucket were ready; the iteration ends with the last one.
    """

    passes: list[Mark]
    pauses: list[Mark]
    buckets: list[Mark]
    early_pauses: list[Mark]


class PassTimer:
    """Records when a model's forward passes begin and end, in training mode only."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._on_gpu = next(model.parameters()).is_cuda
        self._marks: list[Mark] = []
        self._pauses: list[Mark] = []
        self._early_pauses: list[Mark] = []
        self._buckets: list[Mark] = []
        model.register_forward_pre_hook(self._begin)
        model.register_forward_hook(self._end)

    def bucket_ready(self, first: bool) -> None:
        """Record that the gradients of a bucket are ready."""
        if first:
            self._buckets = []
        self._buckets.append(mark(self._on_gpu))

    def stop(self, on_gpu: bool) -> Laps:
        """Return the iteration's marks, without passes if unknown, and start the next iteration."""
        known = on_gpu == self._on_gpu and not len(self._marks) % 2
        passes = self._marks if known else []
        laps = Laps(passes, self._pauses, self._buckets, self._early_pauses)
        self._marks, self._pauses, self._buckets, self._early_pauses = [], [], [], []
        return laps

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time inside, which is not within a forward pass."""
        begin = mark(self._on_gpu)
        yield
        pauses = self._pauses if self._marks else self._early_pauses
        if len(pauses) < _MAX_MARKS:
            pauses += [begin, mark(self._on_gpu)]

    def _begin(self, model: torch.nn.Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            if len(self._marks) % 2 or len(self._marks) >= _MAX_MARKS:
                self._marks = []  # A pass failed, or many ran without a backward pass.
            if not self._marks:
                self._pauses = []
            self._marks.append(mark(self._on_gpu))

    def _end(self, model: torch.nn.Module, _inputs: Any, _outputs: Any) -> None:
        if len(self._marks) % 2:
            self._marks.append(mark(self._on_gpu))


def forward_backward_ns(laps: Laps) -> tuple[int, int]:
    """Return an iteration's forward and backward time in ns; its GPU must have reached its end.

    Forward is the time inside forward passes. Backward is the rest, from the first forward pass to
    the last bucket of gradients, less the pauses: it includes the loss, and not the optimizer step.
    """
    if not laps.passes:
        return 0, 0
    return _sum_ns(laps.passes), sum(backward_parts_ns(laps))


def backward_parts_ns(laps: Laps) -> list[int]:
    """Return the parts of an iteration's backward time, each of which ends with a bucket.

    The first begins with the first forward pass, and is less the forward passes and the pauses.
    """
    first_ns = _elapsed_ns(laps.passes[0], laps.buckets[0])
    parts_ns = [first_ns - _sum_ns(laps.passes) - _sum_ns(laps.pauses)]
    parts_ns += [_elapsed_ns(one, other) for one, other in pairwise(laps.buckets)]
    return [max(part_ns, 0) for part_ns in parts_ns]


def optimizer_ns(end: Mark, laps: Laps) -> int:
    """Return the time from the end of the iteration before to an iteration's first forward pass.

    Less the pauses: the optimizer step, loading data, and whatever else a job does in between.
    """
    return max(_elapsed_ns(end, laps.passes[0]) - _sum_ns(laps.early_pauses), 0)


def mark(on_gpu: bool) -> Mark:
    """Mark the current time, on a GPU that of its current stream."""
    if not on_gpu:
        return time.perf_counter_ns()
    event = _cuda.Event(enable_timing=True, blocking=True)
    event.record()
    return event


def _sum_ns(marks: list[Mark]) -> int:
    return sum(_elapsed_ns(begin, end) for begin, end in zip(marks[::2], marks[1::2], strict=True))


def _elapsed_ns(begin: Mark, end: Mark) -> int:
    if isinstance(begin, int):
        return int(end - begin)
    return round(float(begin.elapsed_time(end)) * 1e6)
