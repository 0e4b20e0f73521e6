"""Attempts under way: started once they are on the disk, stopped once they have started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from headway.live import notices
from headway.live.events import JobSpec, Seat
from headway.live.executors import Attempt, Ended, Executor
from headway.live.executors.shim import STOPPED
from headway.live.store import Store

SETTLE_S = 5.0


class Attempts:
    """What the scheduler has the executor do; `started` and `ended` are told to it."""

    def __init__(
        self,
        executor: Executor,
        store: Store,
        environment: Callable[[Attempt], Mapping[str, str]],
        started: Callable[[Attempt], None],
        ended: Callable[[Ended], None],
    ) -> None:
        self._executor, self._store, self._environment = executor, store, environment
        self._tell_started, self._tell_ended = started, ended
        self._live: set[Attempt] = set()  # launched or taken over, and not ended
        self._starting: set[Attempt] = set()  # of those: not known to have started
        self._unwanted: set[Attempt] = set()  # of those: to be stopped when they have
        self._tasks: set[asyncio.Task[None]] = set()
        self.closing = False
        """Set when nothing more is to be started."""

    def __contains__(self, attempt: object) -> bool:
        return attempt in self._live

    def __len__(self) -> int:
        return len(self._live)

    def take_over(self, attempt: Attempt) -> None:
        """Count an attempt that an earlier scheduler started."""
        self._live.add(attempt)

    def launch(self, attempt: Attempt, spec: JobSpec, seats: Sequence[Seat]) -> None:
        """Start an attempt when all that has been saved is on the disk."""
        if not self.closing:
            self._live.add(attempt)
            self._starting.add(attempt)
            self._spawn(self._launch(attempt, spec, seats))

    def stop(self, attempt: Attempt) -> None:
        """End an attempt, after its start if that is under way."""
        if attempt in self._starting:
            self._unwanted.add(attempt)
        elif attempt in self._live:
            self._spawn(self._executor.stop(attempt))

    def started(self, attempt: Attempt) -> None:
        """Take note that an attempt runs; tell it the first time."""
        if attempt in self._starting:
            self._starting.discard(attempt)
            self._tell_started(attempt)
            if attempt in self._unwanted:
                self._unwanted.discard(attempt)
                self._spawn(self._executor.stop(attempt))

    def ended(self, attempt: Attempt) -> None:
        """Take note that nothing of an attempt is left."""
        for those in (self._live, self._starting, self._unwanted):
            those.discard(attempt)

    async def settle(self) -> None:
        """Wait for what is under way; a launch that waits for the disk does not happen."""
        self.closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE_S)
        for task in list(self._tasks):
            task.cancel()

    async def _launch(self, attempt: Attempt, spec: JobSpec, seats: Sequence[Seat]) -> None:
        await self._store.saved()
        if self.closing:
            return
        if attempt in self._unwanted:
            self._tell_ended(Ended(attempt, STOPPED, "stopped before it started"))
            return
        places = [f"{seat.node}:{seat.slot}" for seat in seats]
        notices.info("attempt starts", job=attempt.job, attempt=attempt.number, seats=places)
        await self._executor.launch(attempt, spec, seats, self._environment(attempt))
        self.started(attempt)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; an error in it is told and ends nothing."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            notices.failure("an executor failed", error)
