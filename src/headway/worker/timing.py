"""How long forward and backward passes take, measured as they run and without waiting for a GPU."""

from __future__ import annotations

import time
from typing import Any, TypeAlias

import torch

_cuda: Any = torch.cuda
"""Not typed in PyTorch."""

Mark: TypeAlias = Any
"""A moment: an int, nanoseconds on the CPU; or an event on a GPU's stream."""

_MOST_MARKS = 2048


class Meter:
    """Notes when a model's forward passes begin and end, in training alone."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._on_gpu = next(model.parameters()).is_cuda
        self._marks: list[Mark] = []
        model.register_forward_pre_hook(self._begin)
        model.register_forward_hook(self._end)

    def stop(self, on_gpu: bool) -> list[Mark]:
        """Return the iteration's marks: begin and end of each forward pass, and now; start anew."""
        marks, self._marks = self._marks, []
        if on_gpu != self._on_gpu or len(marks) % 2:
            marks = []
        return [*marks, _mark(on_gpu)]

    def _begin(self, model: torch.nn.Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            if len(self._marks) % 2 or len(self._marks) >= _MOST_MARKS:
                self._marks = []  # A pass that failed, or many that nobody learned from.
            self._marks.append(_mark(self._on_gpu))

    def _end(self, model: torch.nn.Module, _inputs: Any, _outputs: Any) -> None:
        if len(self._marks) % 2:
            self._marks.append(_mark(self._on_gpu))


def split(marks: list[Mark]) -> tuple[int, int]:
    """Return an iteration's forward and backward nanoseconds; its GPU must have come to its end.

    Forward is the time inside forward passes, backward all the rest from the first forward pass to
    the last bucket of gradients: the loss is in it, and the optimizer's step is not.
    """
    if len(marks) < 3:
        return 0, 0
    pairs = zip(marks[:-1:2], marks[1::2], strict=True)
    forward_ns = sum(_elapsed_ns(begin, end) for begin, end in pairs)
    return forward_ns, max(_elapsed_ns(marks[0], marks[-1]) - forward_ns, 0)


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
