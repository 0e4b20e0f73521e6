"""Attempts at jobs, on their way through the executor: being started, running, being stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from headway.live import operator_log
from headway.live.core.events import NEVER_STARTED, JobSpec, Slot
from headway.live.daemon.store import Store
from headway.live.executors import Attempt, AttemptEnd, Executor
from headway.live.executors.shim import COULD_NOT_START, STOPPED

SETTLE_S = 5.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
"""Pauses before something that failed is tried again; each is twice as long as the one before."""


class Attempts:
    """What the scheduler has the executor do; `started` and `ended` are told to it."""

    def __init__(
        self,
        executor: Executor,
        store: Store,
        environment: Callable[[Attempt], Mapping[str, str]],
        started: Callable[[Attempt], None],
        ended: Callable[[AttemptEnd], None],
    ) -> None:
        self._executor, self._store, self._environment = executor, store, environment
        self._tell_started, self._tell_ended = started, ended
        self._live: set[Attempt] = set()  # launched or taken over, and not ended
        self._starting: set[Attempt] = set()  # of those: not known to have started
        self._unwanted: set[Attempt] = set()  # of those: to be stopped, now or when they have
        # Of those: what could not be started, until its end is told, and when that will be.
        self._resting: dict[Attempt, tuple[AttemptEnd, asyncio.TimerHandle]] = {}
        self._in_vain: Counter[str] = Counter()  # starts in a row, by job
        self._tasks: set[asyncio.Task[None]] = set()
        self.closing = False
        """Set when nothing more is to be started."""

    def __contains__(self, attempt: object) -> bool:
        return attempt in self._live

    def __len__(self) -> int:
        return len(self._live)

    def wanted(self, attempt: Attempt) -> bool:
        """Tell whether an attempt is there and is to go on."""
        return attempt in self._live and attempt not in self._unwanted

    def obstacle(self, attempt: Attempt) -> str:
        """Return why an attempt could not be started, or nothing."""
        return self._resting[attempt][0].reason if attempt in self._resting else ""

    def take_over(self, attempt: Attempt) -> None:
        """Count an attempt that an earlier scheduler started."""
        self._live.add(attempt)

    def launch(self, attempt: Attempt, spec: JobSpec, slots: Sequence[Slot]) -> None:
        """Start an attempt when all that has been saved is on the disk."""
        if not self.closing:
            self._live.add(attempt)
            self._starting.add(attempt)
            self._spawn(self._launch(attempt, spec, slots))

    def stop(self, attempt: Attempt) -> None:
        """End an attempt, after its start if that is under way."""
        if attempt not in self._live or attempt in self._unwanted:
            return
        self._unwanted.add(attempt)
        if attempt in self._resting:
            ended, timer = self._resting[attempt]
            timer.cancel()
            self._tell_ended(ended)
        elif attempt not in self._starting:
            self._spawn(self._stop(attempt))

    def started(self, attempt: Attempt) -> None:
        """Take note that an attempt runs; tell it the first time."""
        if attempt in self._starting:
            self._starting.discard(attempt)
            self._tell_started(attempt)
            if attempt in self._unwanted:
                self._spawn(self._stop(attempt))

    def failed_to_start(self, ended: AttemptEnd) -> None:
        """Tell the end of an attempt that never started, after a pause.

        It keeps its slots meanwhile: what the machine lacks, another job would find lacking too.
        """
        attempt = ended.attempt
        self._starting.discard(attempt)
        if not self.wanted(attempt) or attempt in self._resting:
            self._tell_ended(ended)
            return
        pause_s = min(FIRST_PAUSE_S * 2 ** min(self._in_vain[attempt.job_id], 16), LONGEST_PAUSE_S)
        self._in_vain[attempt.job_id] += 1
        operator_log.warning(
            "attempt could not start",
            job=attempt.job_id,
            attempt=attempt.number,
            reason=ended.reason,
            again_in_s=pause_s,
        )
        loop = asyncio.get_running_loop()
        self._resting[attempt] = ended, loop.call_later(pause_s, self._tell_ended, ended)

    def ended(self, ended: AttemptEnd) -> None:
        """Take note that nothing of an attempt is left."""
        unwanted = ended.attempt in self._unwanted
        for those in (self._live, self._starting, self._unwanted):
            those.discard(ended.attempt)
        if resting := self._resting.pop(ended.attempt, None):
            resting[1].cancel()
        if ended.code != NEVER_STARTED or unwanted:
            del self._in_vain[ended.attempt.job_id]

    async def settle(self) -> None:
        """Wait for what is under way; a launch that waits for the disk does not happen."""
        self.closing = True
        for _, timer in self._resting.values():
            timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE_S)
        for task in list(self._tasks):
            task.cancel()

    async def _launch(self, attempt: Attempt, spec: JobSpec, slots: Sequence[Slot]) -> None:
        await self._store.saved()
        if attempt in self._unwanted:
            self._tell_ended(AttemptEnd(attempt, STOPPED, "stopped before it started"))
            return
        if self.closing:
            self.ended(AttemptEnd(attempt, NEVER_STARTED))
            return
        names = [f"{slot.node}:{slot.index}" for slot in slots]
        operator_log.info("attempt starts", job=attempt.job_id, attempt=attempt.number, slots=names)
        try:
            await self._executor.launch(attempt, spec, slots, self._environment(attempt))
        except Exception as error:
            operator_log.failure(
                "an executor failed", error, job=attempt.job_id, attempt=attempt.number
            )
            self._tell_ended(AttemptEnd(attempt, COULD_NOT_START, f"could not start: {error!r}"))
            with contextlib.suppress(Exception):  # Something of it may have been started.
                await self._executor.stop(attempt)
        else:
            self.started(attempt)

    async def _stop(self, attempt: Attempt) -> None:
        """End an attempt, and try again as long as the executor cannot."""
        pause_s = FIRST_PAUSE_S
        while attempt in self._live:
            try:
                await self._executor.stop(attempt)
                return
            except Exception as error:
                values = {"job": attempt.job_id, "attempt": attempt.number, "again_in_s": pause_s}
                operator_log.failure("attempt could not be stopped", error, **values)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; an error in it is told and ends nothing."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            operator_log.failure("an attempt is not seen to any more", error)
