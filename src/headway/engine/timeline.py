"""Timelines: every task's start, end and place, when asked for."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from headway.domain.records import TASK, Records


class TimelineSink(Protocol):
    """Takes the tasks of a run as they end, a batch at a time."""

    def append(self, tasks: Records) -> None:
        """Take a batch; it is reused afterwards, so copy what must stay."""


class Timeline:
    """A sink that keeps everything in memory (about 40 bytes a task)."""

    def __init__(self) -> None:
        self._batches: list[Records] = []

    def append(self, tasks: Records) -> None:
        """Keep a copy of a batch."""
        self._batches.append(tasks.copy())

    def tasks(self) -> Records:
        """Return all tasks in the order of their ends; columns are attributes (`.start_ns`, …)."""
        if not self._batches:
            return np.zeros(0, TASK).view(np.recarray)
        return np.concatenate(self._batches).view(np.recarray)
