"""What outlives the scheduler, in SQLite: jobs, the policy, drained nodes, and the clock.

One thread writes. What is saved is kept in memory until it is on the disk: a disk that is full or a
database that is locked stops nothing that runs, and the writing is tried again every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headway.domain.errors import HeadwayError, InputError
from headway.domain.limits import HORIZON_NS, whole
from headway.live.core.events import JobSpec, Slot
from headway.live.daemon.job_records import JobRecord

VERSION = 3
RETRY_S = 1.0
LOCK_PATIENCE_S = 1.0
CLOCK = "clock_ns"
"""Name of the value that every write sets to the scheduler's time."""

_TABLES = """
CREATE TABLE jobs (
    job_id INTEGER PRIMARY KEY,
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    slots TEXT NOT NULL,
    iterations INTEGER NOT NULL,
    reason TEXT NOT NULL,
    cancelled INTEGER NOT NULL,
    submitted_ns INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    started_ns INTEGER,
    started_at REAL,
    ended_ns INTEGER,
    ended_at REAL,
    unstarted INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""
_FROM_VERSION_2 = """
ALTER TABLE jobs RENAME COLUMN job TO job_id;
ALTER TABLE jobs RENAME COLUMN seats TO slots;
UPDATE jobs SET slots = replace(slots, '"slot":', '"index":');
"""
_FROM_VERSION_1 = (
    "ALTER TABLE jobs ADD COLUMN unstarted INTEGER NOT NULL DEFAULT 0;" + _FROM_VERSION_2
)
_UPGRADES = {1: _FROM_VERSION_1, 2: _FROM_VERSION_2}
_COLUMNS = (
    *("job_id", "spec", "state", "attempts", "slots", "iterations", "reason", "cancelled"),
    *("submitted_ns", "submitted_at", "started_ns", "started_at", "ended_ns", "ended_at"),
    "unstarted",
)
_SAVE_JOB = (
    f"INSERT OR REPLACE INTO jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
)


class StorageError(HeadwayError):
    """Something could not be written, and is not known to the store."""


@dataclass
class _Batch:
    """What is to be written in one transaction; a job that is None is to be forgotten."""

    jobs: dict[str, JobRecord | None] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    offers: list[tuple[JobRecord, asyncio.Future[None]]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.meta or self.waiting or self.offers)

    def older(self, batch: _Batch) -> None:
        """Take in what could not be written before, where nothing newer is there; not offers."""
        self.jobs = batch.jobs | self.jobs
        self.meta = batch.meta | self.meta
        self.waiting = batch.waiting + self.waiting


class Store:
    """The database, open; `jobs` and `meta` are what it held when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = _open(path)
        try:
            self.jobs = _jobs(self._database)
            self.meta = dict(self._database.execute("SELECT name, value FROM meta").fetchall())
            # Half of all time: what is left is more than any scheduler will run.
            whole(self.clock_ns, CLOCK, 0, HORIZON_NS // 2)
        except (sqlite3.Error, msgspec.MsgspecError, ValueError, InputError) as error:
            self._database.close()
            raise InputError(f"is damaged: {error}.", source=str(path)) from None
        self.problem = ""
        """Why nothing can be written at present, or nothing."""
        self._pending = _Batch()
        self._condition = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def clock_ns(self) -> int:
        """The scheduler's time at the last write of an earlier scheduler."""
        return int(self.meta.get(CLOCK, "0"))

    def start(self, now_ns: Callable[[], int], told: Callable[[str], None]) -> None:
        """Begin to write, in a thread; `told` hears in the event loop of problems and their end."""
        self._now_ns, self._told = now_ns, told
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def save(self, record: JobRecord) -> None:
        """Write a job as soon as that is possible."""
        with self._condition:
            self._pending.jobs[record.job_id] = record
            self._condition.notify()

    def forget(self, job: str) -> None:
        """Remove a job as soon as that is possible."""
        with self._condition:
            self._pending.jobs[job] = None
            self._condition.notify()

    def set(self, name: str, value: str) -> None:
        """Write a value as soon as that is possible."""
        with self._condition:
            self._pending.meta[name] = value
            self._condition.notify()

    async def saved(self, patience_s: float | None = None) -> None:
        """Wait until all that was saved so far is on the disk, or for as long as that."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._condition:
            self._pending.waiting.append(done)
            self._condition.notify()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done, patience_s)

    async def offer(self, record: JobRecord) -> None:
        """Write a new job now, or raise StorageError; on return it is on the disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._condition:
            self._pending.offers.append((record, done))
            self._condition.notify()
        await done

    async def close(self) -> None:
        """Try once more to write what is left, and close the database."""
        if self._thread is not None:
            with self._condition:
                self._closing = True
                self._condition.notify()
            await asyncio.to_thread(self._thread.join)
        self._database.close()

    def _work(self) -> None:
        while True:
            with self._condition:
                if self.problem:
                    self._condition.wait_for(self._pressing, RETRY_S)
                else:
                    self._condition.wait_for(lambda: self._pending or self._closing)
                batch, self._pending = self._pending, _Batch()
                closing = self._closing
            problem = self._write(batch) if batch else self.problem
            if problem and not closing:
                with self._condition:
                    self._pending.older(batch)
            if problem != self.problem:
                self.problem = problem
                self._call(self._told, problem)
            self._answer(batch, problem, closing)
            if closing:
                return

    def _pressing(self) -> bool:
        return bool(self._pending.offers) or self._closing

    def _answer(self, batch: _Batch, problem: str, closing: bool) -> None:
        error = StorageError(f"nothing can be stored: {problem}.") if problem else None
        for _, done in batch.offers:
            self._call(_resolve, done, error)
        if error is None or closing:
            for done in batch.waiting:
                self._call(_resolve, done, error)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _write(self, batch: _Batch) -> str:
        """Write a batch, all or nothing; return what prevents it, or nothing."""
        records = {job: one for job, one in batch.jobs.items() if one is not None}
        records |= {one.job_id: one for one, _ in batch.offers}
        gone = [(int(job),) for job, one in batch.jobs.items() if one is None]
        meta = batch.meta | {CLOCK: str(self._now_ns())}
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(_SAVE_JOB, map(_row, records.values()))
            self._database.executemany("DELETE FROM jobs WHERE job_id = ?", gone)
            self._database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
            self._database.execute("COMMIT")
        except Exception as error:  # Whatever it is, the thread goes on, and says what it is.
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            return str(error) if isinstance(error, sqlite3.Error) else repr(error)[:200]
        return ""


def _resolve(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _open(path: Path) -> sqlite3.Connection:
    """Open the database, made now if it is not there; refuse one of another version."""
    try:
        database = sqlite3.connect(
            path, timeout=LOCK_PATIENCE_S, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise InputError(f"cannot be opened: {error}.", source=str(path)) from None
    try:
        path.chmod(0o600)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            _change(database, _TABLES)
        if version in _UPGRADES:
            _change(database, _UPGRADES[version])
        if version > VERSION:
            raise InputError(
                f"was written by a newer Headway (format {version}, not {VERSION}).",
                source=str(path),
            )
    except (sqlite3.Error, OSError) as error:
        database.close()
        raise InputError(f"cannot be opened: {error}.", source=str(path)) from None
    except InputError:
        database.close()
        raise
    return database


def _change(database: sqlite3.Connection, words: str) -> None:
    """Change the tables into those of this version, all or nothing."""
    database.executescript(f"BEGIN;{words}PRAGMA user_version = {VERSION};COMMIT;")


def _row(record: JobRecord) -> tuple[object, ...]:
    texts = {
        "job_id": int(record.job_id),
        "spec": msgspec.json.encode(record.spec).decode(),
        "slots": msgspec.json.encode(record.slots).decode(),
    }
    return tuple(texts.get(name, getattr(record, name)) for name in _COLUMNS)


def _jobs(database: sqlite3.Connection) -> list[JobRecord]:
    """Return all jobs, in the order in which they were submitted."""
    rows: Iterable[tuple[object, ...]] = database.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM jobs ORDER BY job_id"
    )
    found = []
    for row in rows:
        values = dict(zip(_COLUMNS, row, strict=True))
        values["job_id"] = str(values["job_id"])
        values["cancelled"] = bool(values["cancelled"])
        values["spec"] = msgspec.json.decode(str(values["spec"]), type=JobSpec)
        values["slots"] = msgspec.json.decode(str(values["slots"]), type=tuple[Slot, ...])
        found.append(msgspec.convert(values, JobRecord))
    return found
