"""Jobs whose scheduler is killed, and the attempts' folders."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headway.live.core import events
from headway.live.core.events import JobSpec
from headway.live.executors import Attempt, shim
from headway.live.executors.attempt_folders import (
    attempt_of,
    folder_name,
    last_job,
    remove_oldest,
)
from headway.live.executors.node_tools import read_outcome, write_plan
from headway.testbed.processes import Process
from live.executors.executor_process import ExecutorProcess
from live.executors.helpers import (
    QUICK,
    job,
    local_executor,
    make_slots,
    processes_with,
)
from waiting import eventually_async

pytestmark = pytest.mark.slow

LONG, SHORT, STRANGER, NEVER = (Attempt(name, 1) for name in ("long", "short", "stranger", "never"))
UNTIL_TOLD = (
    "import os, sys, time\nprint('begun')\n"
    "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    "print('ended'); sys.exit(4)"
)


def test_jobs_continue_without_their_scheduler_and_the_next_one_finds_them(tmp_path: Path) -> None:
    state, go_short, go_long = tmp_path / "state", tmp_path / "short", tmp_path / "long"
    with ExecutorProcess("local", str(state)) as first:
        first.next_report("nodes")
        first.launch(LONG, job(UNTIL_TOLD, str(go_long)), "n1:0", "n2:0")
        first.launch(SHORT, job(UNTIL_TOLD, str(go_short)), "n1:1")
        first.launch(STRANGER, job(UNTIL_TOLD, str(tmp_path / "never")), "n1:2")
        first.kill()

    async def run() -> None:
        await eventually_async(lambda: len(processes_with(str(go_long))) == 2)
        go_short.touch()
        await eventually_async(lambda: read_outcome(state / folder_name(SHORT)) is not None)
        async with local_executor(state) as (executor, handler):
            assert await executor.recover([LONG, SHORT, NEVER]) == [LONG]
            assert processes_with(str(tmp_path / "never")) == []
            assert {(end.attempt.job_id, end.code, end.reason) for end in handler.ends} == {
                ("short", 4, "rank 0 exited with 4: ended"),
            }
            assert len(processes_with(str(go_long))) == 2
            go_long.touch()
            assert (await handler.end_of(LONG)).code == 4
            said = [executor.log(LONG, rank).read_text() for rank in range(2)]
            assert "begun\nended\n" in said  # The other may have been ended before it printed that.
            assert len(handler.ends) == 2

    asyncio.run(run())


def test_a_recovered_attempt_can_be_stopped(tmp_path: Path) -> None:
    with ExecutorProcess("local", str(tmp_path)) as first:
        first.next_report("nodes")
        first.launch(LONG, job("import time; time.sleep(600)", str(tmp_path)), "n1:0")
        first.kill()

    async def run() -> None:
        # A shim that takes too long to begin would be kept from it.
        await eventually_async((tmp_path / folder_name(LONG) / "running.json").exists)
        async with local_executor(tmp_path) as (executor, handler):
            assert await executor.recover([LONG]) == [LONG]
            await executor.stop(LONG)
            assert (await handler.end_of(LONG)).reason == "stopped"
            assert processes_with(str(tmp_path)) == []

    asyncio.run(run())


def test_an_attempt_whose_shim_was_killed_without_a_scheduler_has_ended(tmp_path: Path) -> None:
    with ExecutorProcess("local", str(tmp_path)) as first:
        first.next_report("nodes")
        first.launch(LONG, job("import time; time.sleep(600)", str(tmp_path)), "n1:0")
        first.kill()

    async def run() -> None:
        folder = tmp_path / folder_name(LONG)
        await eventually_async((folder / "running.json").exists)
        shim = processes_with(str(folder))[0]
        os.kill(shim, signal.SIGKILL)
        # A process that is ending has no arguments any more, but still holds its lock.
        await eventually_async(
            lambda: Process.of(shim) is None and processes_with(str(folder)) == []
        )
        async with local_executor(tmp_path) as (executor, handler):
            assert await executor.recover([LONG]) == []
            assert (await handler.end_of(LONG)).reason == "its shim was killed"
            assert processes_with(str(tmp_path)) == []

    asyncio.run(run())


def prepared(folder: Path, word: str) -> None:
    folder.mkdir(parents=True)
    command = [*QUICK, "import time; time.sleep(600)", word]
    rank = {"rank": 0, "command": command, "folder": ".", "environment": {}}
    write_plan(folder, {"ranks": [rank], "grace_s": 1.0, "port": 1})


def test_an_attempt_reported_as_never_started_does_not_start_later(tmp_path: Path) -> None:
    folder = tmp_path / folder_name(LONG)
    prepared(folder, str(tmp_path))
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)  # as a shim holds it that has not begun

    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            assert await executor.recover([LONG]) == []
            assert [end.code for end in handler.ends] == [-1]

    asyncio.run(run())
    words = [sys.executable, "-I", "-S", str(shim.__file__), str(folder)]
    handed_on = [(os.POSIX_SPAWN_DUP2, lock, shim.LOCK)]
    late = os.posix_spawn(sys.executable, words, os.environ, file_actions=handed_on)
    assert os.waitpid(late, 0)[1] == 0
    os.close(lock)
    assert not (folder / "ended.json").exists()
    assert processes_with(str(tmp_path)) == []


def test_an_attempt_without_files_is_not_said_to_have_never_started(tmp_path: Path) -> None:
    (tmp_path / folder_name(LONG)).mkdir()

    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            assert await executor.recover([LONG, NEVER]) == []
            assert handler.ends == []

    asyncio.run(run())


def test_a_process_with_the_id_of_a_dead_shim_is_not_killed(tmp_path: Path) -> None:
    folder = tmp_path / folder_name(LONG)
    prepared(folder, "word")
    os.rename(folder / "plan.json", folder / "running.json")
    with subprocess.Popen([*QUICK, "import time; time.sleep(600)"]) as innocent:
        (folder / "lock").write_text(str(innocent.pid))

        async def run() -> None:
            async with local_executor(tmp_path) as (executor, handler):
                assert await executor.recover([LONG]) == []
                assert (await handler.end_of(LONG)).reason == "its shim was killed"
                await executor.stop(LONG)

        asyncio.run(run())
        assert innocent.poll() is None
        innocent.kill()


def test_ranks_that_the_machine_has_no_resources_for_count_as_never_started(tmp_path: Path) -> None:
    few_files = ("prlimit", "--nofile=64:64")
    with ExecutorProcess("local", str(tmp_path), prefix=few_files) as scheduler:
        scheduler.next_report("nodes")
        spec = JobSpec(command=("sleep", "600"))
        scheduler.launch(LONG, spec, *(f"n1:{slot}" for slot in range(40)))
        found = scheduler.next_end()
        assert found.code == shim.OUT_OF_RESOURCES == events.NEVER_STARTED
        assert found.reason.endswith("could not start: Too many open files")


def test_the_last_job_is_the_highest_number_with_a_folder(tmp_path: Path) -> None:
    assert last_job(tmp_path / "nothing") == 0
    for name in ("7.1", "12.3", "x.9", f"{'9' * 30}.1", "identity", "\u0664.1"):
        (tmp_path / name).mkdir()
    assert last_job(tmp_path) == 12


def test_folders_may_be_removed_concurrently(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}.1").mkdir()
        os.utime(tmp_path / f"{number}.1", (number, number))
    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(remove_oldest, tmp_path, (), 2) for _ in range(8)]
    assert [one.exception() for one in done] == [None] * 8
    assert sorted(os.listdir(tmp_path)) == ["198.1", "199.1"]


def test_the_latest_attempts_of_the_latest_jobs_and_running_ones_are_kept(tmp_path: Path) -> None:
    names = ["0.1", "1.1", "2.1", "3.1", *(f"crashing.{n}" for n in range(1, 13)), "4.1"]
    for time_s, name in enumerate(names):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time_s, time_s))
    (tmp_path / "identity").touch()
    remove_oldest(tmp_path, {"0.1", "crashing.1"}, jobs=3, attempts=2)
    kept = ["0.1", "3.1", "4.1", "crashing.1", "crashing.11", "crashing.12", "identity"]
    assert sorted(os.listdir(tmp_path)) == kept


def test_the_name_of_a_folder_identifies_its_attempt() -> None:
    for attempt in (Attempt("a.b/ü", 3), Attempt("", 1), Attempt("..", 12)):
        assert attempt_of(folder_name(attempt)) == attempt
    for word in ("identity", "a.x", "a/b.1", "a.01", "a.²"):
        assert attempt_of(word) is None


def test_closing_an_executor_leaves_jobs_running(tmp_path: Path) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, _):
            await executor.launch(
                LONG, job("import time; time.sleep(600)", str(tmp_path)), make_slots("n1:0"), {}
            )
            await eventually_async(lambda: processes_with(str(tmp_path)))
        async with local_executor(tmp_path) as (executor, handler):
            assert await executor.recover([LONG]) == [LONG]
            assert processes_with(str(tmp_path))
            await executor.stop(LONG)
            await handler.end_of(LONG)

    asyncio.run(run())
