"""Sinks that receive the tasks of a run while it is simulated."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from headway.domain.records import PLACEMENT, TASK, Records


class TimelineSink(Protocol):
    """Receives the tasks of a run in batches, in the order in which they end.

    Among them are, before a job's first task, rows of kind PLACEMENT with the GPUs that it got.
    """

    def append(self, tasks: Records) -> None:
        """Process a batch; the caller reuses its memory, so copy what must be kept."""


class Timeline:
    """A sink that keeps all tasks in memory, about 50 bytes each."""

    def __init__(self) -> None:
        self._batches: list[Records] = []

    def append(self, tasks: Records) -> None:
        """Keep a copy of a batch's tasks."""
        self._batches.append(tasks[tasks.kind != PLACEMENT])

    def tasks(self) -> Records:
        """Return all tasks, ordered by their ends; columns are attributes (`.start_ns`, …)."""
        if not self._batches:
            return np.zeros(0, TASK).view(np.recarray)
        return np.concatenate(self._batches).view(np.recarray)


class SeveralSinks:
    """A sink that passes every batch on to several."""

    def __init__(self, *sinks: TimelineSink) -> None:
        self._sinks = sinks

    def append(self, tasks: Records) -> None:
        """Pass a batch on."""
        for sink in self._sinks:
            sink.append(tasks)
