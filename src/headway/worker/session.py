"""This process's place in a live job: its connection to the gate, and what it has done so far."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from dataclasses import replace

from headway.gate.protocol import Iteration
from headway.worker.address import address_from
from headway.worker.client import GateClient

FIRST_TRY_S = 2.0
"""How long the start of a job waits for a gate that is slow to answer."""

LEAST_BETWEEN_S = 0.05
"""Iterations that end sooner after the last one told are told with a later one."""


class Session:
    """This process's connection, and rank 0's counts."""

    def __init__(self, client: GateClient) -> None:
        self.client = client
        self.sent_bytes = 0
        self._iterations = 0
        self._untold: Iteration | None = None
        self._told_s = float("-inf")
        self._models = 0

    def counts_this_model(self) -> bool:
        """Tell whether a model's iterations are the job's: those of the first one are."""
        self._models += 1
        return self._models == 1

    def iterated(self, forward_ns: int, backward_ns: int, gradient_bytes: int) -> None:
        """Count an iteration, and tell the gate if the last time is long enough ago."""
        self._iterations += 1
        self._untold = Iteration(self._iterations, forward_ns, backward_ns, gradient_bytes)
        now_s = time.monotonic()
        if now_s - self._told_s >= LEAST_BETWEEN_S:
            self._told_s = now_s
            self.tell()

    def tell(self) -> None:
        """Tell the gate what it has not heard yet."""
        if self._untold is not None and self.client.iterated(self._untold):
            self._untold = None


_LOCK = threading.Lock()


def session_of(rank: int, computes: bool = False) -> Session | None:
    """Return this process's session, made at first need; None if it has no gate to ask.

    Ranks other than 0 have one if they ask before they compute.
    """
    if rank != 0 and not computes:
        return None
    with _LOCK:
        return _session(rank)


@functools.cache
def _session(rank: int) -> Session | None:
    address = address_from(os.environ)
    if address is None:
        return None
    client = GateClient(replace(address, rank=rank))
    client.wait_for_first_try(FIRST_TRY_S)
    session = Session(client)
    # Runs before the client's own goodbye, which was registered before it.
    atexit.register(session.tell)
    return session
