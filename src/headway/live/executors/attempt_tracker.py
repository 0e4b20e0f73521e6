"""The attempts of an executor: which are running, which have ended, and their reports."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from headway.live.core.events import NEVER_STARTED
from headway.live.executors import Attempt, AttemptEnd, ExecutorHandler
from headway.live.executors.attempt_folders import folder_name, log_path, remove_oldest
from headway.live.executors.rendezvous import RendezvousPorts

Outcome: TypeAlias = tuple[int, str]
"""Exit code of an attempt, and the reason."""

NEVER_STARTED_OUTCOME: Outcome = (NEVER_STARTED, "the scheduler ended before it had started")
"""The outcome of an attempt without any process: it is safe to start another."""

MAX_ENDED = 10_000
"""How many ended attempts are remembered: the latest."""


class TrackedAttempt:
    """An attempt that is starting or running; `started` is set once its launch has returned."""

    def __init__(self) -> None:
        self.port = 0
        self.started = asyncio.Event()
        self.ended = asyncio.Event()


T = TypeVar("T", bound=TrackedAttempt)


class AttemptTracker(Generic[T]):
    """The attempts of one executor; `folder` holds a folder for each.

    Set `handler` before the first attempt.
    """

    handler: ExecutorHandler

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.ports = RendezvousPorts()
        self.running: dict[Attempt, T] = {}
        self._ended: dict[Attempt, None] = {}  # oldest first

    def folder_of(self, attempt: Attempt) -> Path:
        """Return the folder of an attempt."""
        return self.folder / folder_name(attempt)

    def log(self, attempt: Attempt, rank: int) -> Path:
        """Return the path of a rank's output; older output is in `NAME.1`."""
        return log_path(self.folder_of(attempt), rank)

    def has_ended(self, attempt: Attempt) -> bool:
        """Return whether the end of an attempt was reported or ignored."""
        return attempt in self._ended

    async def started(self, attempt: Attempt) -> T | None:
        """Wait for the launch of an attempt and return it; None if it does not run."""
        if attempt in self.running:
            await self.running[attempt].started.wait()
        return self.running.get(attempt)

    def use_port(self, tracked: T, port: int) -> None:
        """Reserve the rendezvous port of an attempt until its end."""
        tracked.port = port
        self.ports.used.add(port)

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Stop tracking an attempt, and report its end unless that was done or is ignored."""
        tracked = self.running.pop(attempt, None)
        if tracked is not None:
            self.ports.used.discard(tracked.port)
            tracked.ended.set()
        if attempt not in self._ended:
            self._remember_end(attempt)
            self.handler.attempt_ended(AttemptEnd(attempt, *outcome))

    def ignore_end(self, attempt: Attempt) -> None:
        """Do not report the end of an attempt that the scheduler does not know."""
        self._remember_end(attempt)

    def refuse(self, attempt: Attempt) -> None:
        """Report that an attempt exists already, made by a scheduler with another database."""
        self.handler.attempt_ended(
            AttemptEnd(attempt, NEVER_STARTED, "this attempt exists already")
        )

    def refuse_if_ended(self, attempt: Attempt) -> bool:
        """Refuse an attempt that has ended; return whether it had."""
        if attempt in self._ended:
            self.refuse(attempt)
            return True
        return False

    async def remove_oldest_folders(self) -> None:
        """Remove all but the latest folders of ended attempts."""
        running: Collection[str] = {folder_name(attempt) for attempt in self.running}
        await asyncio.to_thread(remove_oldest, self.folder, running)

    def _remember_end(self, attempt: Attempt) -> None:
        self._ended[attempt] = None
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
