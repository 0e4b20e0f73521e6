"""The folder of finished runs: each run is on disk as soon as it is finished.

The folder holds a log, `finished.log`, with a checksummed line per run, appended in one write. A
process that is killed leaves at most a torn last line, which the next one drops. Rows per job and
per GPU, where asked for, are in `jobs/KEY.parquet` and `gpus/KEY.parquet`, written before the line,
which has their digests.
`runs.parquet` and `timings.parquet` are made from the log.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headway.domain.errors import InputError
from headway.experiments.sweep.grid import FIGURES, Outcome, Point, Rows, coordinates
from headway.experiments.sweep.specification import COORDINATES, NUMBERS, SWITCHES, Sweep
from headway.files import make_folder, open_input, open_output
from headway.interrupts import is_leaving
from headway.results.parquet import read_parquet
from headway.results.schema import Summary
from headway.results.store import code_version

if TYPE_CHECKING:
    import polars

RUNS = "runs.parquet"
TIMINGS = "timings.parquet"
LOG = "finished.log"
LOCK = ".lock"

_SYNC_S = 1.0
"""Seconds between calls of fsync; only a power failure could lose a line that is not synced."""

_DIGESTS = "digests"
"""The key, in a line of the log, of the digests of a run's files of rows, by kind."""

FinishedRun = Mapping[str, Any]
"""A line of the log: a run's key, figures, `wall_s` and digests."""


class RunStore:
    """The folder of finished runs, open in one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.finished: dict[str, FinishedRun] = {}
        """Finished runs by key, of this version of the code and others."""
        make_folder(folder)
        self._lock = _lock(folder / LOCK)
        try:
            path = folder / LOG
            self._log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            os.close(self._lock)
            raise InputError(f"{error.strerror}.", source=str(path)) from error
        with os.fdopen(os.dup(self._log), "rb") as stream:
            stream.seek(0)
            self.finished, whole = _read(stream)
        os.ftruncate(self._log, whole)
        self._synced = time.monotonic()

    def has(self, key: str, rows: Iterable[Rows] = ()) -> bool:
        """Return whether a run is finished and its files of these rows are what was written."""
        if key not in self.finished:
            return False
        digests = self.finished[key].get(_DIGESTS, {})
        return all(
            kind in digests and _digest(self.rows_file(key, kind)) == digests[kind] for kind in rows
        )

    def rows_file(self, key: str, rows: Rows) -> Path:
        """Return the path of a run's rows per job or per GPU."""
        return self.folder / rows / f"{key}.parquet"

    def add(self, outcome: Outcome) -> None:
        """Store a finished run; once this returns, killing the process does not lose it."""
        if outcome.figures is None:
            raise ValueError(outcome.problem)
        digests = {}
        for kind, content in outcome.rows.items():
            digests[kind] = hashlib.sha256(content).hexdigest()
            make_folder(self.folder / kind)
            with open_output(self.rows_file(outcome.key, kind)) as stream:
                stream.write(content)
        line: dict[str, Any] = {"run": outcome.key, **outcome.figures, "wall_s": outcome.wall_s}
        if digests:
            line[_DIGESTS] = digests
        text = json.dumps(line, separators=(",", ":")).encode()
        _write(self._log, b"%08x %s\n" % (zlib.crc32(text), text))
        self.finished[outcome.key] = line
        if time.monotonic() - self._synced > _SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Force the log to disk."""
        os.fsync(self._log)
        self._synced = time.monotonic()

    def write_tables(self, sweep: Sweep, runs: Sequence[tuple[str, Point]]) -> polars.DataFrame:
        """Write and return the table of a sweep's finished runs, in the order of the grid.

        `runs.parquet` has the same bits wherever and in whatever order the runs were done.
        """
        import polars

        if is_leaving():
            # The signal may have come after a run's line was written, before that was noted.
            self.finished = read_finished(self.folder)
        frame = table_of(sweep, runs, self.finished)
        wall_s = [self.finished[key]["wall_s"] for key in frame["run"]]
        timings = frame.select("run").with_columns(polars.Series("wall_s", wall_s, polars.Float64))
        metadata = {
            "headway.sweep": sweep.text,
            "headway.baseline": sweep.baseline,
            "headway.runs": str(len(runs)),
            "headway.sharing": sweep.sharing,
            "headway.code": code_version(),
        }
        for name, table in ((RUNS, frame), (TIMINGS, timings)):
            stream = BytesIO()
            table.write_parquet(stream, metadata=metadata)
            with open_output(self.folder / name) as target:
                target.write(stream.getvalue())
        return frame

    def close(self) -> None:
        """Release the folder."""
        self.sync()
        os.close(self._log)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _lock(path: Path) -> int:
    """Lock the folder; the system releases it when the process ends, however it ends."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise InputError(f"{error.strerror}.", source=str(path)) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise InputError(
            f"is in use by process {holder}; wait for it, or give another folder with --output.",
            source=str(path.parent),
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def read_runs(folder: Path) -> tuple[polars.DataFrame, dict[str, str]]:
    """Return the table of runs in a folder, and the file's metadata."""
    path = folder / RUNS
    if not path.is_file():
        raise InputError(f"there is no {RUNS}; run a sweep first.", source=str(folder))
    with open_input(path) as stream:
        content = stream.read()
    try:
        frame, metadata = read_parquet(BytesIO(content))
    except InputError as error:
        raise error.at(str(path)) from None
    if "headway.baseline" not in metadata or not {*COORDINATES, *FIGURES} <= {*frame.columns}:
        raise InputError("is not a table of runs that this version wrote.", source=str(path))
    return frame, metadata


def read_finished(folder: Path) -> dict[str, FinishedRun]:
    """Return a folder's finished runs by key, also while a sweep is adding to them."""
    with open_input(folder / LOG) as stream:
        return _read(stream)[0]


def _read(stream: Iterable[bytes]) -> tuple[dict[str, FinishedRun], int]:
    """Return the valid lines of a log by key, and the offset where its last whole line ends."""
    finished: dict[str, FinishedRun] = {}
    end = 0
    for line in stream:
        if not line.endswith(b"\n"):
            break
        end += len(line)
        text = line[9:-1]
        if line[:9] == b"%08x " % zlib.crc32(text):
            entry = json.loads(text)
            finished[entry["run"]] = entry
    return finished, end


def _digest(path: Path) -> str | None:
    """Return the digest of a file's content; None if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def table_of(
    sweep: Sweep, runs: Iterable[tuple[str, Point]], finished: Mapping[str, FinishedRun]
) -> polars.DataFrame:
    """Return a row per finished run: its coordinates in the grid, its figures, its key."""
    import polars

    done = [(key, coordinates(sweep, point)) for key, point in runs if key in finished]
    columns = [
        polars.Series(name, [where[name] for _, where in done], _type(name), strict=False)
        for name in COORDINATES
    ]
    columns += [
        polars.Series(name, [finished[key][name] for key, _ in done], _type(name))
        for name in FIGURES
    ]
    return polars.DataFrame(
        [*columns, polars.Series("run", [key for key, _ in done], polars.String)]
    )


def _type(name: str) -> Any:
    import polars

    if name in FIGURES:
        return polars.Int64 if Summary.__annotations__[name] == "int" else polars.Float64
    if name == "seed":
        return polars.Int64
    if name in SWITCHES:
        return polars.Boolean
    return polars.Float64 if name in NUMBERS else polars.String


def _write(handle: int, data: bytes) -> None:
    """Write all of it: in one call, unless the disk is full or a signal interrupts."""
    while data:
        data = data[os.write(handle, data) :]
