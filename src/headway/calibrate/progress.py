"""A progress line on the terminal, with the standard library alone."""

from __future__ import annotations

import math
import shutil
import sys
import time
from types import TracebackType
from typing import Self

from headway.durations import time_left_text
from headway.text_table import escapes_allowed

_EVERY_S = 0.2


class ProgressLine:
    """Percent done, time left and a title, on standard error if it is a terminal.

    The line is erased at the end.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._started = time.monotonic()
        self._shown = -math.inf
        self._live = sys.stderr is not None and sys.stderr.isatty() and escapes_allowed()

    def __enter__(self) -> Self:
        return self

    def __call__(self, share: float) -> None:
        """Show that this share is done."""
        now = time.monotonic()
        if not self._live or now - self._shown < _EVERY_S:
            return
        self._shown = now
        parts = (f"{share:4.0%}", self.time_left(share), self.title)
        line = ", ".join(part for part in parts if part)[: shutil.get_terminal_size().columns - 1]
        print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)

    def time_left(self, share: float) -> str:
        """Return the time left in words; at first, nothing."""
        return time_left_text(time.monotonic() - self._started, share)

    def print(self, text: str) -> None:
        """Print a line that stays, in place of the progress."""
        self._erase()
        print(text, file=sys.stderr, flush=True)
        self._shown = -math.inf

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._erase()

    def _erase(self) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
