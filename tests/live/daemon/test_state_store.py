"""The state store: what is saved survives a crash, and a failing disk stops nothing."""

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
from headway.live.daemon.errors import StorageError
from headway.live.daemon.job_record import AttemptRecord, JobRecord
from headway.live.daemon.state_store import StateStore
from live.scheduler_process import fill
from waiting import eventually_async


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
    history=(
        AttemptRecord(
            number=1,
            slots=(Slot("n1", 1),),
            started_ns=9,
            started_at=1e9 + 1,
            ended_ns=10,
            ended_at=1e9 + 2,
            reason="rank 1 was killed",
        ),
        AttemptRecord(number=2, slots=(Slot("n1", 0),), started_ns=11, started_at=1e9 + 3),
    ),
)


def use(
    path: Path, work: Callable[[StateStore], Coroutine[Any, Any, None]], now_ns: int = 77
) -> list[str]:
    """Open a store, work with it and close it; return the problems it reported."""
    problems: list[str] = []

    async def main() -> None:
        store = StateStore(path)
        store.start(lambda: now_ns, problems.append)
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())
    return problems


def reopened(path: Path) -> StateStore:
    store = StateStore(path)
    asyncio.run(store.close())
    return store


def test_jobs_values_and_the_clock_survive_a_restart(tmp_path: Path) -> None:
    async def work(store: StateStore) -> None:
        assert (store.jobs, store.clock_ns) == ([], 0)
        await store.insert(make_record())
        store.save(RUNS)
        store.save(make_record("3"))
        store.delete("3")
        store.set("policy", "paper")
        await store.sync()

    assert use(tmp_path / "s.db", work) == []
    store = reopened(tmp_path / "s.db")
    assert store.jobs == [make_record(), RUNS]
    assert store.meta["policy"] == "paper"
    assert store.clock_ns == 77


def test_the_last_value_saved_before_closing_wins(tmp_path: Path) -> None:
    async def work(store: StateStore) -> None:
        for iterations in range(1000):
            store.save(make_record(iterations=iterations))

    use(tmp_path / "s.db", work)
    assert reopened(tmp_path / "s.db").jobs == [make_record(iterations=999)]


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    reopened(tmp_path / "s.db")
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_locked_database_refuses_new_jobs_and_writes_the_rest_once_unlocked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"

    async def work(store: StateStore) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="the state cannot be written: database is locked"):
            await store.insert(make_record("1"))
        store.save(RUNS)
        waiting = asyncio.create_task(store.sync())
        await asyncio.sleep(0.1)  # Nothing may be written while the lock is held.
        assert not waiting.done()
        assert store.problem == "database is locked"
        other.execute("ROLLBACK")
        other.close()
        await waiting
        assert store.problem == ""
        await store.insert(make_record("4"))

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


@pytest.mark.root
def test_a_full_disk_refuses_new_jobs_until_there_is_room(small: Path) -> None:
    async def work(store: StateStore) -> None:
        await store.insert(make_record("1"))
        fill(small / "large")
        large = JobSpec(command=("x" * 50_000,))
        with pytest.raises(StorageError, match="full"):
            await store.insert(make_record("2", spec=large))
        later = msgspec.structs.replace(make_record("1"), reason="y" * 50_000)
        store.save(later)
        (small / "large").unlink()
        await store.sync()
        await store.insert(make_record("3"))

    problems = use(small / "s.db", work)
    assert (problems[-1], len(problems)) == ("", 2)
    assert [one.job_id for one in reopened(small / "s.db").jobs] == ["1", "3"]


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    reopened(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(InputError, match="was written by a newer Headway"):
        StateStore(tmp_path / "s.db")


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + bytes(99)])
def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(InputError, match=r"s\.db: is damaged: "):
        StateStore(tmp_path / "s.db")


def test_an_invalid_record_is_refused(tmp_path: Path) -> None:
    reopened(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as database:
        database.execute(
            "INSERT INTO jobs VALUES "
            "(1, '{}', '', 0, '[]', 0, '', 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, '[]')"
        )
    database.close()
    with pytest.raises(InputError, match="is damaged: "):
        StateStore(tmp_path / "s.db")


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_database_of_an_older_version_is_migrated(tmp_path: Path, version: int) -> None:
    path = tmp_path / "s.db"

    async def work(store: StateStore) -> None:
        store.save(RUNS)

    use(path, work)
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE jobs DROP COLUMN history")
        if version < 4:
            database.execute("ALTER TABLE jobs DROP COLUMN first_prediction")
            database.execute("ALTER TABLE jobs DROP COLUMN half_prediction")
        if version == 1:
            database.execute("ALTER TABLE jobs DROP COLUMN unstarted")
        if version < 3:
            database.execute("ALTER TABLE jobs RENAME COLUMN job_id TO job")
            database.execute("ALTER TABLE jobs RENAME COLUMN slots TO seats")
            seats = [{"node": "n1", "slot": 0}, {"node": "n2", "slot": 3}]
            database.execute("UPDATE jobs SET seats = ?", [msgspec.json.encode(seats).decode()])
        database.execute(f"PRAGMA user_version = {version}")
    database.close()
    assert reopened(path).jobs == [msgspec.structs.replace(RUNS, history=())]


def test_a_record_that_cannot_be_written_is_reported_and_its_replacement_is_written(
    tmp_path: Path,
) -> None:
    async def work(store: StateStore) -> None:
        store.save(make_record(reason="half a \ud800 character"))
        await eventually_async(lambda: store.problem)
        with pytest.raises(StorageError, match="UnicodeEncodeError"):
            await store.insert(make_record("2"))
        store.save(make_record(reason="a whole one"))
        await store.sync()

    problems = use(tmp_path / "s.db", work)
    assert [problem[:18] for problem in problems] == ["UnicodeEncodeError", ""]
    assert reopened(tmp_path / "s.db").jobs == [make_record(reason="a whole one")]


@pytest.mark.parametrize("clock", ["-1", "x", str(2**62), "9" * 5000])
def test_an_invalid_clock_is_refused(tmp_path: Path, clock: str) -> None:
    reopened(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as database:
        database.execute("INSERT OR REPLACE INTO meta VALUES ('clock_ns', ?)", [clock])
    database.close()
    with pytest.raises(InputError, match="is damaged: ") as caught:
        StateStore(tmp_path / "s.db")
    assert "\n" not in str(caught.value)
