"""Writes the event log from a thread, in numbered parts; old ones are thinned, then deleted.

The first part of each run starts with a header, so concatenating a run's parts gives its whole log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from headway.live.daemon.event_log.parts import log_parts, next_run, part_path
from headway.live.daemon.event_log.thinning import thin, thinned_parts

FLUSH_S = 0.05
RETRY_S = 1.0
MAX_UNWRITTEN_BYTES = 64 * 2**20
"""How much may wait for a full disk before the log of this run ends."""
PARTS = 16
"""The size limit of all parts together is divided into this many parts."""
THINNED_SHARE = 4
"""One part in this many of the limit is for what is left of old parts."""


class EventLogWriter:
    """Appends lines without making the event loop wait for the disk."""

    def __init__(self, link: Path, max_bytes: int) -> None:
        self._link, self._max_bytes = link, max_bytes
        self._run = next_run(link)
        self._part = 0
        self._file: int | None = None
        self._file_bytes = 0
        self._lines = bytearray()  # added since the last flush
        self._unwritten = bytearray()  # handed to the thread
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self.problem = ""
        """Why the log is behind or has ended; empty if it is neither."""

    def start(self, header: bytes, on_problem: Callable[[str], None]) -> None:
        """Begin a run; the event loop calls `on_problem` with each new problem, "" when solved."""
        self._loop, self._on_problem = asyncio.get_running_loop(), on_problem
        self._thread = threading.Thread(target=self._work, name="event log", daemon=True)
        self._thread.start()
        self.add(header)

    def add(self, line: bytes) -> None:
        """Add a line, which must end with a newline; it is written within about `FLUSH_S`."""
        self._lines += line
        if self._timer is None:
            self._timer = self._loop.call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Hand all added lines to the thread now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queue.put(bytes(self._lines))
        self._lines.clear()
        if self.problem and self._unwritten:
            # The thread only retries when it is woken, and no new line may come.
            self._timer = self._loop.call_later(RETRY_S, self.flush)

    async def close(self) -> None:
        """Write what is left, if possible, and close the file."""
        if self._thread is None:
            return
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._file is not None:
            os.close(self._file)

    def _work(self) -> None:
        ended = False
        while (lines := self._queue.get()) is not None:
            if ended:
                continue
            self._unwritten += lines
            problem = self._write()
            if len(self._unwritten) > MAX_UNWRITTEN_BYTES:
                ended = True
                self._unwritten.clear()
                problem = f"the log of this run has ended: {problem}"
            if problem != self.problem:
                self.problem = problem
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._problem_changed, problem)

    def _problem_changed(self, problem: str) -> None:
        self._on_problem(problem)
        if self._timer is None:
            self._timer = self._loop.call_later(RETRY_S, self.flush)

    def _write(self) -> str:
        """Write everything unwritten, as whole lines or not at all; return the problem, if any."""
        try:
            if self._file is None or self._file_bytes >= self._max_bytes // PARTS:
                self._open_next_part()
            assert self._file is not None
            data, written = bytes(self._unwritten), 0
            try:
                while written < len(data):
                    written += os.write(self._file, data[written:])
            except OSError:
                os.ftruncate(self._file, self._file_bytes)
                raise
        except Exception as error:  # The thread must survive any error and report it.
            reason = error.strerror if isinstance(error, OSError) else None
            return reason or repr(error)[:200]
        self._file_bytes += len(data)
        self._unwritten.clear()
        return ""

    def _open_next_part(self) -> None:
        part = self._part + 1
        path = part_path(self._link, self._run, part)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        if self._file is not None:
            os.close(self._file)
        self._file, self._file_bytes, self._part = file, 0, part
        new_link = self._link.with_name(".events.link")
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(path.name)
        new_link.replace(self._link)
        self._delete_oldest_parts()

    def _delete_oldest_parts(self) -> None:
        """Thin the oldest parts and delete the oldest thinned ones: one more part must fit."""
        part_bytes, thinned_bytes = self._max_bytes // PARTS, self._max_bytes // THINNED_SHARE
        room_bytes = self._max_bytes - part_bytes - thinned_bytes
        earlier = sorted(log_parts(self._link))[:-1]
        for _, _, path in reversed(earlier):
            room_bytes -= path.stat().st_size
            if room_bytes < 0:
                thin(path)
        for path in reversed(thinned_parts(self._link)):
            thinned_bytes -= path.stat().st_size
            if thinned_bytes < 0:
                path.unlink()
