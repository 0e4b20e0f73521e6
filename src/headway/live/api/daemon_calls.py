"""Calls from the API's event loop into the scheduler's.

The API has a thread and a loop of its own, so that busy clients do not delay grants. What it asks
of the scheduler runs in the scheduler's loop, a few calls at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

MAX_CALLS = 4
"""Calls in the scheduler's loop at the same time; others wait in the API's."""

T = TypeVar("T")


class DaemonCalls:
    """Runs functions in the scheduler's loop; create it there."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Semaphore(MAX_CALLS)
        self._waiting: dict[object, asyncio.Task[bytes]] = {}

    async def call(self, function: Callable[[], T]) -> T:
        """Return what a function returns that is called in the scheduler's loop."""

        async def work() -> T:
            return function()

        return await self.run(work)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what a coroutine returns that runs in the scheduler's loop."""
        async with self._turns:
            return await self._started(work)

    async def shared(self, key: object, work: Callable[[], Awaitable[Any]]) -> bytes:
        """Return as JSON what a coroutine returns that runs in the scheduler's loop.

        All that ask by the same key before it begins share one answer, which is thus never older
        than their requests.
        """
        task = self._waiting.get(key)
        if task is None:
            task = self._waiting[key] = asyncio.create_task(self._answer(key, work))
        return await asyncio.shield(task)

    async def _answer(self, key: object, work: Callable[[], Awaitable[Any]]) -> bytes:
        async with self._turns:
            del self._waiting[key]
            return msgspec.json.encode(await self._started(work))

    async def _started(self, work: Callable[[], Awaitable[T]]) -> T:
        async def started() -> T:
            return await work()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(started(), self._loop))
