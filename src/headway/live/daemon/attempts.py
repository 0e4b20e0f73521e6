"""Starts and stops attempts through the executor, and retries what fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from headway.live import operator_log
from headway.live.core.events import NEVER_STARTED, JobSpec, Slot
from headway.live.daemon.state_store import StateStore
from headway.live.executors import Attempt, AttemptEnd, Executor
from headway.live.executors.shim import COULD_NOT_START

CLOSE_TIMEOUT_S = 5.0
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
"""Pauses before a retry; each is twice as long as the one before."""


class Attempts:
    """All attempts that have not ended; `on_started` and `on_ended` are called once for each."""

    def __init__(
        self,
        executor: Executor,
        store: StateStore,
        environment: Callable[[Attempt], Mapping[str, str]],
        on_started: Callable[[Attempt], None],
        on_ended: Callable[[AttemptEnd], None],
    ) -> None:
        self._executor, self._store, self._environment = executor, store, environment
        self._on_started, self._on_ended = on_started, on_ended
        self._live: set[Attempt] = set()  # launched or taken over, and not ended
        self._starting: set[Attempt] = set()  # live, not known to have started
        self._stopping: set[Attempt] = set()  # live, to be stopped now or once started
        # Live, failed to start: how, and the timer that will report it after a pause.
        self._pausing: dict[Attempt, tuple[AttemptEnd, asyncio.TimerHandle]] = {}
        self._attached: set[Attempt] = set()  # live, with a worker that has been at the gate
        self._waits: dict[Attempt, str] = {}  # launched, and queued by the executor's cluster
        self._failed_starts: Counter[str] = Counter()  # in a row, by job
        self._tasks: set[asyncio.Task[None]] = set()
        self.closing = False
        """Once set, nothing is launched any more."""

    def __contains__(self, attempt: object) -> bool:
        return attempt in self._live

    def __len__(self) -> int:
        return len(self._live)

    def wanted(self, attempt: Attempt) -> bool:
        """Return whether an attempt is live and not to be stopped."""
        return attempt in self._live and attempt not in self._stopping

    def start_problem(self, attempt: Attempt) -> str:
        """Return why an attempt could not be started, or an empty string."""
        return self._pausing[attempt][0].reason if attempt in self._pausing else ""

    def waits_for(self, attempt: Attempt) -> str:
        """Return why a launched attempt has not started its ranks, or an empty string."""
        return self._waits.get(attempt, "")

    def waits(self, attempt: Attempt, why: str) -> None:
        """Record why a launched attempt has not started its ranks; nothing if it has."""
        self._waits.pop(attempt, None)
        if why and attempt in self._live:
            self._waits[attempt] = why

    def take_over(self, attempt: Attempt) -> None:
        """Add an attempt that an earlier scheduler started."""
        self._live.add(attempt)

    def launch(self, attempt: Attempt, spec: JobSpec, slots: Sequence[Slot]) -> None:
        """Start an attempt once everything saved so far is on disk."""
        if not self.closing:
            self._live.add(attempt)
            self._starting.add(attempt)
            self._spawn(self._launch(attempt, spec, slots))

    def stop(self, attempt: Attempt) -> None:
        """Stop an attempt, or let it finish starting first."""
        if attempt not in self._live or attempt in self._stopping:
            return
        self._stopping.add(attempt)
        if attempt in self._pausing:
            ended, timer = self._pausing[attempt]
            timer.cancel()
            self._on_ended(ended)
        elif attempt not in self._starting:
            self._spawn(self._stop(attempt))

    def attached(self, attempt: Attempt) -> None:
        """Note that a worker of an attempt has connected to the gate."""
        if attempt in self._live:
            self._attached.add(attempt)

    def has_attached(self, attempt: Attempt) -> bool:
        """Return whether a worker of an attempt has ever connected to the gate."""
        return attempt in self._attached

    def started(self, attempt: Attempt) -> None:
        """Mark an attempt as started; reports it the first time."""
        if attempt in self._starting:
            self._starting.discard(attempt)
            self._on_started(attempt)
            if attempt in self._stopping:
                self._spawn(self._stop(attempt))

    def failed_to_start(self, ended: AttemptEnd) -> None:
        """Report an attempt that never started as ended, after a pause.

        It keeps its slots during the pause: what the machine lacks, the next job would lack too.
        """
        attempt = ended.attempt
        self._starting.discard(attempt)
        if not self.wanted(attempt) or attempt in self._pausing:
            self._on_ended(ended)
            return
        doublings = min(self._failed_starts[attempt.job_id], 16)
        pause_s = min(FIRST_PAUSE_S * 2**doublings, MAX_PAUSE_S)
        self._failed_starts[attempt.job_id] += 1
        operator_log.warning(
            "attempt could not start",
            job=attempt.job_id,
            attempt=attempt.number,
            reason=ended.reason,
            retry_in_s=pause_s,
        )
        loop = asyncio.get_running_loop()
        self._pausing[attempt] = ended, loop.call_later(pause_s, self._on_ended, ended)

    def ended(self, ended: AttemptEnd) -> None:
        """Forget an attempt whose processes are all gone."""
        stopped = ended.attempt in self._stopping
        for attempts in (self._live, self._starting, self._stopping, self._attached):
            attempts.discard(ended.attempt)
        self._waits.pop(ended.attempt, None)
        if pausing := self._pausing.pop(ended.attempt, None):
            pausing[1].cancel()
        if ended.code != NEVER_STARTED or stopped:
            del self._failed_starts[ended.attempt.job_id]

    async def close(self) -> None:
        """Wait for pending starts and stops; a launch waiting for the disk does not happen."""
        self.closing = True
        for _, timer in self._pausing.values():
            timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        for task in list(self._tasks):
            task.cancel()

    async def _launch(self, attempt: Attempt, spec: JobSpec, slots: Sequence[Slot]) -> None:
        await self._store.sync()
        if attempt in self._stopping:
            self._on_ended(AttemptEnd(attempt, NEVER_STARTED, "stopped before it started"))
            return
        if self.closing:
            self.ended(AttemptEnd(attempt, NEVER_STARTED))
            return
        names = [f"{slot.node}:{slot.index}" for slot in slots]
        operator_log.info(
            "attempt starting", job=attempt.job_id, attempt=attempt.number, slots=names
        )
        try:
            await self._executor.launch(attempt, spec, slots, self._environment(attempt))
        except Exception as error:
            operator_log.failure("launch failed", error, job=attempt.job_id, attempt=attempt.number)
            self._on_ended(AttemptEnd(attempt, COULD_NOT_START, f"could not start: {error!r}"))
            with contextlib.suppress(Exception):  # Some of its processes may have started.
                await self._executor.stop(attempt)
        else:
            self.started(attempt)

    async def _stop(self, attempt: Attempt) -> None:
        """Stop an attempt, retrying while the executor fails to."""
        pause_s = FIRST_PAUSE_S
        while attempt in self._live:
            try:
                await self._executor.stop(attempt)
                return
            except Exception as error:
                values = {"job": attempt.job_id, "attempt": attempt.number, "retry_in_s": pause_s}
                operator_log.failure("attempt could not be stopped", error, **values)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task in the background; an error in it is logged and affects nothing else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            operator_log.failure("attempt task crashed", error)
