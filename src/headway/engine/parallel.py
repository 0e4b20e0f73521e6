"""Simulations in parallel: the engine releases the GIL, so that threads use all cores."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import TypeVar

from headway.domain.limits import whole
from headway.engine.progress import Progress
from headway.interrupts import GRACE_S, check

Task = TypeVar("Task")
Result = TypeVar("Result")

Checkpoint = Callable[[Progress], None]
"""A run's `progress` callback; it raises to end the run once the others have been stopped."""


class _StoppedError(Exception):
    """The run was stopped because another failed or the user interrupted."""


def thread_count(threads: int | None) -> int:
    """Return the number of threads to use; by default the number of cores."""
    if threads is None:
        return len(os.sched_getaffinity(0))
    return whole(threads, "threads", 1, 1024)


def run_in_threads(
    tasks: Iterable[Task],
    work: Callable[[Task, Checkpoint], Result],
    threads: int,
    done: Callable[[Result], None],
) -> None:
    """Call `work` on every task, in any order, and `done` on each result in the calling thread.

    An error or an interrupt ends all threads before it propagates, but for those in which a policy
    does not return.
    """
    stop = threading.Event()
    source, taking = iter(tasks), threading.Lock()
    finished: SimpleQueue[tuple[Result] | BaseException | None] = SimpleQueue()

    def checkpoint(_: Progress) -> None:
        if stop.is_set():
            raise _StoppedError

    def run() -> None:
        """Take tasks until there are none left, or the runs are stopped."""
        try:
            while not stop.is_set():
                with taking:
                    task = next(source, stop)
                if isinstance(task, threading.Event):
                    break
                finished.put((work(task, checkpoint),))
        except BaseException as error:
            # Where runs are nested, the outer ones may have been stopped: these must raise that.
            if not (isinstance(error, _StoppedError) and stop.is_set()):
                finished.put(error)
        finished.put(None)

    workers = [
        threading.Thread(target=run, name=f"run-{index}", daemon=True) for index in range(threads)
    ]
    try:
        for worker in workers:
            worker.start()
        working = threads
        while working:
            result = finished.get()
            check()
            if result is None:
                working -= 1
            elif isinstance(result, BaseException):
                try:
                    raise result
                finally:
                    del result  # Else it holds itself, by this frame, and all that its run held.
            else:
                done(result[0])
    finally:
        stop.set()
        deadline = time.monotonic() + GRACE_S
        for worker in workers:
            if worker.ident is not None:
                # A policy that never returns must not keep the process from ending.
                worker.join(max(0.0, deadline - time.monotonic()))
        while not finished.empty():
            finished.get()  # Else its errors hold it, by their frames, and all of their runs.
