"""Turns to compute: on a slot that jobs share, one of the jobs that ask computes at a time.

A rank may ask for its next turn before the current one ends; on a shared slot the further requests
wait behind the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headway.gate.protocol import MAX_OPEN_REQUESTS
from headway.live.core.events import AnyInstruction, GrantTurn, Slot
from headway.live.core.jobs import LiveJob

Turn: TypeAlias = tuple[LiveJob, int]
"""A job and one of its ranks."""


class SlotTurns:
    """The turn on each slot, the ranks that wait for it, and the slots where these changed."""

    def __init__(self) -> None:
        self.holders: dict[Slot, Turn] = {}
        self.waiting: dict[Slot, dict[int, Turn]] = {}  # by job number; no inner dict is empty
        self.changed: dict[Slot, None] = {}  # a set in insertion order
        self.leases: dict[Slot, int] = {}  # when others stop waiting for a turn; see `leases`
        self.unleased: list[Slot] = []  # turns on shared slots whose leases have yet to begin

    def job_on(self, slot: Slot) -> str | None:
        """Return the job that has the turn on a slot."""
        turn = self.holders.get(slot)
        return None if turn is None else turn[0].job_id

    def request(self, job: LiveJob, rank: int, request: int) -> bool:
        """Queue a rank's request for a turn; return False if it is invalid."""
        if not 0 <= rank < len(job.slots):
            return False
        requests = job.computations.setdefault(rank, {})
        if request in requests or len(requests) >= MAX_OPEN_REQUESTS:
            return False
        requests[request] = False
        if len(requests) == 1:
            self._wait(job, rank)
        self.changed[job.slots[rank]] = None
        return True

    def complete(self, job: LiveJob, rank: int, request: int) -> bool:
        """End a computation; return False if it is unknown."""
        requests = job.computations.get(rank)
        if requests is None or request not in requests:
            return False
        del requests[request]
        if not requests:
            self.drop(job, rank)
        elif not next(iter(requests.values())):
            self._release(job, rank)
            self._wait(job, rank)
        return True

    def drop(self, job: LiveJob, rank: int) -> None:
        """Drop everything that a rank asked for or was granted."""
        if job.computations.pop(rank, None) is None:
            return
        slot = job.slots[rank]
        waiting = self.waiting.get(slot, {})
        if waiting.pop(job.number, None) is not None and not waiting:
            del self.waiting[slot]
        self._release(job, rank)

    def give(self, shared: Callable[[Slot], bool], instructions: list[AnyInstruction]) -> int:
        """Give the turn of each free slot to the first waiting job in order.

        A job alone on a slot is granted all its requests at once. Return the number of grants.
        """
        before = len(instructions)
        for slot in self.changed:
            free = slot not in self.holders
            if free and slot not in self.waiting:
                continue
            alone = not shared(slot)
            if free:
                self._choose(slot)
            if not alone and slot not in self.leases:
                self.unleased.append(slot)
            if not free and not alone:
                continue
            job, rank = self.holders[slot]
            requests = job.computations[rank]
            for request in [one for one, granted in requests.items() if not granted]:
                requests[request] = True
                instructions.append(
                    GrantTurn(job_id=job.job_id, attempt=job.attempts, rank=rank, request=request)
                )
                if not alone:
                    break
        self.changed.clear()
        return len(instructions) - before

    def _choose(self, slot: Slot) -> None:
        waiting = self.waiting[slot]
        turn = min(waiting.values(), key=lambda turn: turn[0].order)
        del waiting[turn[0].number]
        if not waiting:
            del self.waiting[slot]
        self.holders[slot] = turn

    def _wait(self, job: LiveJob, rank: int) -> None:
        self.waiting.setdefault(job.slots[rank], {})[job.number] = (job, rank)

    def _release(self, job: LiveJob, rank: int) -> None:
        """Release the slot's turn, if this rank holds it."""
        slot = job.slots[rank]
        if self.holders.get(slot) == (job, rank):
            del self.holders[slot]
            self.leases.pop(slot, None)
        self.changed[slot] = None
