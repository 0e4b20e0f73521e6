"""What every executor knows of attempts: which it watches, which are over, and whom to tell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Generic, TypeVar

from headway.live.executors import Attempt, Ended, Watcher, ports
from headway.live.executors.ranks import NEVER_STARTED_VERDICT, forget_oldest, log_of, name_of

MOST_OVER = 10_000
"""Attempts that are over and still known as such; the oldest are forgotten first."""


class Watched:
    """An attempt that is being started or was; `settled` when it is known which."""

    def __init__(self) -> None:
        self.port = 0
        self.settled = asyncio.Event()
        self.over = asyncio.Event()


_W = TypeVar("_W", bound=Watched)


class Watching(Generic[_W]):
    """The attempts of an executor whose folder holds what they print."""

    _watcher: Watcher

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._watched: dict[Attempt, _W] = {}
        self._over: dict[Attempt, None] = {}
        self._ports = ports.Ports()

    def log(self, attempt: Attempt, rank: int) -> Path:
        """Return the file with what a rank printed; what it printed earlier is in `NAME.1`."""
        return log_of(self._folder / name_of(attempt), rank)

    async def _settled(self, attempt: Attempt) -> _W | None:
        """Return what is watched of an attempt once it has been started; None if it is over."""
        if attempt in self._watched:
            await self._watched[attempt].settled.wait()
        return self._watched.get(attempt)

    def _tell(self, attempt: Attempt, code: int, reason: str) -> None:
        """Tell the end of an attempt, once."""
        watched = self._watched.pop(attempt, None)
        if watched is not None:
            self._ports.used.discard(watched.port)
            watched.over.set()
        if attempt not in self._over:
            self._end(attempt)
            self._watcher.attempt_ended(Ended(attempt, code, reason))

    def _end(self, attempt: Attempt) -> None:
        """Let an attempt be over."""
        self._over[attempt] = None
        if len(self._over) > MOST_OVER:
            del self._over[next(iter(self._over))]

    def _refuse(self, attempt: Attempt) -> None:
        """Tell that an attempt of this number was made before: by a scheduler of other jobs."""
        reason = "an attempt of this number has been made before"
        self._watcher.attempt_ended(Ended(attempt, NEVER_STARTED_VERDICT[0], reason))

    async def _forget_oldest(self) -> None:
        """Remove what attempts printed that ended long ago."""
        running = {name_of(one) for one in self._watched}
        await asyncio.to_thread(forget_oldest, self._folder, running)
