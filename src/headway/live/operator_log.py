"""The operator log: one JSON object per line on standard error.

A thread writes the lines, so that a pipe without a reader cannot block the event loop. When too
many lines wait, new ones are dropped, and the next line that is written is preceded by their
number.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
from datetime import UTC, datetime

from headway.domain.errors import InputError, did_you_mean

LEVELS = ("debug", "info", "warning", "error")
MAX_WAITING_LINES = 10_000
FLUSH_TIMEOUT_S = 2.0
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
    """Log an unexpected error with its traceback."""
    _LOGGER.error(event, extra={"values": values}, exc_info=error)


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
