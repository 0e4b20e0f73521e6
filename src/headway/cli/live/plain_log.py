"""The operator log in words, for a person who watches `headway serve` on a terminal."""

from __future__ import annotations

import logging
import time

from headway.text_table import printable, printable_lines


class PlainFormatter(logging.Formatter):
    """Formats an entry as the time of day, what happened, and its values."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry as one line; an unexpected error adds its traceback."""
        values: dict[str, object] = dict(getattr(record, "values", {}))
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno <= logging.INFO else f"{record.levelname}: "
        if record.getMessage() == "scheduler ready":
            text = _greeting(values)
        else:
            details = ", ".join(f"{name} {value}" for name, value in values.items() if value != "")
            text = f"{record.getMessage()}: {details}" if details else record.getMessage()
        line = f"{when}  {level}{printable(text)}"
        if record.exc_info and record.exc_info[1] is not None:
            line += f"\n{printable_lines(self.formatException(record.exc_info))}"
        return line


def _greeting(values: dict[str, object]) -> str:
    return (
        f"the scheduler is ready with policy {values.get('policy')}; page and API at "
        f"{values.get('url')}, state in {values.get('folder')}. Submit jobs with headway submit; "
        "Ctrl-C stops the scheduler, and jobs continue"
    )


def use_plain_log() -> None:
    """Write the operator log, which must be configured, in words."""
    for handler in logging.getLogger("headway.live").handlers:
        handler.setFormatter(PlainFormatter())
