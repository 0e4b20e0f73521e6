"""Keeps a forecast of the running cluster, and answers what-if requests."""

from __future__ import annotations

import asyncio
import time

import msgspec

from headway.domain.errors import HeadwayError, InputError, MachineError
from headway.live import operator_log
from headway.live.api.daemon_calls import DaemonCalls
from headway.live.api.forecasts.pacing import Pacing
from headway.live.api.forecasts.process import ForecastProcess
from headway.live.api.views import encoded_state
from headway.live.core.forecast import Answer, Change, Common, Forecast
from headway.live.core.job_state import ACTIVE, JobState
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.errors import ConflictError, UnavailableError

START_AFTER_S = 10.0
"""A job runs this long before the process is started for it: short jobs need no forecast."""
POLL_S = 0.25
LATE_S = 60.0
"""How long the latest forecast is shown while the next one is being made."""
WHAT_IF_TIMEOUT_S = 25.0
"""How long a what-if request waits for its answer."""
MAX_JOBS = 2000
"""Unfinished jobs, above which there are no forecasts: describing them would delay grants."""


class WhatIf(msgspec.Struct, rename={"changed": "if"}):
    """The answer to a what-if request: the forecast as things are, and with the change."""

    now: Forecast
    changed: Forecast
    common: Common
    notes: tuple[str, ...]


class ForecastService:
    """Asks the forecasting process; all of it runs in the API's loop."""

    def __init__(self, daemon: Daemon, calls: DaemonCalls, *, enabled: bool) -> None:
        self._daemon, self._calls, self._enabled = daemon, calls, enabled
        if not enabled:
            daemon.predictions.problem = "This scheduler makes no forecasts."
        self._pacing = Pacing()
        self._process: ForecastProcess | None = None
        self._turn = asyncio.Lock()  # One request at a time.
        self._seen = -1  # the number of changes that the latest forecast knows
        self._problem = ""
        self._what_if: asyncio.Task[Answer] | None = None

    async def run(self) -> None:
        """Forecast the present again and again, until cancelled."""
        try:
            while self._enabled:
                await asyncio.sleep(POLL_S)
                try:
                    if await self._is_due():
                        await self._ask(None)
                except HeadwayError:
                    pass  # It has been reported.
                except Exception as error:
                    operator_log.failure("forecast failed", error)
                    self._pacing.failed(time.monotonic())
        finally:
            if self._what_if is not None:
                # It may be starting the process.
                self._what_if.cancel()
                await asyncio.wait([self._what_if])
            if self._process is not None:
                await self._process.close()

    async def what_if(self, change: Change) -> WhatIf:
        """Return what is going to happen, and what would with a change.

        Raises:
            InputError: The change makes no sense.
            ConflictError: Another request is being answered.
            UnavailableError: There is no process, or it needs too long.
        """
        if not self._enabled:
            raise UnavailableError("this scheduler makes no forecasts (forecasts = false).")
        if self._what_if is not None and not self._what_if.done():
            raise ConflictError("another what-if request is being computed; try again soon.")
        self._what_if = asyncio.create_task(self._ask(change))
        self._what_if.add_done_callback(_retrieve)
        try:
            # A request that takes longer is computed to its end all the same: until then others
            # are refused.
            answer = await asyncio.wait_for(asyncio.shield(self._what_if), WHAT_IF_TIMEOUT_S)
        except TimeoutError:
            raise UnavailableError(
                f"the forecast was not ready within {WHAT_IF_TIMEOUT_S:g} s; try again later."
            ) from None
        if answer.refused:
            raise InputError(answer.refused)
        if answer.now is None:
            raise UnavailableError(f"there is no forecast: {answer.problem}")
        changed = answer.changed or answer.now
        return WhatIf(answer.now, changed, Common.of(answer.now, changed), answer.notes)

    async def _is_due(self) -> bool:
        daemon = self._daemon
        if self._turn.locked():
            return False  # One is being made.
        if not self._pacing.is_due(time.monotonic(), daemon.feed.published != self._seen):
            return False
        if self._unfinished() == 0:
            return False
        if self._process is not None:
            return True
        return await self._calls.call(self._a_job_has_been_running)

    def _unfinished(self) -> int:
        counts = self._daemon.registry.counts()
        return sum(counts[state] for state in (*ACTIVE, JobState.QUEUED))

    def _a_job_has_been_running(self) -> bool:
        before_ns = self._daemon.clock.now_ns() - int(START_AFTER_S * 1e9)
        placed = self._daemon.core.state.arrays.placed.values()
        return any(job.started_ns <= before_ns for job in placed)

    async def _ask(self, change: Change | None) -> Answer:
        """Return the process's answer about the present, which is now known, and with a change.

        Raises:
            UnavailableError: There is none.
        """
        async with self._turn:
            published = self._daemon.feed.published
            answer = await self._answer(change)
            if answer.refused:
                return answer
            if answer.problem != self._problem:
                self._problem = answer.problem
                if answer.problem:
                    operator_log.warning("no forecast", problem=answer.problem)
            if answer.now is None:
                await self._show_none(answer.problem)
            else:
                await self._calls.run(lambda: self._daemon.take_forecast(answer.now))
            self._seen = published + 1  # The forecast is a change too.
            return answer

    async def _answer(self, change: Change | None) -> Answer:
        if self._unfinished() > MAX_JOBS:
            self._pacing.began(time.monotonic())
            return Answer(cpu_s=0.0, problem=f"more than {MAX_JOBS:,} jobs are unfinished.")
        rest_s = self._pacing.rest_s(time.monotonic())
        if rest_s > 0:
            raise UnavailableError(
                f"the forecasting process has failed; it is started again in {rest_s:,.0f} s."
            )
        self._pacing.began(time.monotonic())
        try:
            return await self._computed(change)
        except MachineError as error:
            await self._give_up(str(error))
            raise UnavailableError(f"the forecasting process {error}.") from None

    async def _computed(self, change: Change | None) -> Answer:
        if self._process is None:
            self._process = await ForecastProcess.start()
        state = await encoded_state(self._daemon, self._calls)
        asked = b"null" if change is None else msgspec.json.encode(change)
        late = asyncio.create_task(self._clear_when_late())
        try:
            answer = await self._process.ask(b'{"state":%s,"change":%s}' % (state, asked))
        finally:
            late.cancel()
        self._pacing.succeeded()
        self._count_cpu(answer.cpu_s)
        self._daemon.metrics.forecasts.inc()
        return answer

    def _count_cpu(self, used_s: float) -> None:
        self._pacing.used(used_s)
        self._daemon.metrics.forecast_cpu.inc(used_s)

    async def _give_up(self, problem: str) -> None:
        """End a process that has failed; another is started after a pause, the longer each time."""
        now_s = time.monotonic()
        if not self._pacing.failing:
            operator_log.warning(
                "forecasting process failed; it is restarted after increasing pauses",
                problem=problem,
            )
        if self._process is not None:
            total_s = self._process.cpu_s()
            if total_s is not None:
                self._count_cpu(self._process.spent_s(total_s))
            else:
                # What it has used is not known: count the most that it can have used.
                self._count_cpu(self._pacing.since_began_s(now_s))
            await self._process.close()
            self._process = None
        self._pacing.failed(now_s)
        pause_s = self._pacing.due_in_s(now_s)
        await self._show_none(
            f"the forecasting process {problem}; it is started again after {pause_s:,.0f} s."
        )

    async def _show_none(self, problem: str) -> None:
        shown = f"There is no forecast: {problem}"
        await self._calls.run(lambda: self._daemon.take_forecast(None, shown))

    async def _clear_when_late(self) -> None:
        """Show no old forecast while a new one takes too long."""
        await asyncio.sleep(LATE_S)
        await self._show_none(f"the forecasting process has not answered for {LATE_S:g} s.")


def _retrieve(task: asyncio.Task[Answer]) -> None:
    """Look at the error of a task that perhaps nobody waits for any more."""
    if not task.cancelled():
        task.exception()
