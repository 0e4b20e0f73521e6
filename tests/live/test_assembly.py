"""Startup and shutdown of a scheduler's parts, and what happens when one of them fails."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from gate.threaded_gate import SECRET, RawConnection, hello
from headway.gate.frames import Grant, Ready, Welcome
from headway.gate.protocol import encode
from headway.gate.sockets import bind_tcp
from headway.live import operator_log
from headway.live.assembly import Scheduler
from headway.live.daemon import daemon
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.settings import ExecutorSettings, ServeSettings
from headway.live.daemon.state_folder import locked_folder
from headway.live.daemon.state_store import StateStore
from headway.live.executors import Attempt
from live.daemon.in_process import POLICY, FakeExecutor, make_spec, running_daemon
from live.ports import free_ports
from waiting import eventually_async


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def run(folder: Path, executor: FakeExecutor, work: Callable[[Scheduler], Awaitable[None]]) -> bool:
    """Run some work with a scheduler whose jobs reach it over TCP."""
    [port] = free_ports(1)
    settings = ServeSettings(folder=folder, gate_port=port, executor=ExecutorSettings("ray"))

    async def main() -> bool:
        with locked_folder(folder) as state, bind_tcp("127.0.0.1", 0) as listening:
            store = StateStore(state.database)
            scheduler = Scheduler(settings, state, SECRET, POLICY, store, executor)
            running = asyncio.create_task(scheduler.run(listening, None, False))
            await eventually_async(lambda: state.address.exists() or running.done())
            await work(scheduler)
            return await running

    return asyncio.run(main())


def test_restored_jobs_know_the_gates_address_and_early_workers_wait(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)

    async def submit() -> None:
        async with running_daemon(folder, FakeExecutor()) as one:
            await one.submit(make_spec())
            await eventually_async(lambda: one.registry["1"].state == "running")
            await one.submit(make_spec())

    asyncio.run(submit())
    executor = FakeExecutor(slots=2, running=[Attempt("1", 1)])
    early: list[RawConnection] = []

    def connect_early() -> None:
        early.append(RawConnection(folder / "gate.sock"))
        early[0].send(hello("1", 1) + encode(Ready(1, 10, 10)))

    executor.on_recovery = connect_early

    async def work(scheduler: Scheduler) -> None:
        await eventually_async(lambda: executor.launched == [Attempt("2", 1)])
        heard = [await asyncio.to_thread(early[0].receive) for _ in range(2)]
        assert heard == [Welcome(), Grant(1)]
        host, _, port = executor.environments[0]["HEADWAY_GATE"].rpartition(":")
        assert (host, int(port)) == ("tcp:127.0.0.1", scheduler.gate.port)
        scheduler.stop()

    assert run(folder, executor, work) is True
    early[0].socket.close()


def test_a_part_that_fails_is_logged_and_stops_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[tuple[str, Exception]] = []
    save = Daemon.save_progress

    def fail_once(one: Daemon) -> None:
        if failures:
            save(one)
        else:
            raise RuntimeError("a defect")

    monkeypatch.setattr(
        operator_log, "failure", lambda event, error: failures.append((event, error))
    )
    monkeypatch.setattr(daemon, "SAVE_INTERVAL_S", 0.01)
    monkeypatch.setattr(Daemon, "save_progress", fail_once)

    async def work(_: Scheduler) -> None:
        pass

    assert run(tmp_path / "state", FakeExecutor(), work) is False
    ((event, error),) = failures
    assert (event, str(error)) == (
        "periodic saving failed; the scheduler is stopping",
        "a defect",
    )
    left = {path.name for path in (tmp_path / "state").iterdir()}
    assert not {"gate.sock", "address.json"} & left


def test_compiling_a_slow_policy_delays_no_job(tmp_path: Path) -> None:
    file, go = tmp_path / "slow.py", tmp_path / "go"
    file.write_text(
        "import os, time\n"
        "end_s = time.monotonic() + 30\n"
        f"while not os.path.exists({str(go)!r}) and time.monotonic() < end_s:\n"
        "    time.sleep(0.01)\n"
        f"assert os.path.exists({str(go)!r})\n"
        "def first(cluster, job, candidates, parameter):\n"
        "    return True\n"
    )

    async def main() -> None:
        async with running_daemon(tmp_path, FakeExecutor()) as one:
            choosing = asyncio.create_task(one.set_policy(f"{file}:first+srsf:1"))
            await one.submit(make_spec())
            await eventually_async(lambda: one.registry["1"].state == "running")
            assert not choosing.done()
            go.touch()
            await choosing
            assert one.core.rules.placement_name == "first"

    asyncio.run(main())
