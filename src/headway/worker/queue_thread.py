"""A thread that works through a queue, and ends before the interpreter does."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

EXIT_WAIT_S = 5.0
"""How long the exit of the process waits for the items that are still in the queue."""

T = TypeVar("T")


class QueueThread(Generic[T]):
    """Calls `handle` for each item in turn.

    It is ended by an exit handler: a thread that is inside PyTorch when the interpreter shuts down
    would abort the process (SIGABRT).
    """

    def __init__(self, handle: Callable[[T], None], name: str) -> None:
        self._handle = handle
        self._items: SimpleQueue[T | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def put(self, item: T) -> None:
        """Add an item; never blocks."""
        self._items.put(item)

    def end(self) -> None:
        """End the thread after the items that are in the queue."""
        self._items.put(None)
        self._thread.join(EXIT_WAIT_S)

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            self._handle(item)
