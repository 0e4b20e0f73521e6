"""The log of events on the disk: appended by a thread, in parts, the oldest of which go.

A run's first part begins with a header, so a run's parts one after the other are its whole log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import re
import threading
from collections.abc import Callable
from pathlib import Path

HAND_OVER_S = 0.05
MOST_WAITING_BYTES = 64 * 2**20
"""How much may wait for a disk that is full before the log ends."""
PARTS = 16
"""The share of all parts that one may have."""


class EventLog:
    """Lines for a log; whoever adds one never waits for the disk."""

    def __init__(self, link: Path, keep_bytes: int) -> None:
        self._link, self._keep_bytes = link, keep_bytes
        self._run = 1 + max((run for run, _, _ in self._parts()), default=0)
        self._part = 0
        self._file: int | None = None
        self._size = 0
        self._lines = bytearray()
        self._waiting = bytearray()
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self.problem = ""
        """Why the log is behind, or has ended; or nothing."""

    def start(self, header: bytes, told: Callable[[str], None]) -> None:
        """Begin a run; `told` hears in the event loop of problems and their end."""
        self._loop, self._told = asyncio.get_running_loop(), told
        self._thread = threading.Thread(target=self._work, name="events", daemon=True)
        self._thread.start()
        self.add(header)

    def add(self, line: bytes) -> None:
        """Add a line, which ends with a newline; it is written soon."""
        self._lines += line
        if self._timer is None:
            self._timer = self._loop.call_later(HAND_OVER_S, self._hand_over)

    async def close(self) -> None:
        """Write what is left, if that is possible."""
        if self._thread is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._file is not None:
            os.close(self._file)

    def _hand_over(self) -> None:
        self._timer = None
        self._queue.put(bytes(self._lines))
        self._lines.clear()
        if self.problem and self._waiting:
            # Nothing may come to wake the thread; the disk may have room again.
            self._timer = self._loop.call_later(1.0, self._hand_over)

    def _work(self) -> None:
        ended = False
        while (lines := self._queue.get()) is not None:
            if ended:
                continue
            self._waiting += lines
            problem = self._write()
            if len(self._waiting) > MOST_WAITING_BYTES:
                ended = True
                self._waiting.clear()
                problem = f"the log of this run has ended: {problem}"
            if problem != self.problem:
                self.problem = problem
                self._tell(problem)

    def _tell(self, problem: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._changed, problem)

    def _changed(self, problem: str) -> None:
        self._told(problem)
        if self._timer is None:
            self._timer = self._loop.call_later(1.0, self._hand_over)

    def _write(self) -> str:
        """Write all that waits, whole lines or nothing of them; return what prevents it."""
        try:
            if self._file is None or self._size >= self._keep_bytes // PARTS:
                self._next_part()
            assert self._file is not None
            view, done = bytes(self._waiting), 0
            try:
                while done < len(view):
                    done += os.write(self._file, view[done:])
            except OSError:
                os.ftruncate(self._file, self._size)
                raise
        except Exception as error:  # Whatever it is, the thread goes on, and says what it is.
            told = error.strerror if isinstance(error, OSError) else None
            return told or repr(error)[:200]
        self._size += len(view)
        self._waiting.clear()
        return ""

    def _next_part(self) -> None:
        part = self._part + 1
        path = self._link.with_name(f"events-{self._run:06d}-{part:06d}.jsonl")
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        if self._file is not None:
            os.close(self._file)
        self._file, self._size, self._part = file, 0, part
        fresh = self._link.with_name(".events.link")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(path.name)
        fresh.replace(self._link)
        self._thin_out()

    def _thin_out(self) -> None:
        """Remove the oldest parts, so that those that stay leave room for one more."""
        parts = sorted(self._parts())[:-1]
        room = self._keep_bytes - self._keep_bytes // PARTS
        for _, _, path in reversed(parts):
            room -= path.stat().st_size
            if room < 0:
                path.unlink()

    def _parts(self) -> list[tuple[int, int, Path]]:
        """Return run, part and path of every part that there is."""
        found = []
        for path in self._link.parent.glob("events-*.jsonl"):
            if match := re.fullmatch(r"events-(\d{6,})-(\d{6,})\.jsonl", path.name):
                found.append((int(match[1]), int(match[2]), path))
        return found
