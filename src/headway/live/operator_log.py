"""What the scheduler tells its operator: one JSON object a line on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from headway.domain.errors import InputError, did_you_mean

LEVELS = ("debug", "info", "warning", "error")
_LOGGER = logging.getLogger("headway.live")


def begin(level: str = "info") -> None:
    """Print notices of this level and above, and uvicorn's the same way."""
    if level not in LEVELS:
        raise InputError(f"unknown level.{did_you_mean(level, LEVELS)}", field="log-level")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    for logger in (_LOGGER, logging.getLogger("uvicorn"), logging.getLogger("asyncio")):
        logger.handlers[:] = [handler]
        logger.propagate = False
    _LOGGER.setLevel(level.upper())
    # What goes wrong in a request is told in the scheduler's own words.
    logging.getLogger("uvicorn").setLevel("CRITICAL")


def info(event: str, **values: object) -> None:
    """Tell something that an operator wants to know."""
    _LOGGER.info(event, extra={"values": values})


def debug(event: str, **values: object) -> None:
    """Tell something that explains what the scheduler does."""
    _LOGGER.debug(event, extra={"values": values})


def warning(event: str, **values: object) -> None:
    """Tell something that an operator may have to act on."""
    _LOGGER.warning(event, extra={"values": values})


def failure(event: str, error: BaseException, **values: object) -> None:
    """Tell an error that should not have happened, with where it did."""
    _LOGGER.error(event, extra={"values": values}, exc_info=error)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= getattr(record, "values", {})
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = repr(record.exc_info[1])
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
