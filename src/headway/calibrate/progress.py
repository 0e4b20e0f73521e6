"""A progress line on the terminal, with the standard library alone."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from headway.durations import time_left_text

_EVERY_S = 0.2


class ProgressLine:
    """Percent done and time left, on standard error if it is a terminal; erased at the end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = self._shown = time.monotonic()
        self._live = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __call__(self, share: float) -> None:
        """Show that this share is done."""
        now = time.monotonic()
        if not self._live or share <= 0 or now - self._shown < _EVERY_S:
            return
        self._shown = now
        left = time_left_text(now - self._started, share)
        print(f"\r{share:4.0%}, {left}{self._title}\033[K", end="", file=sys.stderr, flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
