"""A scheduler inside the test's own process, around an executor that does as the test wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.configuration.network import network_from
from headway.live.core.core import Core
from headway.live.core.events import JobSpec, Slot
from headway.live.daemon import log_format
from headway.live.daemon.clock import Clock
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.event_log import EventLog
from headway.live.daemon.recovery import restore
from headway.live.daemon.store import Store
from headway.live.executors import Attempt, AttemptEnd, ExecutorHandler, ExecutorNode

POLICY = "ff+srsf:1"
PATIENCE_S = 60.0


class Obedient:
    """An executor without processes: it notes what it is asked, and tells what the test says."""

    def __init__(self, slots: int = 1, running: Sequence[Attempt] = ()) -> None:
        self.nodes = [ExecutorNode("n1", "127.0.0.1", slots, 2**30)]
        self.running = list(running)
        self.launched: list[Attempt] = []
        self.stopped: list[Attempt] = []
        self.environments: list[Mapping[str, str]] = []
        self.at_launch: Callable[[Attempt], None] = lambda _: None
        self.at_stop: Callable[[Attempt], None] = lambda attempt: self.ends(attempt, 143)
        self.at_recovery: Callable[[], None] = lambda: None

    def ends(self, attempt: Attempt, code: int, reason: str = "") -> None:
        """Tell the end of an attempt."""
        self.watcher.attempt_ended(AttemptEnd(attempt, code, reason))

    async def start(self, watcher: ExecutorHandler) -> Sequence[ExecutorNode]:
        self.watcher = watcher
        return self.nodes

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        self.at_recovery()
        await asyncio.sleep(0.05)  # To find what runs takes time, in which others have their turn.
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
        self.at_launch(attempt)

    async def stop(self, attempt: Attempt) -> None:
        self.stopped.append(attempt)
        self.at_stop(attempt)

    def log(self, attempt: Attempt, rank: int) -> Path:
        return Path(f"/nowhere/{attempt.job_id}/{rank}")

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def scheduling(folder: Path, executor: Obedient) -> AsyncIterator[Daemon]:
    """Schedule on a folder while this lasts."""
    store = Store(folder / "state.db")
    clock, network = Clock(store.clock_ns), network_from("10gbe")
    events = EventLog(folder / "events.jsonl", 2**20)
    core = Core(POLICY, network)
    daemon = Daemon(core, POLICY, store, events, clock, executor, lambda _: {})
    store.start(clock.now_ns, lambda _: None)
    events.start(log_format.first_line(POLICY, network, 0), lambda _: None)
    try:
        await restore(daemon)
        yield daemon
        core.validate()
    finally:
        await daemon.close()
        await events.close()
        await store.close()


def make_spec(**values: Any) -> JobSpec:
    """Return a job."""
    return JobSpec(**({"command": ("x",), "folder": "/"} | values))


async def until(true: Callable[[], Any]) -> Any:
    """Wait until something is so, and return it."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := true()):
            await asyncio.sleep(0.005)
    return found
