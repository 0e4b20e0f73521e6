"""Many runs at a time: the engine releases Python's global lock, so threads use all cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from headway.domain.limits import whole
from headway.engine.run import Progress

Task = TypeVar("Task")
Done = TypeVar("Done")

Look = Callable[[Progress], None]
"""What each run calls now and then, as its `progress`; it ends runs that nobody wants any more."""


class _GivenUpError(Exception):
    """Nobody wants this run any more."""


def thread_count(wanted: int | None) -> int:
    """Return how many runs to do at a time: as wanted, or as many as there are cores."""
    if wanted is None:
        return len(os.sched_getaffinity(0))
    return whole(wanted, "threads", 1, 1024)


def run_in_threads(
    tasks: Sequence[Task],
    work: Callable[[Task, Look], Done],
    threads: int,
    done: Callable[[Done], None],
) -> None:
    """Work on every task, in any order; `done` gets each result in the calling thread.

    Whatever ends this early, an error or an interrupt, no thread goes on.
    """
    give_up = threading.Event()

    def look(_: Progress) -> None:
        if give_up.is_set():
            raise _GivenUpError

    with ThreadPoolExecutor(threads) as pool:
        pending: set[Future[Done]] = set()
        try:
            pending = {pool.submit(work, task, look) for task in tasks}
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    done(future.result())
        finally:
            give_up.set()
            for future in pending:
                future.cancel()
