"""The scheduler's clock: no decision depends on the machine's wall clock."""

from __future__ import annotations

import ast
import asyncio
import sqlite3
import time
from pathlib import Path

import pytest

import headway.live
import headway.worker
from headway.live.core.events import JobExited
from headway.live.daemon.clock import Clock
from headway.live.daemon.daemon import Daemon
from live.daemon.in_process import FakeExecutor, make_spec, running_daemon
from waiting import eventually_async

DISPLAY_MODULES = {"adoption.py", "clock.py", "job_registry.py", "operator_log.py", "views.py"}
"""Modules that read the wall clock, only to display it."""

WALL_CLOCK = {
    "time",
    "time_ns",
    "now",
    "utcnow",
    "today",
    "localtime",
    "gmtime",
    "ctime",
    "CLOCK_REALTIME",
}


def modules() -> list[Path]:
    folders = [Path(headway.live.__path__[0]), Path(headway.worker.__path__[0])]
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def test_only_modules_that_display_times_read_the_wall_clock() -> None:
    readers = set()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in ("time", "datetime", "date") and node.attr in WALL_CLOCK:
                    readers.add(path.name)
            elif isinstance(node, ast.ImportFrom) and node.module == "time":
                assert not WALL_CLOCK & {name.name for name in node.names}, path
    assert readers == DISPLAY_MODULES


def test_the_clock_continues_from_its_saved_time_and_never_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(10**18)
    before_ns = clock.now_ns()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 10**18 <= before_ns <= clock.now_ns()


@pytest.mark.parametrize("step_s", [-1, 10**6], ids=["back to the start", "days ahead"])
def test_a_changed_saved_clock_affects_no_job(tmp_path: Path, step_s: int) -> None:
    async def first() -> None:
        async with running_daemon(tmp_path, FakeExecutor()) as daemon:
            await daemon.drain("n1", True)
            await daemon.submit(make_spec())

    asyncio.run(first())
    clock_ns = "0" if step_s < 0 else str(step_s * 10**9)
    with sqlite3.connect(tmp_path / "state.db") as database:
        database.execute("UPDATE meta SET value = ? WHERE name = 'clock_ns'", [clock_ns])
        database.execute("UPDATE jobs SET submitted_ns = 5000000000")
    database.close()
    executor = FakeExecutor()

    async def second(daemon: Daemon) -> None:
        await daemon.drain("n1", False)
        await eventually_async(lambda: daemon.registry["1"].state == "running")
        executor.end(executor.launched[0], 0)
        assert daemon.registry["1"].state == "done"
        assert daemon.core.state.now_ns >= int(clock_ns)
        within_1_s = daemon.metrics.registry.get_sample_value(
            "headway_jct_seconds_bucket", {"le": "1.0"}
        )
        assert within_1_s == (1 if step_s < 0 else 0)

    async def again() -> None:
        async with running_daemon(tmp_path, executor) as daemon:
            await second(daemon)

    asyncio.run(again())


def test_an_event_with_an_earlier_time_counts_as_now(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_daemon(tmp_path, FakeExecutor()) as daemon:
            now_ns = daemon.core.state.now_ns
            daemon.pipeline.handle(JobExited(at_ns=0, job_id="9", attempt=1, code=0))
            assert daemon.core.state.now_ns == now_ns

    asyncio.run(main())
