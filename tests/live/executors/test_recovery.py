"""Schedulers that are killed, and what their jobs do then."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headway.live.core.events import JobSpec
from headway.live.executors import Attempt, shim
from headway.live.executors.on_node import ended, prepare
from headway.live.executors.ranks import attempt_of, forget_oldest, last_job, name_of
from live.executors.driving import (
    QUICK,
    Scheduler,
    eventually,
    having,
    job,
    local,
    slots,
)

LONG, SHORT, STRANGER, NEVER = (Attempt(name, 1) for name in ("long", "short", "stranger", "never"))
UNTIL_TOLD = (
    "import os, sys, time\nprint('begun')\n"
    "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    "print('ended'); sys.exit(4)"
)


def test_jobs_go_on_without_their_scheduler_and_the_next_one_finds_them(tmp_path: Path) -> None:
    state, go_short, go_long = tmp_path / "state", tmp_path / "short", tmp_path / "long"
    with Scheduler("local", str(state)) as first:
        first.hear("nodes")
        first.launch(LONG, job(UNTIL_TOLD, str(go_long)), "n1:0", "n2:0")
        first.launch(SHORT, job(UNTIL_TOLD, str(go_short)), "n1:1")
        first.launch(STRANGER, job(UNTIL_TOLD, str(tmp_path / "never")), "n1:2")
        first.kill()

    async def run() -> None:
        assert await eventually(lambda: len(having(str(go_long))) == 2)
        go_short.touch()
        assert await eventually(lambda: ended(state / name_of(SHORT)) is not None)
        async with local(state) as (executor, diary):
            assert await executor.recover([LONG, SHORT, NEVER]) == [LONG]
            assert having(str(tmp_path / "never")) == []
            assert {(end.attempt.job_id, end.code, end.reason) for end in diary.ended} == {
                ("short", 4, "rank 0 exited with 4: ended"),
                ("never", -1, "the scheduler ended before it had started"),
            }
            assert len(having(str(go_long))) == 2
            go_long.touch()
            assert (await diary.end_of(LONG)).code == 4
            said = [executor.log(LONG, rank).read_text() for rank in range(2)]
            assert "begun\nended\n" in said  # The other may have been ended before it said so.
            assert len(diary.ended) == 3

    asyncio.run(run())


def test_a_recovered_attempt_can_be_stopped(tmp_path: Path) -> None:
    with Scheduler("local", str(tmp_path)) as first:
        first.hear("nodes")
        first.launch(LONG, job("import time; time.sleep(600)", str(tmp_path)), "n1:0")
        first.kill()

    async def run() -> None:
        async with local(tmp_path) as (executor, diary):
            assert await executor.recover([LONG]) == [LONG]
            await executor.stop(LONG)
            assert (await diary.end_of(LONG)).reason == "stopped"
            assert having(str(tmp_path)) == []

    asyncio.run(run())


def test_a_shim_killed_while_no_scheduler_ran_counts_as_the_end(tmp_path: Path) -> None:
    with Scheduler("local", str(tmp_path)) as first:
        first.hear("nodes")
        first.launch(LONG, job("import time; time.sleep(600)", str(tmp_path)), "n1:0")
        first.kill()

    async def run() -> None:
        folder = tmp_path / name_of(LONG)
        assert await eventually((folder / "running.json").exists)
        os.kill(having(str(folder))[0], signal.SIGKILL)
        assert await eventually(lambda: having(str(folder)) == [])
        async with local(tmp_path) as (executor, diary):
            assert await executor.recover([LONG]) == []
            assert (await diary.end_of(LONG)).reason == "its shim was killed"
            assert having(str(tmp_path)) == []

    asyncio.run(run())


def prepared(folder: Path, word: str) -> None:
    folder.mkdir(parents=True)
    command = [*QUICK, "import time; time.sleep(600)", word]
    rank = {"rank": 0, "command": command, "folder": ".", "environment": {}}
    prepare(folder, {"ranks": [rank], "grace_s": 1.0, "port": 1})


def test_what_was_given_up_before_it_had_started_never_starts(tmp_path: Path) -> None:
    folder = tmp_path / name_of(LONG)
    prepared(folder, str(tmp_path))
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)  # As held by a shim that does nothing yet.

    async def run() -> None:
        async with local(tmp_path) as (executor, diary):
            assert await executor.recover([LONG]) == []
            assert [end.code for end in diary.ended] == [-1]

    asyncio.run(run())
    words = [sys.executable, "-I", "-S", str(shim.__file__), str(folder)]
    handed_on = [(os.POSIX_SPAWN_DUP2, lock, shim.LOCK)]
    late = os.posix_spawn(sys.executable, words, os.environ, file_actions=handed_on)
    assert os.waitpid(late, 0)[1] == 0
    os.close(lock)
    assert not (folder / "ended.json").exists()
    assert having(str(tmp_path)) == []


def test_a_process_with_the_number_of_a_dead_shim_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / name_of(LONG)
    prepared(folder, "word")
    os.rename(folder / "plan.json", folder / "running.json")
    with subprocess.Popen([*QUICK, "import time; time.sleep(600)"]) as innocent:
        (folder / "lock").write_text(str(innocent.pid))

        async def run() -> None:
            async with local(tmp_path) as (executor, diary):
                assert await executor.recover([LONG]) == []
                assert (await diary.end_of(LONG)).reason == "its shim was killed"
                await executor.stop(LONG)

        asyncio.run(run())
        assert innocent.poll() is None
        innocent.kill()


def test_ranks_for_which_the_machine_has_too_little_have_not_started(tmp_path: Path) -> None:
    few_files = ("prlimit", "--nofile=64:64")
    with Scheduler("local", str(tmp_path), prefix=few_files) as scheduler:
        scheduler.hear("nodes")
        spec = JobSpec(command=("sleep", "600"))
        scheduler.launch(LONG, spec, *(f"n1:{slot}" for slot in range(40)))
        found = scheduler.ended()
        assert found.code == shim.NEVER_STARTED
        assert found.reason.endswith("could not start: Too many open files")


def test_new_jobs_are_counted_from_the_last_one_of_which_there_is_a_folder(tmp_path: Path) -> None:
    assert last_job(tmp_path / "nothing") == 0
    for name in ("7.1", "12.3", "x.9", f"{'9' * 30}.1", "identity", "\u0664.1"):
        (tmp_path / name).mkdir()
    assert last_job(tmp_path) == 12


def test_folders_that_another_removes_meanwhile_are_no_error(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}.1").mkdir()
        os.utime(tmp_path / f"{number}.1", (number, number))
    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(forget_oldest, tmp_path, (), 2) for _ in range(8)]
    assert [one.exception() for one in done] == [None] * 8
    assert sorted(os.listdir(tmp_path)) == ["198.1", "199.1"]


def test_only_the_latest_folders_are_kept_and_never_one_that_runs_removed(tmp_path: Path) -> None:
    for number in range(5):
        folder = tmp_path / f"{number}.1"
        folder.mkdir()
        os.utime(folder, (number, number))
    (tmp_path / "identity").touch()
    forget_oldest(tmp_path, {"0.1"}, kept=2)
    assert sorted(os.listdir(tmp_path)) == ["0.1", "3.1", "4.1", "identity"]


def test_names_of_attempts_are_read_as_they_were_written() -> None:
    for attempt in (Attempt("a.b/ü", 3), Attempt("", 1), Attempt("..", 12)):
        assert attempt_of(name_of(attempt)) == attempt
    for word in ("identity", "a.x", "a/b.1", "a.01", "a.²"):
        assert attempt_of(word) is None


def test_an_executor_that_closes_leaves_jobs_running(tmp_path: Path) -> None:
    async def run() -> None:
        async with local(tmp_path) as (executor, _):
            await executor.launch(
                LONG, job("import time; time.sleep(600)", str(tmp_path)), slots("n1:0"), {}
            )
            assert await eventually(lambda: having(str(tmp_path)))
        async with local(tmp_path) as (executor, diary):
            assert await executor.recover([LONG]) == [LONG]
            assert having(str(tmp_path))
            await executor.stop(LONG)
            await diary.end_of(LONG)

    asyncio.run(run())
