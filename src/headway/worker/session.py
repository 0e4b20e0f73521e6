"""This process's session with the gate: its connection, and the iterations that it reports."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections.abc import Callable

from headway.gate.environment import WorkerEnvironment
from headway.gate.frames import Iteration, Profile
from headway.worker.client import GateClient
from headway.worker.profile import IterationAverage

CONNECT_WAIT_S = 2.0
"""How long the start of a job waits for a gate that is slow to answer."""

REPORT_INTERVAL_S = 0.05
"""The least time between two reports; an iteration that ends sooner is part of the next report."""

PROFILE_INTERVAL_S = 5.0
"""The least time between two reports of the average iteration, and before the first."""


class _LatestReport:
    """Reports the latest state, unless the last report is too recent; `flush` makes up for it."""

    def __init__(self, client: GateClient, interval_s: float, last_s: float) -> None:
        self._client, self._interval_s = client, interval_s
        self._last_s = last_s
        self._unsent: Callable[[], Iteration | Profile] | None = None

    def report(self, frame: Callable[[], Iteration | Profile]) -> None:
        self._unsent = frame
        now_s = time.monotonic()
        if now_s - self._last_s >= self._interval_s:
            self._last_s = now_s
            self.flush()

    def flush(self) -> None:
        if self._unsent is not None and self._client.report(self._unsent()):
            self._unsent = None


class Session:
    """This process's connection, and rank 0's counters."""

    def __init__(self, client: GateClient) -> None:
        self.client = client
        self.sent_bytes = 0
        self._iterations = 0
        self._iteration = _LatestReport(client, REPORT_INTERVAL_S, float("-inf"))
        self._profile = _LatestReport(client, PROFILE_INTERVAL_S, time.monotonic())
        self._models = 0

    def counts_next_model(self) -> bool:
        """Return whether the iterations of the next attached model are the job's: the first's are.

        Call it once for each model.
        """
        self._models += 1
        return self._models == 1

    def iteration_done(self, forward_ns: int, backward_ns: int, gradient_bytes: int) -> None:
        """Count an iteration, and report it unless the last report is too recent."""
        self._iterations += 1
        frame = Iteration(self._iterations, forward_ns, backward_ns, gradient_bytes)
        self._iteration.report(lambda: frame)

    def profiled(self, average: IterationAverage) -> None:
        """Report the average iteration, unless the last report is too recent."""
        self._profile.report(average.profile)

    def flush(self) -> None:
        """Report what the gate does not know of."""
        self._iteration.flush()
        self._profile.flush()


_LOCK = threading.Lock()


def session_of(rank: int, computes: bool = False) -> Session | None:
    """Return this process's session, created on first use; None if it has no gate to ask.

    Ranks other than 0 have one only if they ask for turns to compute.
    """
    if rank != 0 and not computes:
        return None
    with _LOCK:
        return _session(rank)


@functools.cache
def _session(rank: int) -> Session | None:
    environment = WorkerEnvironment.from_variables(os.environ)
    if environment is None:
        return None
    client = GateClient(environment, rank)
    client.wait_for_first_try(CONNECT_WAIT_S)
    session = Session(client)
    # Exit handlers run in reverse order: this one before the client's, which disconnects.
    atexit.register(session.flush)
    return session
