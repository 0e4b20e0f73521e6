"""The store: what is saved is there after a crash, and a disk that refuses stops nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway.domain.errors import InputError
from headway.live.core.events import JobSpec, Slot
from headway.live.core.job_state import JobState
from headway.live.daemon.job_records import JobRecord
from headway.live.daemon.store import StorageError, Store
from live.serving import fill


def make_record(job: str = "1", **values: Any) -> JobRecord:
    defaults: dict[str, Any] = {
        "job_id": job,
        "spec": JobSpec(command=("python", "train.py"), environment={"A": "b"}),
        "state": JobState.QUEUED,
        "submitted_ns": 5,
        "submitted_at": 1e9,
    }
    return JobRecord(**(defaults | values))


RUNS = make_record(
    "2",
    state=JobState.RUNNING,
    attempts=2,
    slots=(Slot("n1", 0), Slot("n2", 3)),
    iterations=7,
    reason="rank 1 was killed",
    cancelled=True,
    started_ns=9,
    started_at=1e9 + 1,
)


def use(
    path: Path, work: Callable[[Store], Coroutine[Any, Any, None]], now_ns: int = 77
) -> list[str]:
    """Open a store, work with it and close it; return the problems it told."""
    told: list[str] = []

    async def main() -> None:
        store = Store(path)
        store.start(lambda: now_ns, told.append)
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())
    return told


def reopened(path: Path) -> Store:
    store = Store(path)
    asyncio.run(store.close())
    return store


def test_jobs_values_and_the_clock_are_there_again(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        assert (store.jobs, store.clock_ns) == ([], 0)
        await store.offer(make_record())
        store.save(RUNS)
        store.save(make_record("3"))
        store.forget("3")
        store.set("policy", "paper")
        await store.saved()

    assert use(tmp_path / "s.db", work) == []
    store = reopened(tmp_path / "s.db")
    assert store.jobs == [make_record(), RUNS]
    assert store.meta["policy"] == "paper"
    assert store.clock_ns == 77


def test_what_was_saved_last_before_closing_counts(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        for iterations in range(1000):
            store.save(make_record(iterations=iterations))

    use(tmp_path / "s.db", work)
    assert reopened(tmp_path / "s.db").jobs == [make_record(iterations=999)]


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    reopened(tmp_path / "s.db")
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600


def test_a_locked_database_refuses_new_jobs_and_keeps_the_rest_until_it_is_free(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"

    async def work(store: Store) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="nothing can be stored: database is locked"):
            await store.offer(make_record("1"))
        store.save(RUNS)
        waiting = asyncio.create_task(store.saved())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert store.problem == "database is locked"
        other.execute("ROLLBACK")
        other.close()
        await waiting
        assert store.problem == ""
        await store.offer(make_record("4"))

    assert use(path, work) == ["database is locked", ""]
    assert reopened(path).jobs == [RUNS, make_record("4")]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with room for one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_refuses_new_jobs_and_is_used_again_when_there_is_room(small: Path) -> None:
    async def work(store: Store) -> None:
        await store.offer(make_record("1"))
        fill(small / "large")
        large = JobSpec(command=("x" * 50_000,))
        with pytest.raises(StorageError, match="full"):
            await store.offer(make_record("2", spec=large))
        later = msgspec.structs.replace(make_record("1"), reason="y" * 50_000)
        store.save(later)
        (small / "large").unlink()
        await store.saved()
        await store.offer(make_record("3"))

    told = use(small / "s.db", work)
    assert (told[-1], len(told)) == ("", 2)
    assert [one.job_id for one in reopened(small / "s.db").jobs] == ["1", "3"]


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    reopened(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(InputError, match="was written by a newer Headway"):
        Store(tmp_path / "s.db")


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + bytes(99)])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(InputError, match=r"s\.db: cannot be opened: "):
        Store(tmp_path / "s.db")


def test_a_record_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    reopened(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as database:
        database.execute(
            "INSERT INTO jobs VALUES "
            "(1, '{}', '', 0, '[]', 0, '', 0, 0, 0, NULL, NULL, NULL, NULL, 0)"
        )
    database.close()
    with pytest.raises(InputError, match="is damaged: "):
        Store(tmp_path / "s.db")


@pytest.mark.parametrize("version", [1, 2])
def test_a_database_of_an_older_version_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    path = tmp_path / "s.db"

    async def work(store: Store) -> None:
        store.save(RUNS)

    use(path, work)
    with sqlite3.connect(path) as database:
        if version == 1:
            database.execute("ALTER TABLE jobs DROP COLUMN unstarted")
        database.execute("ALTER TABLE jobs RENAME COLUMN job_id TO job")
        database.execute("ALTER TABLE jobs RENAME COLUMN slots TO seats")
        seats = [{"node": "n1", "slot": 0}, {"node": "n2", "slot": 3}]
        database.execute("UPDATE jobs SET seats = ?", [msgspec.json.encode(seats).decode()])
        database.execute(f"PRAGMA user_version = {version}")
    database.close()
    assert reopened(path).jobs == [RUNS]


def test_what_cannot_be_written_is_told_and_what_can_is_written_after_it(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        store.save(make_record(reason="half a \ud800 character"))
        while not store.problem:
            await asyncio.sleep(0.01)
        with pytest.raises(StorageError, match="UnicodeEncodeError"):
            await store.offer(make_record("2"))
        store.save(make_record(reason="a whole one"))
        await store.saved()

    told = use(tmp_path / "s.db", work)
    assert [problem[:18] for problem in told] == ["UnicodeEncodeError", ""]
    assert reopened(tmp_path / "s.db").jobs == [make_record(reason="a whole one")]


@pytest.mark.parametrize("clock", ["-1", "x", str(2**62), "9" * 5000])
def test_a_clock_that_makes_no_sense_is_refused(tmp_path: Path, clock: str) -> None:
    reopened(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as database:
        database.execute("INSERT OR REPLACE INTO meta VALUES ('clock_ns', ?)", [clock])
    database.close()
    with pytest.raises(InputError, match="is damaged: ") as caught:
        Store(tmp_path / "s.db")
    assert "\n" not in str(caught.value)
