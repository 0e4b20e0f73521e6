"""The state that survives a restart, in SQLite: jobs, policy, drained nodes and the clock.

One thread writes. Everything saved stays in memory until it is on disk, so a full disk or a locked
database stops no running job; the write is retried every second. Requests of users are acknowledged
only when they are on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headway.domain.errors import InputError
from headway.domain.limits import HORIZON_NS, whole
from headway.live.core.events import JobSpec, Slot
from headway.live.daemon.errors import DamagedStateError, StorageError
from headway.live.daemon.job_record import AttemptRecord, JobRecord, Prediction

VERSION = 5
RETRY_S = 1.0
LOCK_TIMEOUT_S = 1.0
CLOCK = "clock_ns"
"""Key of the scheduler's time, set by every write."""
POLICY, DRAINED, ENDED_SESSIONS = "policy", "drained", "ended_sessions"
"""Keys of the policy and, as JSON, of the drained nodes and of pages that have signed out."""

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
    unstarted INTEGER NOT NULL DEFAULT 0,
    first_prediction TEXT,
    half_prediction TEXT,
    history TEXT NOT NULL DEFAULT '[]'
) STRICT;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""
_FROM_VERSION_4 = """
ALTER TABLE jobs ADD COLUMN history TEXT NOT NULL DEFAULT '[]';
"""
_FROM_VERSION_3 = (
    """
ALTER TABLE jobs ADD COLUMN first_prediction TEXT;
ALTER TABLE jobs ADD COLUMN half_prediction TEXT;
"""
    + _FROM_VERSION_4
)
_FROM_VERSION_2 = (
    """
ALTER TABLE jobs RENAME COLUMN job TO job_id;
ALTER TABLE jobs RENAME COLUMN seats TO slots;
UPDATE jobs SET slots = replace(slots, '"slot":', '"index":');
"""
    + _FROM_VERSION_3
)
_FROM_VERSION_1 = (
    "ALTER TABLE jobs ADD COLUMN unstarted INTEGER NOT NULL DEFAULT 0;" + _FROM_VERSION_2
)
_MIGRATIONS = {
    0: _TABLES,
    1: _FROM_VERSION_1,
    2: _FROM_VERSION_2,
    3: _FROM_VERSION_3,
    4: _FROM_VERSION_4,
}
"""SQL that brings a database of each version up to date; 0 is a new file."""

_NOT_DAMAGED = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
"""Errors that say nothing about the content of the file."""

_PREDICTIONS = ("first_prediction", "half_prediction")
"""Columns with a prediction as JSON, or NULL."""
_COLUMNS = (
    *("job_id", "spec", "state", "attempts", "slots", "iterations", "reason", "cancelled"),
    *("submitted_ns", "submitted_at", "started_ns", "started_at", "ended_ns", "ended_at"),
    *("unstarted", *_PREDICTIONS, "history"),
)
_SAVE_JOB = (
    f"INSERT OR REPLACE INTO jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
)


@dataclass
class _Urgent:
    """What is written now or not at all; `done` tells which."""

    done: asyncio.Future[None]
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)


@dataclass
class _Batch:
    """The content of one transaction; a job whose record is None is deleted."""

    jobs: dict[str, JobRecord | None] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    urgent: list[_Urgent] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.meta or self.waiters or self.urgent)

    def merge_older(self, older: _Batch) -> None:
        """Add a batch that could not be written, except what was urgent; newer values win."""
        self.jobs = older.jobs | self.jobs
        self.meta = older.meta | self.meta
        self.waiters = older.waiters + self.waiters


class StateStore:
    """The open database; `jobs` and `meta` are its content at the time it was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = _open(path)
        try:
            _check_pages(self._database)
            self.jobs = _jobs(self._database)
            self.meta = _meta(self._database)
            # The other half of the horizon is longer than any scheduler runs.
            whole(self.clock_ns, CLOCK, 0, HORIZON_NS // 2)
            self._file = os.stat(path)
        except Exception as error:  # Random bytes can cause any error.
            self._database.close()
            raise DamagedStateError(path, str(error)) from None
        self.problem = ""
        """Why nothing can be written at present; empty if writing works."""
        self._pending = _Batch()
        self._condition = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def clock_ns(self) -> int:
        """The scheduler's time at the last write of an earlier scheduler."""
        return int(self.meta.get(CLOCK, "0"))

    def start(self, now_ns: Callable[[], int], on_problem: Callable[[str], None]) -> None:
        """Start the thread; the loop calls `on_problem` with each new problem, "" when solved."""
        self._now_ns, self._on_problem = now_ns, on_problem
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def save(self, record: JobRecord) -> None:
        """Write a job's record as soon as possible."""
        with self._condition:
            self._pending.jobs[record.job_id] = record
            self._condition.notify()

    def delete(self, job_id: str) -> None:
        """Delete a job's record as soon as possible."""
        with self._condition:
            self._pending.jobs[job_id] = None
            self._condition.notify()

    def set(self, name: str, value: str) -> None:
        """Write a value as soon as possible."""
        with self._condition:
            self._pending.meta[name] = value
            self._condition.notify()

    async def sync(self) -> None:
        """Wait until everything saved so far is on disk, for as long as that takes."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._condition:
            self._pending.waiters.append(done)
            self._condition.notify()
        await done

    async def flush(self) -> None:
        """Write everything saved so far now, or raise StorageError; it is retried later."""
        await self._write_now({}, {})

    async def insert(self, record: JobRecord) -> None:
        """Write a new job's record now, or raise StorageError; on return it is on disk."""
        await self._write_now({record.job_id: record}, {})

    async def put(self, name: str, value: str) -> None:
        """Write a value now, or raise StorageError; on return it is on disk."""
        await self._write_now({}, {name: value})

    async def _write_now(self, jobs: dict[str, JobRecord], meta: dict[str, str]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._condition:
            self._pending.urgent.append(_Urgent(done, jobs, meta))
            self._condition.notify()
        await done

    async def close(self) -> None:
        """Try once more to write what is pending, then close the database."""
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
                    self._condition.wait_for(self._urgent, RETRY_S)
                else:
                    self._condition.wait_for(lambda: self._pending or self._closing)
                batch, self._pending = self._pending, _Batch()
                closing = self._closing
            problem = self._write(batch) if batch else self.problem
            if problem and not closing:
                with self._condition:
                    self._pending.merge_older(batch)
            if problem != self.problem:
                self.problem = problem
                self._call(self._on_problem, problem)
            self._answer(batch, problem, closing)
            if closing:
                return

    def _urgent(self) -> bool:
        return bool(self._pending.urgent) or self._closing

    def _answer(self, batch: _Batch, problem: str, closing: bool) -> None:
        error = StorageError(f"the state cannot be written: {problem}.") if problem else None
        for urgent in batch.urgent:
            self._call(_resolve, urgent.done, error)
        if error is None or closing:
            for done in batch.waiters:
                self._call(_resolve, done, error)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def _write(self, batch: _Batch) -> str:
        """Write a batch, all or nothing; return the problem, if any."""
        records = {job_id: one for job_id, one in batch.jobs.items() if one is not None}
        meta = dict(batch.meta)
        for urgent in batch.urgent:
            records |= urgent.jobs
            meta |= urgent.meta
        deleted = [(int(job_id),) for job_id, one in batch.jobs.items() if one is None]
        meta[CLOCK] = str(self._now_ns())
        try:
            self._check_file()
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(_SAVE_JOB, map(_row, records.values()))
            self._database.executemany("DELETE FROM jobs WHERE job_id = ?", deleted)
            self._database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
            self._database.execute("COMMIT")
        except Exception as error:  # The thread must survive any error and report it.
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            known = isinstance(error, sqlite3.Error | StorageError)
            return str(error) if known else repr(error)[:200]
        return ""

    def _check_file(self) -> None:
        """Refuse to write to a file that no longer has its name: no scheduler would find it."""
        try:
            same = os.path.samestat(os.stat(self._path), self._file)
        except FileNotFoundError:
            same = False
        if not same:
            raise StorageError(f"{self._path} was deleted or replaced")


def _resolve(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def set_aside(path: Path) -> Path:
    """Rename a damaged database, and return its new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{suffix}", f"{aside}{suffix}")
    return aside


def _open(path: Path) -> sqlite3.Connection:
    """Open the database; on a full disk without its shared memory, which would need space."""
    if not path.exists():
        return _connect(path, "NORMAL")
    try:
        return _connect(path, "NORMAL")
    except InputError as error:
        try:
            return _connect(path, "EXCLUSIVE")
        except InputError:
            raise error from None


def _connect(path: Path, locking: str) -> sqlite3.Connection:
    """Open the database, creating or upgrading it; refuse one of a newer version."""
    try:
        database = sqlite3.connect(
            path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise InputError(f"cannot be opened: {error}.", source=str(path)) from None
    try:
        path.chmod(0o600)
        database.execute(f"PRAGMA locking_mode = {locking}")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version in _MIGRATIONS:
            _migrate(database, _MIGRATIONS[version])
        if version > VERSION:
            raise InputError(
                f"was written by a newer Headway (format {version}, not {VERSION}).",
                source=str(path),
            )
    except InputError:
        database.close()
        raise
    except Exception as error:  # Random bytes can cause any error.
        database.close()
        code = getattr(error, "sqlite_errorcode", None)
        if isinstance(error, OSError) or (code is not None and code & 0xFF in _NOT_DAMAGED):
            raise InputError(f"cannot be opened: {error}.", source=str(path)) from None
        raise DamagedStateError(path, str(error)) from None
    return database


def _migrate(database: sqlite3.Connection, script: str) -> None:
    """Run a migration to the current version in one transaction."""
    database.executescript(f"BEGIN;{script}PRAGMA user_version = {VERSION};COMMIT;")


def _row(record: JobRecord) -> tuple[object, ...]:
    encoded: dict[str, object] = {
        "job_id": int(record.job_id),
        "spec": msgspec.json.encode(record.spec).decode(),
        "slots": msgspec.json.encode(record.slots).decode(),
        "history": msgspec.json.encode(record.history).decode(),
    }
    for name in _PREDICTIONS:
        value = getattr(record, name)
        encoded[name] = None if value is None else msgspec.json.encode(value).decode()
    return tuple(encoded.get(name, getattr(record, name)) for name in _COLUMNS)


def _check_pages(database: sqlite3.Connection) -> None:
    (answer,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise ValueError(" ".join(str(answer).split()))


def _meta(database: sqlite3.Connection) -> dict[str, str]:
    meta = dict(database.execute("SELECT name, value FROM meta").fetchall())
    msgspec.json.decode(meta.get(DRAINED, "[]"), type=list[str])
    msgspec.json.decode(meta.get(ENDED_SESSIONS, "{}"), type=dict[str, int])
    return meta


def _jobs(database: sqlite3.Connection) -> list[JobRecord]:
    """Return all jobs, in order of submission."""
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
        history = str(values["history"])
        values["history"] = msgspec.json.decode(history, type=tuple[AttemptRecord, ...])
        for name in _PREDICTIONS:
            if values[name] is not None:
                values[name] = msgspec.json.decode(str(values[name]), type=Prediction)
        found.append(msgspec.convert(values, JobRecord))
    return found
