"""Calls from the API's event loop into the scheduler's.

The API has a thread and a loop of its own, so that busy clients do not delay grants. What it asks
of the scheduler runs in the scheduler's loop, a few calls at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

MAX_CALLS = 4
"""Calls in the scheduler's loop at the same time; others wait in the API's."""

T = TypeVar("T")


class DaemonCalls:
    """Runs functions in the scheduler's loop; create it there."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Semaphore(MAX_CALLS)

    async def call(self, function: Callable[[], T]) -> T:
        """Return what a function returns that is called in the scheduler's loop."""

        async def work() -> T:
            return function()

        return await self.run(work)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what a coroutine returns that runs in the scheduler's loop."""

        async def started() -> T:
            return await work()

        async with self._turns:
            return await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(started(), self._loop)
            )
