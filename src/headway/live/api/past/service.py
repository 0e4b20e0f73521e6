"""Answers pages' requests about the past; equal requests share one answer."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from headway.domain.errors import MachineError
from headway.live import operator_log
from headway.live.api.past.process import PastProcess
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.errors import UnavailableError
from headway.live.past.requests import PastRequest

CORE_SHARE = 0.25
"""How much of a core the process may use while pages ask all the time."""
MAX_REST_S = 2.0
"""How long the next request waits for that at most."""
IDLE_S = 120.0
"""The process ends when nobody has asked for this long."""
FAILED_S = 10.0
"""A process that has failed is not started again for this long."""
MAX_WAITING = 64
"""Requests beyond that are refused."""
MAX_KEPT_BYTES = 2**24
"""Answers that will not change, kept for other pages."""
SETTLED_NS = 5_000_000_000
"""What is older than this does not change any more."""


class Stretch(NamedTuple):
    """A stretch of time on the scheduler's clock."""

    from_ns: int
    to_ns: int


class PastService:
    """Asks the process that reads the log; all of it runs in the API's loop."""

    def __init__(self, daemon: Daemon, log: Path) -> None:
        self._daemon, self._log = daemon, log
        self._process: PastProcess | None = None
        self._turn = asyncio.Lock()  # One request at a time.
        self._asked: dict[Stretch, asyncio.Task[bytes]] = {}
        self._kept: OrderedDict[Stretch, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._damage: set[str] = set()  # what has been reported
        self._used_at_s = self._failed_at_s = self._rested_at_s = float("-inf")

    async def run(self) -> None:
        """End the process when nobody needs it, until cancelled."""
        try:
            while True:
                await asyncio.sleep(IDLE_S / 10)
                if not self._asked and time.monotonic() > self._used_at_s + IDLE_S:
                    await self._end_process()
        finally:
            await self._end_process()

    async def block(self, asked: Stretch) -> bytes:
        """Return what happened in a stretch of time, as a block.

        Raises:
            UnavailableError: The log cannot be read, or too many ask.
        """
        if asked in self._kept:
            self._kept.move_to_end(asked)
            return self._kept[asked]
        task = self._asked.get(asked)
        if task is None:
            if len(self._asked) >= MAX_WAITING:
                raise UnavailableError("too many pages ask for the past; try again soon.")
            task = self._asked[asked] = asyncio.create_task(self._answer(asked))
            task.add_done_callback(lambda _: self._asked.pop(asked, None))
        return await asyncio.shield(task)

    async def _answer(self, asked: Stretch) -> bytes:
        async with self._turn:
            if time.monotonic() < self._failed_at_s + FAILED_S:
                raise UnavailableError("the past cannot be read at present; try again soon.")
            await asyncio.sleep(self._rested_at_s - time.monotonic())
            clock = self._daemon.clock
            now_ns = clock.now_ns()
            request = PastRequest(
                from_ns=asked.from_ns,
                to_ns=asked.to_ns,
                now_ns=now_ns,
                ahead_ns=clock.began_unix_ns - clock.began_ns,
                log_is_written=not self._daemon.log.problem,
            )
            self._used_at_s = time.monotonic()
            try:
                if self._process is None:
                    self._process = await PastProcess.start(self._log)
                answer, block = await self._process.ask(request)
            except MachineError as error:
                await self._fail(f"the process that reads the event log {error}.")
                raise UnavailableError("the past cannot be read at present.") from None
            for problem in answer.damage:
                if problem not in self._damage:
                    self._damage.add(problem)
                    operator_log.warning("a run is left out of the past", problem=problem)
            if answer.problem:
                await self._fail(answer.problem)
                raise UnavailableError(f"the past cannot be read: {answer.problem}")
            if request.log_is_written and asked.to_ns < now_ns - SETTLED_NS:
                self._keep(asked, block)
            rest_s = min(MAX_REST_S, answer.cpu_s * (1 / CORE_SHARE - 1))
            self._rested_at_s = time.monotonic() + rest_s
            return block

    def _keep(self, asked: Stretch, block: bytes) -> None:
        self._kept[asked] = block
        self._kept_bytes += len(block)
        while self._kept_bytes > MAX_KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest)

    async def _fail(self, problem: str) -> None:
        operator_log.warning("the past cannot be shown", problem=problem)
        self._failed_at_s = time.monotonic()
        await self._end_process()

    async def _end_process(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            await process.close()
