"""Many runs at a time: the engine releases Python's global lock, so threads use all cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
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
    tasks: Iterable[Task],
    work: Callable[[Task, Look], Done],
    threads: int,
    done: Callable[[Done], None],
) -> None:
    """Work on every task, in any order; `done` gets each result in the calling thread.

    Whatever ends this early, an error or an interrupt, no thread goes on.
    """
    give_up = threading.Event()
    source, taking = iter(tasks), threading.Lock()
    finished: SimpleQueue[tuple[Done] | BaseException | None] = SimpleQueue()

    def look(_: Progress) -> None:
        if give_up.is_set():
            raise _GivenUpError

    def run() -> None:
        """Take tasks until there are none, or nobody wants them."""
        try:
            while not give_up.is_set():
                with taking:
                    task = next(source, give_up)
                if isinstance(task, threading.Event):
                    break
                finished.put((work(task, look),))
        except BaseException as error:
            finished.put(error)
        finished.put(None)

    workers = [threading.Thread(target=run, name=f"run-{place}") for place in range(threads)]
    try:
        for worker in workers:
            worker.start()
        working = threads
        while working:
            result = finished.get()
            if result is None:
                working -= 1
            elif isinstance(result, BaseException):
                raise result
            else:
                done(result[0])
    finally:
        give_up.set()
        for worker in workers:
            if worker.ident is not None:
                worker.join()
