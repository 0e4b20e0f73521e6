"""The scheduler's clock: nanoseconds since its first start, whatever the machine's clock does."""

from __future__ import annotations

import time


class Clock:
    """Goes on from where an earlier scheduler's clock stood; the time between does not count."""

    def __init__(self, since_ns: int = 0) -> None:
        self._offset_ns = since_ns - time.monotonic_ns()

    def now_ns(self) -> int:
        """Return the time; never less than before."""
        return time.monotonic_ns() + self._offset_ns
