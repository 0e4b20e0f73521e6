"""How often forecasts are made, so that their process uses a small share of a core on average."""

from __future__ import annotations

import math

CORE_SHARE = 0.1
"""How much of a core the forecasting process may use on average, with its start and compiling."""
MIN_INTERVAL_S = 1.0
"""Between the beginnings of two forecasts, however cheap they are."""
REFRESH_S = 5.0
"""When the present is forecast again although no job, node or policy has changed."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 600.0
"""How long a process that has failed is not started again; the pause doubles each time."""


class Pacing:
    """Decides when the next forecast may begin; times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._began_s = -math.inf
        self._paid_s = -math.inf
        self._failures = 0
        self._resting_s = -math.inf

    def began(self, now_s: float) -> None:
        """Note that a forecast begins."""
        self._began_s = now_s
        self._paid_s = max(self._paid_s, now_s)

    @property
    def failing(self) -> bool:
        """Whether the process has failed and not worked since."""
        return self._failures > 0

    def since_began_s(self, now_s: float) -> float:
        """Return how long ago the latest forecast began: it cannot have used more CPU time."""
        return now_s - self._began_s

    def used(self, cpu_s: float) -> None:
        """Note CPU time used: the next forecast waits until that is within the share."""
        self._paid_s += cpu_s / CORE_SHARE

    def failed(self, now_s: float) -> None:
        """Note that the process has failed, after its CPU time: that delays no restart for long."""
        self._paid_s = min(self._paid_s, now_s + LONGEST_PAUSE_S)
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**self._failures)
        self._resting_s = now_s + pause_s
        self._failures = min(self._failures + 1, 32)

    def succeeded(self) -> None:
        """Note that the process works."""
        self._failures = 0

    def due_in_s(self, now_s: float) -> float:
        """Return for how long no forecast may begin."""
        return max(0.0, self._paid_s - now_s, self._resting_s - now_s)

    def rest_s(self, now_s: float) -> float:
        """Return for how long a process that has failed is not started."""
        return max(0.0, self._resting_s - now_s)

    def is_due(self, now_s: float, changed: bool) -> bool:
        """Return whether the next forecast may begin, and there is a reason for it."""
        interval_s = MIN_INTERVAL_S if changed else REFRESH_S
        return now_s >= max(self._paid_s, self._resting_s, self._began_s + interval_s)
