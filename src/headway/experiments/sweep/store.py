"""What a sweep has finished, on disk the moment it is finished.

A folder holds a log, `finished.log`: a line per finished run with a checksum before it, appended in
one write. A process that is killed leaves at most a torn last line, which the next one drops. From
the log come `runs.parquet` and `timings.parquet`, written whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headway.domain.errors import InputError
from headway.experiments.sweep.grid import FIGURES, Outcome, Point, coordinates
from headway.experiments.sweep.specification import COORDINATES, NUMBERS, Sweep
from headway.files import make_folder, open_input, open_output
from headway.results.schema import Summary
from headway.results.store import code_version

if TYPE_CHECKING:
    import polars

RUNS = "runs.parquet"
TIMINGS = "timings.parquet"
JOBS = "jobs"
LOG = "finished.log"
LOCK = ".lock"

_SYNC_S = 1.0
"""How old a line may get before it is forced to the disk, which only a loss of power could tell."""

Kept = Mapping[str, Any]
"""A line of the log: the figures of a run, and `wall_s`."""


class Store:
    """The folder of a sweep, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: dict[str, Kept] = {}
        """What is finished, by key, of this code and others."""
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
            self.kept, whole = _read(stream)
        os.ftruncate(self._log, whole)
        self._synced = time.monotonic()
        self._jobs = folder / JOBS
        self._with_jobs: set[str] = set()
        with suppress(FileNotFoundError):
            self._with_jobs = {
                name.removesuffix(".parquet")
                for name in os.listdir(self._jobs)
                if name.endswith(".parquet") and not name.startswith(".")
            }

    def has(self, key: str, jobs: bool) -> bool:
        """Return whether a run is finished; with `jobs`, whether its rows of jobs are there too."""
        return key in self.kept and (not jobs or key in self._with_jobs)

    def add(self, outcome: Outcome) -> None:
        """Keep a finished run; once this returns, killing the process does not lose it."""
        if outcome.figures is None:
            raise ValueError(outcome.problem)
        if outcome.jobs is not None:
            make_folder(self._jobs)
            with open_output(self._jobs / f"{outcome.key}.parquet") as stream:
                stream.write(outcome.jobs)
            self._with_jobs.add(outcome.key)
        line = {"run": outcome.key, **outcome.figures, "wall_s": outcome.wall_s}
        text = json.dumps(line, separators=(",", ":")).encode()
        _write(self._log, b"%08x %s\n" % (zlib.crc32(text), text))
        self.kept[outcome.key] = line
        if time.monotonic() - self._synced > _SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Force what is written to the disk."""
        os.fsync(self._log)
        self._synced = time.monotonic()

    def write_tables(self, sweep: Sweep, runs: Sequence[tuple[str, Point]]) -> polars.DataFrame:
        """Write the finished runs of a sweep, in the order of the grid; return them.

        `runs.parquet` is the same to the bit however the runs were made.
        """
        import polars

        frame = table_of(sweep, runs, self.kept)
        wall_s = [self.kept[key]["wall_s"] for key in frame["run"]]
        timings = frame.select("run").with_columns(polars.Series("wall_s", wall_s, polars.Float64))
        metadata = {
            "headway.sweep": sweep.text,
            "headway.baseline": sweep.baseline,
            "headway.runs": str(len(runs)),
            "headway.code": code_version(),
        }
        for name, table in ((RUNS, frame), (TIMINGS, timings)):
            stream = BytesIO()
            table.write_parquet(stream, metadata=metadata)
            with open_output(self.folder / name) as target:
                target.write(stream.getvalue())
        return frame

    def close(self) -> None:
        """Let go of the folder."""
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
    """Take the folder; the system lets go of it when the process ends, however it ends."""
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
            f"another sweep is writing there (process {holder}); wait for it, or give another "
            "folder with --output.",
            source=str(path.parent),
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def read_runs(folder: Path) -> tuple[polars.DataFrame, dict[str, str]]:
    """Return the table of runs that a folder holds, and what it says of itself."""
    import polars

    path = folder / RUNS
    if not path.is_file():
        raise InputError(f"there is no {RUNS}; run a sweep first.", source=str(folder))
    try:
        with open_input(path) as stream:
            metadata = polars.read_parquet_metadata(stream)
        with open_input(path) as stream:
            frame = polars.read_parquet(stream)
    except polars.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"cannot be read: {reason}.", source=str(path)) from None
    if "headway.baseline" not in metadata or not {*COORDINATES, *FIGURES} <= {*frame.columns}:
        raise InputError("is not the table of a sweep of this version.", source=str(path))
    return frame, metadata


def read_kept(folder: Path) -> dict[str, Kept]:
    """Return what a folder's log holds by key, also while a sweep is writing it."""
    with open_input(folder / LOG) as stream:
        return _read(stream)[0]


def _read(stream: Iterable[bytes]) -> tuple[dict[str, Kept], int]:
    """Return the sound lines of a log by key, and where its last whole line ends."""
    kept: dict[str, Kept] = {}
    end = 0
    for line in stream:
        if not line.endswith(b"\n"):
            break
        end += len(line)
        text = line[9:-1]
        if line[:9] == b"%08x " % zlib.crc32(text):
            entry = json.loads(text)
            kept[entry["run"]] = entry
    return kept, end


def table_of(
    sweep: Sweep, runs: Iterable[tuple[str, Point]], kept: Mapping[str, Kept]
) -> polars.DataFrame:
    """Return a row for each finished run: where in the grid it is, what it gave, its key."""
    import polars

    done = [(key, coordinates(sweep, point)) for key, point in runs if key in kept]
    columns = [
        polars.Series(name, [place[name] for _, place in done], _kind(name), strict=False)
        for name in COORDINATES
    ]
    columns += [
        polars.Series(name, [kept[key][name] for key, _ in done], _kind(name)) for name in FIGURES
    ]
    return polars.DataFrame(
        [*columns, polars.Series("run", [key for key, _ in done], polars.String)]
    )


def _kind(name: str) -> Any:
    import polars

    if name in FIGURES:
        return polars.Int64 if Summary.__annotations__[name] == "int" else polars.Float64
    if name == "seed":
        return polars.Int64
    return polars.Float64 if name in NUMBERS else polars.String


def _write(handle: int, data: bytes) -> None:
    """Write all of it: in one go, unless the disk is full or a signal comes between."""
    while data:
        data = data[os.write(handle, data) :]
