"""How long jobs take by the scheduler's clock: to begin, for iterations and messages, to exit.

Forecasts are corrected by them; no decision depends on them.
"""

from __future__ import annotations

from collections import deque

WARMUP_ITERATIONS = 2
"""Iterations of an attempt that are not observed: in the first ones a job still sets itself up."""
MIN_ITERATIONS = 5
"""With fewer iterations, their time is unknown."""
MARKS = 32
MARK_INTERVAL_NS = 1_000_000_000
"""Iterations are observed over the last `MARKS` marks, which are at least this far apart."""
RECENT_MESSAGES = 32
"""A new message is one of this many in the averages, once there are that many."""
RECENT_JOBS = 4
"""A new job is one of this many in the averages."""
MAX_FACTOR = 100.0
"""How much longer or shorter than the network model says messages are taken to be, at most."""


class Overheads:
    """How long jobs take before their first iteration and after their last one, on average."""

    __slots__ = ("exit_ns", "start_ns")

    def __init__(self) -> None:
        self.start_ns: int | None = None
        self.exit_ns: int | None = None

    def began(self, after_ns: int) -> None:
        """Note how long after its start a job began its first iteration."""
        self.start_ns = _moved(self.start_ns, after_ns)

    def exited(self, after_ns: int) -> None:
        """Note how long after its last iteration a job exited."""
        self.exit_ns = _moved(self.exit_ns, after_ns)


def _moved(average_ns: int | None, value_ns: int) -> int:
    value_ns = max(0, value_ns)
    if average_ns is None:
        return value_ns
    return ((RECENT_JOBS - 1) * average_ns + value_ns) // RECENT_JOBS


class Observations:
    """Of one attempt: the time of its iterations lately, and that of its messages."""

    __slots__ = ("_latest", "_marks", "_messages", "_sent_bytes", "_size_bytes", "trains")

    def __init__(self) -> None:
        self.trains = False  # whether it has been seen to do iterations
        self._marks: deque[tuple[int, int]] = deque(maxlen=MARKS)  # times, and iterations by then
        self._latest = (0, 0)
        self._messages = 0
        self._sent_bytes = self._size_bytes = 0.0  # averages over messages

    def iterated(self, now_ns: int, iterations: int) -> None:
        """Note how many iterations are done by now."""
        if iterations < WARMUP_ITERATIONS:
            return
        self.trains = True
        self._latest = (now_ns, iterations)
        if not self._marks or now_ns - self._marks[-1][0] >= MARK_INTERVAL_NS:
            self._marks.append(self._latest)

    def restart(self) -> None:
        """Forget the iterations so far: from now on they compete with other jobs than before."""
        self._marks.clear()

    def message_ended(self, sent_bytes: float, size_bytes: int) -> None:
        """Note a message's size, and what it could have sent meanwhile by the network model."""
        self._messages = min(self._messages + 1, RECENT_MESSAGES)
        self._sent_bytes += (sent_bytes - self._sent_bytes) / self._messages
        self._size_bytes += (size_bytes - self._size_bytes) / self._messages

    @property
    def latest_ns(self) -> int | None:
        """When the latest iteration was reported; None if none has been observed."""
        return self._latest[0] if self.trains else None

    @property
    def iteration_ns(self) -> int | None:
        """The average time of recent iterations; None while there are too few."""
        if not self._marks:
            return None
        (began_ns, before), (now_ns, iterations) = self._marks[0], self._latest
        if iterations - before < MIN_ITERATIONS or now_ns <= began_ns:
            return None
        return (now_ns - began_ns) // (iterations - before)

    @property
    def message_factor(self) -> float | None:
        """How many times longer recent messages took than by the network model; None without."""
        if self._messages == 0 or self._size_bytes <= 0:
            return None
        return min(MAX_FACTOR, max(1 / MAX_FACTOR, self._sent_bytes / self._size_bytes))
