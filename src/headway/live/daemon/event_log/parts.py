"""The files of an event log: each run of a scheduler writes numbered parts."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from headway.domain.errors import InputError
from headway.domain.limits import HORIZON_NS
from headway.live.daemon.event_log.reader import EventLogReader

_NAME = re.compile(r"(?:events|thinned)-(\d{6,})-(\d{6,})\.jsonl")
_TIME = re.compile(rb'\{"event":\{"type":"\w+","at_ns":(\d{1,19})[,}]')
_SUBMITTED = re.compile(
    rb'^\{"event":\{"type":"JobSubmitted","at_ns":\d+,"job_id":"(\d{1,15})"', re.MULTILINE
)
_TAIL_BYTES = 1 << 16


def part_path(link: Path, run: int, part: int) -> Path:
    """Return the path of a part of the log with this link to its newest part."""
    return link.with_name(f"events-{run:06d}-{part:06d}.jsonl")


def log_parts(link: Path) -> list[tuple[int, int, Path]]:
    """Return run, part and path of every part in the folder."""
    return [one for one in _named_parts(link, "events-*.jsonl") if one[2].is_file()]


def _named_parts(link: Path, pattern: str) -> Iterator[tuple[int, int, Path]]:
    """Yield what is named like a part, even if it is a pipe, which would never end."""
    for path in link.parent.glob(pattern):
        if match := _NAME.fullmatch(path.name):
            yield int(match[1]), int(match[2]), path


def kept_parts(link: Path) -> dict[int, list[tuple[int, Path]]]:
    """Return part and path of all that is left of each run, thinned parts too, in order."""
    found: dict[int, dict[int, Path]] = {}
    # A part that is being thinned is there twice: the whole one counts.
    for pattern in ("thinned-*.jsonl", "events-*.jsonl"):
        for run, part, path in _named_parts(link, pattern):
            if path.is_file():
                found.setdefault(run, {})[part] = path
    return {run: sorted(parts.items()) for run, parts in sorted(found.items())}


def is_thinned(path: Path) -> bool:
    """Return whether a path names a thinned part."""
    return path.name.startswith("thinned-")


def run_of(path: Path) -> int | None:
    """Return the run that a path names a part of, or None."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def last_time_ns(path: Path) -> int | None:
    """Return the time of the last event in a part, or None if there is none near its end."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            times = _TIME.findall(stream.read(_TAIL_BYTES))
    except OSError:
        return None
    return int(times[-1]) if times else None


def latest_time_ns(link: Path) -> int:
    """Return the time of the last event in the log; 0 if there is none."""
    newest = max(log_parts(link), default=None)
    last_ns = None if newest is None else last_time_ns(newest[2])
    # A file that something else has written to must not stop the clock for ever.
    return 0 if last_ns is None or last_ns > HORIZON_NS // 2 else last_ns


def last_submitted(link: Path) -> int:
    """Return the number of the job that was submitted last, or 0 if the log names none."""
    parts = [path for run in kept_parts(link).values() for _, path in run]
    for path in reversed(parts):
        with contextlib.suppress(OSError, ValueError), path.open("rb") as stream:  # empty: no map
            with mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as content:
                numbers = [int(found[1]) for found in _SUBMITTED.finditer(content)]
            if numbers:
                return max(numbers)
    return 0


def log_runs(link: Path) -> set[int]:
    """Return the numbers of all runs."""
    return {run for run, _, _ in log_parts(link)}


def next_run(link: Path) -> int:
    """Return a number for a new run, of which nothing is in the folder yet."""
    return 1 + max((run for run, _, _ in _named_parts(link, "events-*.jsonl")), default=0)


def headless_runs(link: Path) -> set[int]:
    """Return the numbers of the runs whose first part is gone."""
    parts = log_parts(link)
    return {run for run, _, _ in parts} - {run for run, part, _ in parts if part == 1}


@contextlib.contextmanager
def open_run(link: Path, run: int) -> Iterator[EventLogReader]:
    """Open the log of a run, all parts one after the other."""
    parts = sorted(one for one in log_parts(link) if one[0] == run)
    if not parts or parts[0][1] != 1:
        raise InputError(f"the first part of run {run} is gone.", source=str(link.parent))
    stream = _Concatenated([path for _, _, path in parts])
    try:
        yield EventLogReader(cast(BinaryIO, stream), str(parts[0][2]))
    finally:
        stream.close()


class _Concatenated:
    """Reads lines of one file after the other."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._stream: Any = None

    def readline(self, limit: int) -> bytes:
        while True:
            if self._stream is not None:
                data: bytes = self._stream.readline(limit)
                if data:
                    return data
                self.close()
            if not self._paths:
                return b""
            path = self._paths.pop(0)
            try:
                self._stream = path.open("rb")
            except OSError as error:
                raise InputError(f"{error.strerror or error}.", source=str(path)) from error

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
