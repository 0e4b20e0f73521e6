"""SlotTurns on slots: of the jobs that ask before they compute, one computes on a slot at a time.

A rank may ask again before it has ended what it was granted; on a slot that jobs share the further
requests wait behind the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headway.gate.protocol import MOST_OPEN
from headway.live.core.events import AnyInstruction, GrantTurn, Slot
from headway.live.core.jobs import LiveJob

Turn: TypeAlias = tuple[LiveJob, int]
"""A job, and which of its ranks."""


class SlotTurns:
    """Who computes on each slot, who waits for it, and the slots where that has changed."""

    def __init__(self) -> None:
        self.holders: dict[Slot, Turn] = {}
        self.waiting: dict[Slot, dict[int, Turn]] = {}  # by number of the job; no slot has nobody
        self.changed: dict[Slot, None] = {}

    def ask(self, job: LiveJob, rank: int, request: int) -> bool:
        """Let a rank wait for its turn; False if it asks for nonsense."""
        if not 0 <= rank < len(job.slots):
            return False
        requests = job.computations.setdefault(rank, {})
        if request in requests or len(requests) >= MOST_OPEN:
            return False
        requests[request] = False
        if len(requests) == 1:
            self._wait(job, rank)
        self.changed[job.slots[rank]] = None
        return True

    def end(self, job: LiveJob, rank: int, request: int) -> bool:
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

    def forget(self, job: LiveJob, rank: int) -> None:
        """Forget all that a rank asked for or was granted."""
        if job.computations.pop(rank, None) is None:
            return
        slot = job.slots[rank]
        waiting = self.waiting.get(slot, {})
        if waiting.pop(job.number, None) is not None and not waiting:
            del self.waiting[slot]
        self._free(job, rank)

    def give(self, shared: Callable[[Slot], bool], instructions: list[AnyInstruction]) -> int:
        """Give each free slot's turn to the first in order that waits; return how many are given.

        Who has a slot to itself gets whatever it asks for at once.
        """
        given = len(instructions)
        for slot in self.changed:
            free = slot not in self.holders
            if free and slot not in self.waiting:
                continue
            alone = not shared(slot)
            if free:
                self._choose(slot)
            elif not alone:
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
        return len(instructions) - given

    def _choose(self, slot: Slot) -> None:
        waiting = self.waiting[slot]
        turn = min(waiting.values(), key=lambda turn: turn[0].order)
        del waiting[turn[0].number]
        if not waiting:
            del self.waiting[slot]
        self.holders[slot] = turn

    def _wait(self, job: LiveJob, rank: int) -> None:
        self.waiting.setdefault(job.slots[rank], {})[job.number] = (job, rank)

    def _free(self, job: LiveJob, rank: int) -> None:
        """Take the turn from a job, if it is its."""
        slot = job.slots[rank]
        if self.holders.get(slot) == (job, rank):
            del self.holders[slot]
        self.changed[slot] = None
