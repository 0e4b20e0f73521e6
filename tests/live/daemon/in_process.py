"""A daemon inside the test process, on an executor that the test controls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.configuration.network import network_from
from headway.live.core.core import Core
from headway.live.core.events import JobSpec, Slot
from headway.live.daemon.clock import Clock
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.event_log.format import encode_header
from headway.live.daemon.event_log.parts import latest_time_ns
from headway.live.daemon.event_log.writer import EventLogWriter
from headway.live.daemon.recovery import restore
from headway.live.daemon.state_store import StateStore
from headway.live.executors import (
    Attempt,
    AttemptEnd,
    ExecutorHandler,
    ExecutorNode,
    LaunchedAttempt,
)

POLICY = "ff+srsf:1"


class FakeExecutor:
    """An executor without processes: it records calls, and the test says what happens."""

    def __init__(self, slots: int = 1, running: Sequence[Attempt] = ()) -> None:
        self.nodes = [ExecutorNode("n1", "127.0.0.1", slots, 2**30)]
        self.running = list(running)
        self.launched: list[Attempt] = []
        self.stopped: list[Attempt] = []
        self.environments: list[Mapping[str, str]] = []
        self.on_launch: Callable[[Attempt], None] = lambda _: None
        self.on_stop: Callable[[Attempt], None] = lambda attempt: self.end(attempt, 143)
        self.on_recovery: Callable[[], None] = lambda: None

    def end(self, attempt: Attempt, code: int, reason: str = "") -> None:
        """Report the end of an attempt."""
        self.watcher.attempt_ended(AttemptEnd(attempt, code, reason))

    async def start(self, watcher: ExecutorHandler) -> Sequence[ExecutorNode]:
        self.watcher = watcher
        return self.nodes

    async def find_unknown(self, known: Collection[Attempt]) -> Sequence[LaunchedAttempt]:
        return []

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        self.on_recovery()
        await asyncio.sleep(0.05)  # Recovery takes time, in which other tasks run.
        return [attempt for attempt in known if attempt in self.running]

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> None:
        self.launched.append(attempt)
        self.environments.append(environment)
        self.on_launch(attempt)

    async def stop(self, attempt: Attempt) -> None:
        self.stopped.append(attempt)
        self.on_stop(attempt)

    def log(self, attempt: Attempt, rank: int) -> Path:
        return Path(f"/nowhere/{attempt.job_id}/{rank}")

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def running_daemon(folder: Path, executor: FakeExecutor) -> AsyncIterator[Daemon]:
    """Run a daemon on a folder for the duration of a with block."""
    store = StateStore(folder / "state.db")
    link = folder / "events.jsonl"
    clock, network = Clock(max(store.clock_ns, latest_time_ns(link))), network_from("10gbe")
    log = EventLogWriter(link, 2**20)
    core = Core(POLICY, network)
    daemon = Daemon(core, POLICY, store, log, clock, executor, lambda _: {})
    store.start(clock.now_ns, lambda _: None)
    header = encode_header(POLICY, network, 0, clock_ns=clock.began_ns, unix_ns=clock.began_unix_ns)
    log.start(header, lambda _: None)
    try:
        await restore(daemon)
        yield daemon
        core.validate()
    finally:
        await daemon.close()
        await log.close()
        await store.close()


def make_spec(**values: Any) -> JobSpec:
    """Return a job."""
    return JobSpec(**({"command": ("x",), "folder": "/"} | values))
