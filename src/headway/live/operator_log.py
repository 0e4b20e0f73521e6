"""The operator log: one JSON object per line on standard error.

A thread writes the lines, so that a pipe without a reader cannot block the event loop. When too
many lines wait, new ones are dropped, and the next line that is written is preceded by their
number.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Any

from headway.domain.errors import InputError, did_you_mean

LEVELS = ("debug", "info", "warning", "error")
MAX_WAITING_LINES = 10_000
FLUSH_TIMEOUT_S = 2.0
REPEAT_S = 10.0
MAX_REPEATS = 1000
EXHAUSTED_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.EAGAIN)
_LOGGER = logging.getLogger("headway.live")


def configure(level: str = "info") -> None:
    """Write log entries of this level and above, and those of uvicorn and asyncio, as JSON."""
    if level not in LEVELS:
        raise InputError(f"unknown level.{did_you_mean(level, LEVELS)}", field="log-level")
    handler = BackgroundHandler(sys.stderr.fileno())
    handler.setFormatter(JsonFormatter())
    for logger in (_LOGGER, logging.getLogger("uvicorn"), logging.getLogger("asyncio")):
        logger.handlers[:] = [handler]
        logger.propagate = False
    _LOGGER.setLevel(level.upper())
    # The API's own handlers report errors in requests.
    logging.getLogger("uvicorn").setLevel("CRITICAL")


def info(event: str, **values: object) -> None:
    """Log something that an operator wants to know."""
    _LOGGER.info(event, extra={"values": values})


def debug(event: str, **values: object) -> None:
    """Log something that explains what the scheduler does."""
    _LOGGER.debug(event, extra={"values": values})


def warning(event: str, **values: object) -> None:
    """Log something that an operator may have to act on."""
    _LOGGER.warning(event, extra={"values": values})


def failure(event: str, error: BaseException, **values: object) -> None:
    """Log an unexpected error: with its traceback, or in one line if the machine lacks something.

    The same error is logged once in `REPEAT_S`, with the number of times since the last entry.
    """
    repeats = _repeats.count((event, type(error), str(error)))
    if repeats is None:
        return
    values = values | ({"repeats": repeats} if repeats else {})
    if isinstance(error, OSError) and error.errno in EXHAUSTED_ERRORS:
        _LOGGER.error(event, extra={"values": values | {"problem": error.strerror}})
    else:
        _LOGGER.error(event, extra={"values": values}, exc_info=error)


def log_loop_error(_: object, context: dict[str, Any]) -> None:
    """Log an error in a callback of an event loop; its exception handler."""
    error = context.get("exception")
    text = str(context.get("message", "error in the event loop"))
    failure(text, error if isinstance(error, BaseException) else RuntimeError(text))


class Repeats:
    """Counts errors that occur again and again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[Hashable, tuple[float, int]] = {}  # last entry, and times since

    def count(self, error: Hashable) -> int | None:
        """Return how often an error occurred since its last entry, or None if that is recent."""
        now_s = time.monotonic()
        with self._lock:
            last_s, repeats = self._seen.get(error, (-math.inf, 0))
            if now_s - last_s < REPEAT_S:
                self._seen[error] = (last_s, repeats + 1)
                return None
            if len(self._seen) >= MAX_REPEATS:
                self._seen.clear()
            self._seen[error] = (now_s, 0)
            return repeats


_repeats = Repeats()


class BackgroundHandler(logging.Handler):
    """Writes lines to a file descriptor from a thread of its own; logging never waits for it."""

    def __init__(self, file: int) -> None:
        super().__init__()
        # Not `sys.stderr`: the interpreter could not exit while the thread holds that one's lock.
        self._file = file
        self._lines: queue.Queue[str] = queue.Queue(MAX_WAITING_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_lines, name="operator log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or drop it if too many are waiting."""
        try:
            if self._dropped and self._lines.qsize() < MAX_WAITING_LINES - 1:
                dropped, self._dropped = self._dropped, 0
                self._lines.put_nowait(_line("warning", "log lines dropped", {"lines": dropped}))
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all lines are written, but no longer than `FLUSH_TIMEOUT_S`."""
        deadline_s = time.monotonic() + FLUSH_TIMEOUT_S
        with self._lines.all_tasks_done:
            while self._lines.unfinished_tasks:
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0 or not self._lines.all_tasks_done.wait(remaining_s):
                    return

    def _write_lines(self) -> None:
        while True:
            data = f"{self._lines.get()}\n".encode(errors="replace")
            with contextlib.suppress(OSError):  # Without a reader the scheduler carries on.
                while data:
                    data = data[os.write(self._file, data) :]
            self._lines.task_done()


class JsonFormatter(logging.Formatter):
    """Formats an entry as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        values: dict[str, object] = dict(getattr(record, "values", {}))
        if record.exc_info and record.exc_info[1] is not None:
            values["error"] = repr(record.exc_info[1])
            values["trace"] = self.formatException(record.exc_info)
        return _line(record.levelname.lower(), record.getMessage(), values, record.created)


def _line(level: str, event: str, values: dict[str, object], created_s: float | None = None) -> str:
    when = datetime.now(UTC) if created_s is None else datetime.fromtimestamp(created_s, UTC)
    entry = {"time": when.isoformat(timespec="milliseconds"), "level": level, "event": event}
    return json.dumps(entry | values, default=str)
