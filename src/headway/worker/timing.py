"""The durations of forward and backward passes, measured without waiting for a GPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import torch

_cuda: Any = torch.cuda
"""Not typed in PyTorch."""

Mark: TypeAlias = Any
"""A point in time: nanoseconds on the CPU (an int), or an event on a GPU's stream."""

_MAX_MARKS = 2048


class Laps(NamedTuple):
    """An iteration: the begin and end of each forward pass and each pause, and its own end."""

    passes: list[Mark]
    pauses: list[Mark]
    end: Mark


class PassTimer:
    """Records when a model's forward passes begin and end, in training mode only."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._on_gpu = next(model.parameters()).is_cuda
        self._marks: list[Mark] = []
        self._pauses: list[Mark] = []
        model.register_forward_pre_hook(self._begin)
        model.register_forward_hook(self._end)

    def stop(self, on_gpu: bool) -> Laps:
        """Return the iteration's marks, and start the next iteration."""
        marks, self._marks = self._marks, []
        if on_gpu != self._on_gpu or len(marks) % 2:
            marks = []
        return Laps(marks, self._pauses, _mark(on_gpu))

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time inside, between forward passes or after them."""
        begin = _mark(self._on_gpu)
        yield
        if self._marks and len(self._pauses) < _MAX_MARKS:
            self._pauses += [begin, _mark(self._on_gpu)]

    def _begin(self, model: torch.nn.Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            if len(self._marks) % 2 or len(self._marks) >= _MAX_MARKS:
                self._marks = []  # A pass failed, or many ran without a backward pass.
            if not self._marks:
                self._pauses = []
            self._marks.append(_mark(self._on_gpu))

    def _end(self, model: torch.nn.Module, _inputs: Any, _outputs: Any) -> None:
        if len(self._marks) % 2:
            self._marks.append(_mark(self._on_gpu))


def forward_backward_ns(laps: Laps) -> tuple[int, int]:
    """Return an iteration's forward and backward time in ns; its GPU must have reached its end.

    Forward is the time inside forward passes. Backward is the rest, from the first forward pass to
    the last bucket of gradients, less the pauses: it includes the loss, and not the optimizer step.
    """
    if not laps.passes:
        return 0, 0
    forward_ns = _sum_ns(laps.passes)
    total_ns = _elapsed_ns(laps.passes[0], laps.end)
    return forward_ns, max(total_ns - forward_ns - _sum_ns(laps.pauses), 0)


def _sum_ns(marks: list[Mark]) -> int:
    return sum(_elapsed_ns(begin, end) for begin, end in zip(marks[::2], marks[1::2], strict=True))


def _mark(on_gpu: bool) -> Mark:
    if not on_gpu:
        return time.perf_counter_ns()
    event = _cuda.Event(enable_timing=True)
    event.record()
    return event


def _elapsed_ns(begin: Mark, end: Mark) -> int:
    if isinstance(begin, int):
        return int(end - begin)
    return round(float(begin.elapsed_time(end)) * 1e6)
