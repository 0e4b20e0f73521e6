"""The scheduler's clock: nanoseconds since its first start, unaffected by the machine's clock."""

from __future__ import annotations

import time


class Clock:
    """Continues from an earlier scheduler's last saved time; time spent stopped does not count."""

    def __init__(self, start_ns: int = 0) -> None:
        self._offset_ns = start_ns - time.monotonic_ns()
        self.began_ns, self.began_unix_ns = start_ns, time.time_ns()
        """When this scheduler started: its time, and the machine's, which is only displayed."""

    def advance_to(self, time_ns: int) -> None:
        """Continue from a later time."""
        moved_ns = max(0, time_ns - self.now_ns())
        self._offset_ns += moved_ns
        self.began_ns += moved_ns

    def since_then_ns(self, time_ns: int, unix_s: float) -> int:
        """Return a time of this or of an earlier scheduler as if the clock had never stood still.

        Differences to the present are then those of the machine's clock, which showed `unix_s`.
        """
        if time_ns >= self.began_ns:
            return time_ns
        return self.began_ns + min(0, int(unix_s * 1e9) - self.began_unix_ns)

    def now_ns(self) -> int:
        """Return the current time, which never goes back."""
        return time.monotonic_ns() + self._offset_ns
