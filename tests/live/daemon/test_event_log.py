"""The event log writer: whole lines, in parts, the oldest of which are deleted."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.live.core.events import IterationDone, JobSpec, JobSubmitted, NodeLost
from headway.live.daemon.event_log import writer
from headway.live.daemon.event_log.format import encode_entry
from headway.live.daemon.event_log.parts import headless_runs
from headway.live.daemon.event_log.writer import EventLogWriter
from live.scheduler_process import fill
from waiting import eventually_async

MAX_BYTES = 2**20


def use(
    folder: Path,
    work: Callable[[EventLogWriter], Coroutine[Any, Any, None]],
    max_bytes: int = MAX_BYTES,
) -> list[str]:
    """Write a log; return the problems it reported."""
    problems: list[str] = []

    async def main() -> None:
        log = EventLogWriter(folder / "events.jsonl", max_bytes)
        log.start(b"header\n", problems.append)
        await work(log)
        await log.close()

    asyncio.run(main())
    return problems


def written(folder: Path) -> bytes:
    """Return the newest part."""
    link = folder / "events.jsonl"
    return link.read_bytes() if link.exists() else b""


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("events-*.jsonl"))


def test_a_run_is_a_header_and_its_lines_and_the_link_points_to_it(tmp_path: Path) -> None:
    async def work(log: EventLogWriter) -> None:
        log.add(b"one\n")
        log.add(b"two\n")

    assert use(tmp_path, work) == []
    assert (tmp_path / "events.jsonl").read_bytes() == b"header\none\ntwo\n"
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o777 == 0o600


def test_every_run_has_its_own_parts(tmp_path: Path) -> None:
    async def work(log: EventLogWriter) -> None:
        log.add(b"line\n")

    for _ in range(3):
        use(tmp_path, work)
    assert [path.name for path in parts(tmp_path)] == [
        f"events-{run:06d}-000001.jsonl" for run in (1, 2, 3)
    ]


def test_a_long_run_is_split_into_parts_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    async def work(log: EventLogWriter) -> None:
        for number in range(40):
            log.add(b"%04d" % number + b"x" * 995 + b"\n")
            log.flush()

    assert use(tmp_path, work, max_bytes=16_000) == []
    found = parts(tmp_path)
    assert found[0].name != "events-000001-000001.jsonl"
    assert sum(path.stat().st_size for path in found) <= 16_000
    lines = b"".join(path.read_bytes() for path in found).splitlines()
    numbers = [int(line[:4]) for line in lines]
    assert numbers == list(range(numbers[0], 40))


def test_a_job_that_fills_the_log_leaves_others_their_history(tmp_path: Path) -> None:
    """One job reports 200 times as often as another, for three times the size of the log."""
    submitted = encode_entry(
        JobSubmitted(at_ns=0, job_id="1", spec=JobSpec(command=("true",), name="quiet")), []
    )

    async def work(log: EventLogWriter) -> None:
        log.add(submitted)
        for number in range(20_000):
            job_id = "1" if number % 200 == 0 else "2"
            event = IterationDone(at_ns=number, job_id=job_id, attempt=1, iterations=number + 1)
            log.add(encode_entry(event, []))
            if number % 100 == 0:
                log.flush()

    assert use(tmp_path, work, max_bytes=MAX_BYTES) == []
    files = sorted(tmp_path.glob("*-*.jsonl"))
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES
    kept = b"".join(path.read_bytes() for path in files)
    assert submitted in kept
    assert kept.count(b'"job_id":"1"') == 101
    assert 0 < kept.count(b'"job_id":"2"') < 10_000
    # What is left cannot be replayed, and is not taken for a part.
    assert headless_runs(tmp_path / "events.jsonl") == {1}


def test_what_is_left_of_old_parts_is_deleted_too_when_it_fills_its_share(tmp_path: Path) -> None:
    async def work(log: EventLogWriter) -> None:
        for number in range(5_000):
            log.add(encode_entry(NodeLost(at_ns=number, node=f"node {number}"), []))
            if number % 100 == 0:
                log.flush()

    assert use(tmp_path, work, max_bytes=MAX_BYTES // 4) == []
    files = sorted(tmp_path.glob("*-*.jsonl"))
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES // 4
    assert any(path.name.startswith("thinned-") for path in files)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with room for 64 kilobytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.root
def test_a_full_disk_delays_lines_and_loses_none(small: Path) -> None:
    async def work(log: EventLogWriter) -> None:
        log.add(b"a" * 999 + b"\n")
        await eventually_async(lambda: b"aaa" in written(small))
        fill(small / "large")
        log.add(b"b" * 9_999 + b"\n")
        await eventually_async(lambda: log.problem)
        (small / "large").unlink()
        await eventually_async(lambda: not log.problem)

    assert use(small, work) == ["No space left on device", ""]
    lines = written(small).splitlines()
    assert lines == [b"header", b"a" * 999, b"b" * 9_999]


@pytest.mark.root
def test_a_disk_that_stays_full_ends_the_log_at_a_whole_line(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_UNWRITTEN_BYTES", 100_000)

    async def work(log: EventLogWriter) -> None:
        for _ in range(3):
            log.add(b"x" * 59_999 + b"\n")
            log.flush()

    problems = use(small, work)
    assert problems[-1].startswith("the log of this run has ended: No space")
    assert written(small).endswith(b"\n")
