"""The scheduler's clock: nanoseconds since its first start, unaffected by the machine's clock."""

from __future__ import annotations

import time


class Clock:
    """Continues from an earlier scheduler's last saved time; time spent stopped does not count."""

    def __init__(self, start_ns: int = 0) -> None:
        self._offset_ns = start_ns - time.monotonic_ns()

    def advance_to(self, time_ns: int) -> None:
        """Continue from a later time."""
        self._offset_ns += max(0, time_ns - self.now_ns())

    def now_ns(self) -> int:
        """Return the current time, which never goes back."""
        return time.monotonic_ns() + self._offset_ns
