"""Executors: they start and end the processes of jobs where the scheduler wants them.

An executor never decides anything. It may outlive a scheduler: what it has started goes on when the
scheduler ends, and `recover` tells the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from headway.live.core.events import JobSpec, Slot


class Node(msgspec.Struct, frozen=True):
    """A machine that runs jobs; without GPUs `gpus` counts slots."""

    name: str
    address: str
    gpus: int
    memory_bytes: int


class Attempt(msgspec.Struct, frozen=True):
    """One start of a job."""

    job_id: str
    number: int


class Ended(msgspec.Struct, frozen=True):
    """How an attempt ended, for people and for retries; code 0 is success.

    With `events.NEVER_STARTED` it never ran, for a reason that is not the job's: it is made anew,
    and that counts for no retry.
    """

    attempt: Attempt
    code: int
    reason: str = ""


class Watcher(Protocol):
    """Whom an executor tells what happens; called in the event loop's thread."""

    def attempt_ended(self, ended: Ended) -> None:
        """All processes of an attempt have ended. Told once for each attempt."""

    def node_came(self, node: Node) -> None:
        """A node is there, new or again."""

    def node_lost(self, name: str) -> None:
        """A node is gone with everything on it; its attempts are told of as ended too."""


class Executor(Protocol):
    """What every executor can do."""

    async def start(self, watcher: Watcher) -> Sequence[Node]:
        """Begin; return the nodes."""

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        """Take over what an earlier scheduler started; return which of these attempts still run.

        Those that have ended meanwhile, or are nowhere to be found, are told to the watcher as
        ended. Anything that runs and is not known is stopped.
        """

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> None:
        """Start one process on each slot, rank r on the r-th, with torchrun's variables.

        An error to start is told to the watcher as the attempt's end; so is a number that an
        earlier attempt had, as never started.
        """

    async def stop(self, attempt: Attempt) -> None:
        """End an attempt: politely, then by force; the watcher hears of its end."""

    def log(self, attempt: Attempt, rank: int) -> Path:
        """Return the file with what a rank printed."""

    async def close(self) -> None:
        """Let go of everything, and leave what runs running."""
