"""The output of ranks: bounded files, full disks, and readers that follow."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.live.executors import Attempt
from headway.live.executors.log_tail import LogTail
from headway.live.executors.shim import LOG_BYTES, Log
from live.executors.helpers import job, local_executor, make_slots
from waiting import eventually_async

A = Attempt("a", 1)


def test_a_log_keeps_the_latest_output_in_two_files_of_bounded_size(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", max_bytes=100)
    for number in range(50):
        log.write(b"%9d\n" % number)
    log.close()
    before, now = (tmp_path / "log.1").read_bytes(), (tmp_path / "log").read_bytes()
    assert len(before) <= 100
    assert len(now) <= 100
    numbers = [int(line) for line in (before + now).split()]
    assert numbers == list(range(numbers[0], 50))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]


def test_a_reader_follows_a_log_into_its_next_file(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "log")
    assert tail.read(100) == b""
    log = Log(tmp_path / "log", max_bytes=100)
    said, heard = b"", b""
    for number in range(50):
        line = b"%9d\n" % number
        log.write(line)
        said += line
        heard += tail.read(1000) if number % 3 else b""
    while data := tail.read(7):
        heard += data
    assert heard == said
    tail.close()
    log.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    subprocess.run(words, check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


FILL = (
    "import os, sys, time\n"
    "for _ in range(128): print('x' * 8000)\n"
    "open(sys.argv[1], 'w').close()\n"
    "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
    "print('the last'); sys.exit(5)"
)


@pytest.mark.root
def test_a_full_disk_loses_output_but_ends_no_job(small_disk: Path, tmp_path: Path) -> None:
    full, room = tmp_path / "full", tmp_path / "room"
    filler = small_disk / "filler"

    async def run() -> None:
        async with local_executor(small_disk / "state") as (executor, handler):
            # More than the pipe and the shim hold: there is room for the rest when it is removed.
            filler.write_bytes(b"x" * 300_000)
            await executor.launch(A, job(FILL, str(full), str(room)), make_slots("n1:0"), {})
            await eventually_async(full.exists)
            filler.unlink()
            room.touch()
            ended = await handler.end_of(A)
            assert (ended.code, ended.reason) == (5, "rank 0 exited with 5: the last")
            text = executor.log(A, 0).read_text()
            assert "bytes of output are lost]" in text
            assert text.endswith("the last\n")

    asyncio.run(run())


@pytest.mark.root
def test_the_outcome_is_reported_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    full, room = tmp_path / "full", tmp_path / "room"

    async def run() -> None:
        async with local_executor(small_disk / "state") as (executor, handler):
            await executor.launch(A, job(FILL, str(full), str(room)), make_slots("n1:0"), {})
            room.touch()
            assert (await handler.end_of(A)).reason == "rank 0 exited with 5: the last"
            second = Attempt("a", 2)
            await executor.launch(second, job("pass"), make_slots("n1:0"), {})
            ended = await handler.end_of(second)
            assert (ended.code, ended.reason) == (-1, "could not start: No space left on device")
            assert [path.name for path in (small_disk / "state").iterdir()] == ["a.1"]

    asyncio.run(run())


def test_a_rank_that_prints_without_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    async def run() -> None:
        async with local_executor(tmp_path) as (executor, handler):
            code = "import os\nfor _ in range(700): os.write(1, b'y' * 65535 + b'\\n')"
            await executor.launch(A, job(code), make_slots("n1:0"), {})
            assert (await handler.end_of(A)).code == 0
            log = executor.log(A, 0)
            older = log.with_name(f"{log.name}.1")
            assert 0 < log.stat().st_size <= LOG_BYTES
            assert LOG_BYTES / 2 < older.stat().st_size <= LOG_BYTES

    asyncio.run(run())
