"""The end of a backward pass, also of one that fails."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import torch

_engine: Any = torch.autograd.Variable._execution_engine
"""Not typed in PyTorch."""


class _PassEnd:
    """Calls a function once: when autograd calls this, or drops it because the pass has failed."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended, self._lock = ended, Lock()

    def __call__(self) -> None:
        if self._lock.acquire(blocking=False):
            self._ended()

    def __del__(self) -> None:
        self()

    def cancel(self) -> None:
        """Do not call it."""
        self._lock.acquire(blocking=False)


def at_end_of_backward(ended: Callable[[], None]) -> None:
    """Call a function when the current backward pass has computed all gradients, or has failed.

    It is called before callbacks that are queued later, such as DDP's own, which waits for the
    network. Outside a backward pass it is never called.
    """
    end = _PassEnd(ended)
    try:
        _engine.queue_callback(end)
    except RuntimeError:
        # Not inside a backward pass: DDP calls hooks for ranks that have joined.
        end.cancel()
