"""Turns on slots: of the jobs that ask before they compute, one computes on a slot at a time.

A rank may ask again before it has ended what it was granted; on a slot that jobs share the further
requests wait behind the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headway.gate.protocol import MAX_OPEN_REQUESTS
from headway.live.core.events import AnyInstruction, ComputeGrant, Seat
from headway.live.core.jobs import Job

Turn: TypeAlias = tuple[Job, int]
"""A job, and which of its ranks."""


class Turns:
    """Who computes on each slot, who waits for it, and the slots where that has changed."""

    def __init__(self) -> None:
        self.holders: dict[Seat, Turn] = {}
        self.waiting: dict[Seat, dict[int, Turn]] = {}  # by number of the job; no slot has nobody
        self.changed: dict[Seat, None] = {}

    def ask(self, job: Job, rank: int, request: int) -> bool:
        """Let a rank wait for its turn; False if it asks for nonsense."""
        if not 0 <= rank < len(job.seats):
            return False
        requests = job.computations.setdefault(rank, {})
        if request in requests or len(requests) >= MAX_OPEN_REQUESTS:
            return False
        requests[request] = False
        if len(requests) == 1:
            self._wait(job, rank)
        self.changed[job.seats[rank]] = None
        return True

    def end(self, job: Job, rank: int, request: int) -> bool:
        """Forget a computation; False if there is no such thing."""
        requests = job.computations.get(rank)
        if requests is None or request not in requests:
            return False
        del requests[request]
        if not requests:
            self.forget(job, rank)
        elif not next(iter(requests.values())):
            self._free(job, rank)
            self._wait(job, rank)
        return True

    def forget(self, job: Job, rank: int) -> None:
        """Forget all that a rank asked for or was granted."""
        if job.computations.pop(rank, None) is None:
            return
        seat = job.seats[rank]
        waiting = self.waiting.get(seat, {})
        if waiting.pop(job.number, None) is not None and not waiting:
            del self.waiting[seat]
        self._free(job, rank)

    def give(self, shared: Callable[[Seat], bool], instructions: list[AnyInstruction]) -> int:
        """Give each free slot's turn to the first in order that waits; return how many are given.

        Who has a slot to itself gets whatever it asks for at once.
        """
        given = len(instructions)
        for seat in self.changed:
            free = seat not in self.holders
            if free and seat not in self.waiting:
                continue
            alone = not shared(seat)
            if free:
                self._choose(seat)
            elif not alone:
                continue
            job, rank = self.holders[seat]
            requests = job.computations[rank]
            for request in [one for one, granted in requests.items() if not granted]:
                requests[request] = True
                instructions.append(
                    ComputeGrant(job=job.name, attempt=job.attempts, rank=rank, request=request)
                )
                if not alone:
                    break
        self.changed.clear()
        return len(instructions) - given

    def _choose(self, seat: Seat) -> None:
        waiting = self.waiting[seat]
        turn = min(waiting.values(), key=lambda turn: turn[0].order)
        del waiting[turn[0].number]
        if not waiting:
            del self.waiting[seat]
        self.holders[seat] = turn

    def _wait(self, job: Job, rank: int) -> None:
        self.waiting.setdefault(job.seats[rank], {})[job.number] = (job, rank)

    def _free(self, job: Job, rank: int) -> None:
        """Take the turn from a job, if it is its."""
        seat = job.seats[rank]
        if self.holders.get(seat) == (job, rank):
            del self.holders[seat]
        self.changed[seat] = None
