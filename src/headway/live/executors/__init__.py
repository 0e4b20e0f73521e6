"""Executors start and stop the processes of jobs; `local`, `ray` and `slurm` each have one.

An executor decides nothing. It may outlive a scheduler: the processes that it has started continue
when the scheduler ends, and `recover` hands them to the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from headway.live.core.events import JobSpec, Slot


class ExecutorNode(msgspec.Struct, frozen=True):
    """A machine that runs jobs; without GPUs, `gpus` counts slots."""

    name: str
    address: str
    gpus: int
    memory_bytes: int


class Attempt(msgspec.Struct, frozen=True):
    """One start of a job."""

    job_id: str
    number: int


class LaunchedAttempt(msgspec.Struct, frozen=True):
    """An attempt that is running, and what it was launched with; None is unknown."""

    attempt: Attempt
    spec: JobSpec | None = None
    slots: tuple[Slot, ...] = ()


class AttemptEnd(msgspec.Struct, frozen=True):
    """How an attempt ended; code 0 is success, and the reason is for people.

    With `events.NEVER_STARTED` it never ran, for a reason that is not the job's: the scheduler
    starts another attempt, which counts as no retry.
    """

    attempt: Attempt
    code: int
    reason: str = ""


class ExecutorHandler(Protocol):
    """What an executor reports to the scheduler; called in the event loop's thread."""

    def attempt_ended(self, end: AttemptEnd) -> None:
        """All processes of an attempt have ended; called once for each attempt."""

    def attempt_waits(self, attempt: Attempt, why: str) -> None:
        """A launched attempt has not started its ranks yet; an empty reason says that it has."""

    def node_up(self, node: ExecutorNode) -> None:
        """A node has joined, for the first time or again."""

    def node_lost(self, name: str) -> None:
        """A node is gone with all its processes; the ends of its attempts are reported too."""

    def node_drained(self, name: str, draining: bool) -> None:
        """The cluster's administrators want no new jobs on a node, or allow them again."""

    def executor_lost(self, problem: str) -> None:
        """The executor cannot go on; its jobs may. A sentence says why."""


class Executor(Protocol):
    """The interface of all executors."""

    async def start(self, handler: ExecutorHandler) -> Sequence[ExecutorNode]:
        """Start, and return the nodes."""

    async def find_unknown(self, known: Collection[Attempt]) -> Sequence[LaunchedAttempt]:
        """Return the attempts of an earlier scheduler that are running and not known."""

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        """Take over the processes of an earlier scheduler; return the known attempts that run.

        Known attempts that have ended meanwhile are reported as ended; nothing is reported of those
        without processes or files. Running attempts that are not known are stopped.
        """

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> None:
        """Start one process on each slot, rank r on the r-th, with torchrun's variables.

        A failure to start is reported as the attempt's end. An attempt that exists already is
        reported as never started.
        """

    async def stop(self, attempt: Attempt) -> None:
        """Stop an attempt, by SIGTERM and then SIGKILL; its end is reported as usual."""

    def log(self, attempt: Attempt, rank: int) -> Path:
        """Return the path of a rank's output."""

    async def close(self) -> None:
        """Release all resources; the processes keep running."""
