"""The one way to wait for something in tests: poll a condition, fail when it takes far too long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 180.0
"""Far longer than anything takes, even on a machine that is ten times slower than usual."""

_PAUSE_S = 0.01

T = TypeVar("T")


def eventually(condition: Callable[[], T], within_s: float = PATIENCE_S) -> T:
    """Return what `condition` returns as soon as that is true; fail after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not true within {within_s:g} s"
        time.sleep(_PAUSE_S)
    return found


async def eventually_async(condition: Callable[[], T], within_s: float = PATIENCE_S) -> T:
    """Do as `eventually`, without blocking the event loop."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not true within {within_s:g} s"
        await asyncio.sleep(_PAUSE_S)
    return found
