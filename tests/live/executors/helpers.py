"""Builders for tests of executors: a handler that records, small jobs, slots, processes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from headway.live.core.events import JobSpec, Slot
from headway.live.executors import Attempt, AttemptEnd, ExecutorNode
from headway.live.executors.local.executor import LocalExecutor
from headway.live.executors.rank_plans import LaunchNode
from waiting import eventually_async

GRACE_S = 0.5
QUICK = (sys.executable, "-I", "-S", "-u", "-c")
"""A Python that starts fast."""

NODES = (LaunchNode("n1", 4, 2**30), LaunchNode("n2", 4, 2**30))


class RecordingHandler:
    """Records what an executor reports."""

    def __init__(self) -> None:
        self.ends: list[AttemptEnd] = []
        self.nodes: list[str] = []
        self.waits: list[str] = []
        self.lost = ""

    def attempt_ended(self, end: AttemptEnd) -> None:
        self.ends.append(end)

    def attempt_waits(self, attempt: Attempt, why: str) -> None:
        self.waits.append(why)

    def node_up(self, node: ExecutorNode) -> None:
        self.nodes.append(f"+{node.name}")

    def node_lost(self, name: str) -> None:
        self.nodes.append(f"-{name}")

    def node_drained(self, name: str, draining: bool) -> None:
        self.nodes.append(f"{'!' if draining else '?'}{name}")

    def executor_lost(self, problem: str) -> None:
        self.lost = problem

    async def end_of(self, attempt: Attempt) -> AttemptEnd:
        """Wait for the end of an attempt and return it."""

        def found() -> list[AttemptEnd]:
            return [end for end in self.ends if end.attempt == attempt]

        return (await eventually_async(found))[0]


@contextlib.asynccontextmanager
async def local_executor(
    folder: Path, nodes: Sequence[LaunchNode] = NODES, grace_s: float = GRACE_S
) -> AsyncIterator[tuple[LocalExecutor, RecordingHandler]]:
    """Start a local executor, and close it at the end."""
    executor, handler = LocalExecutor(folder, nodes, grace_s), RecordingHandler()
    await executor.start(handler)
    try:
        yield executor, handler
    finally:
        await executor.close()


def job(code: str, *words: str, **others: Any) -> JobSpec:
    """Return a job that runs Python code."""
    return JobSpec(command=(*QUICK, code, *words), **others)


def make_slots(*words: str) -> list[Slot]:
    """Return slots from words like `n1:0`."""
    return [Slot(node, int(index)) for node, _, index in (word.partition(":") for word in words)]


def processes_with(word: str) -> list[int]:
    """Return the processes that have a word among their arguments, read from /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return sorted(set(found) - {os.getpid()})
