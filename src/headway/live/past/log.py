"""Reads event logs into `Activity`: all runs of a state folder, one of them, or a single file.

The scheduler's clock stands still while it is stopped. The header of a run says what the machine's
clock showed when it began, so that the times of all runs are on one axis.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from headway.domain.errors import InputError
from headway.live.daemon.event_log.format import FORMAT, MAX_LINE_BYTES, Entry, Header
from headway.live.daemon.event_log.parts import is_thinned, kept_parts, last_time_ns
from headway.live.past.activity import Activity

_CHUNK_BYTES = 1 << 20
_BAD_LINE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InputError)
_headers = msgspec.json.Decoder(Header)
_entries = msgspec.json.Decoder(Entry)

Parts = list[tuple[int, Path]]
_LAST_PART = 10**18


class _DamageError(InputError):
    """A line is not one of a log, or of another version's; the file itself can be read."""


class LogReader:
    """Reads a log as far as it is written; the next call continues from there.

    `log` is the link in a state folder, or a file with a whole run. `only_run` limits a folder to
    one of its runs; `present_ahead_ns` is how far the clock of its latest run is behind the
    machine's, if that is known. With `skip_damage`, a run is left out from a line on that is none
    of a log, and `damage` says so.
    """

    def __init__(
        self,
        log: Path,
        *,
        is_file: bool = False,
        only_run: int | None = None,
        most_rows: int | None = None,
        present_ahead_ns: int | None = None,
        skip_damage: bool = False,
    ) -> None:
        self._skip_damage = skip_damage
        self.damage: list[str] = []
        """What is wrong with the runs that are left out."""
        self._log, self._is_file, self._only_run = log, is_file, only_run
        self._present_ahead_ns = present_ahead_ns
        self.activity = Activity(most_rows)
        self.header: Header | None = None
        """The header of the latest run whose first part is there."""
        self._at = (0, 0)  # the run and the part that are being read
        self._path = log
        self._line = 0
        self._stream: BinaryIO | None = None
        self._rest = b""
        self._ahead_ns = 0
        self._thinned_from_ns: int | None = None

    def read(self) -> None:
        """Read all that has been written since the last call.

        Raises:
            InputError: A file cannot be read, or is not a log.
        """
        runs = {1: [(1, self._log)]} if self._is_file else kept_parts(self._log)
        # Of the open part all is written once there is a later one: list parts, then read it.
        with self._skipping_damage():
            self._read_on()
        for run, parts in runs.items():
            if self._only_run in (None, run):
                with self._skipping_damage():
                    self._read_parts(run, parts, is_latest=run == max(runs))

    def _read_parts(self, run: int, parts: Parts, is_latest: bool) -> None:
        for part, path in parts:
            if (run, part) > self._at and self._open(run, part, path, parts, is_latest):
                self._read_on()

    @contextlib.contextmanager
    def _skipping_damage(self) -> Iterator[None]:
        """Leave out the rest of the run that is being read if a line is damaged."""
        try:
            yield
        except _DamageError as error:
            if not self._skip_damage:
                raise
            self.damage.append(str(error))
            self.close()
            self._at = (self._at[0], _LAST_PART)
            self._thinned_from_ns = None
            self.activity.miss_rest()

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open(self, run: int, part: int, path: Path, parts: Parts, is_latest: bool) -> bool:
        """Open a part; return False if it is not there any more, or not yet."""
        try:
            stream = path.open("rb")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise InputError(f"{error.strerror or error}.", source=str(path)) from None
        line = stream.readline(MAX_LINE_BYTES + 1)
        if not line.endswith(b"\n") and is_latest and path == parts[-1][1] and not self._is_file:
            stream.close()
            return False
        self.close()
        before, self._at = self._at, (run, part)
        self._stream, self._path, self._line, self._rest = stream, path, 0, b""
        header = None
        # Nothing may be left of a part, and a scheduler may have been killed before it wrote any.
        if not line.startswith(b'{"event"') and (line.endswith(b"\n") or self._is_file):
            header = self._read_header(line)
        if header is None:
            stream.seek(0)
        if run != before[0]:
            self._begin_run(header, parts, is_latest)
        activity, first_ns = self.activity, _first_time_ns(stream)
        begins_ns = activity.now_ns if first_ns is None else first_ns + self._ahead_ns
        if header is None and (run, part - 1) != before:
            activity.miss_beginning(before == (0, 0), begins_ns)
        if self._thinned_from_ns is not None:
            activity.add_unknown(self._thinned_from_ns, begins_ns)
        self._thinned_from_ns = begins_ns if is_thinned(path) else None
        return True

    def _read_header(self, line: bytes) -> Header:
        self._line = 1
        if not line:
            raise _DamageError("is empty, not a log of `headway serve`.", source=str(self._path))
        try:
            header = _headers.decode(line)
        except _BAD_LINE as error:
            raise self._error(error) from None
        if header.headway_log != FORMAT:
            raise _DamageError(
                f"is a log of format {header.headway_log}, written by Headway {header.version}; "
                f"this version reads format {FORMAT}.",
                source=str(self._path),
                line=1,
            )
        self.header = header
        self.activity.policy = header.policy
        return header

    def _begin_run(self, header: Header | None, parts: Parts, is_latest: bool) -> None:
        """Find out how the times of a run relate to the machine's clock."""
        now_ns, begins_ns = self.activity.now_ns, self.activity.now_ns
        if header is not None and header.clock_ns is not None and header.unix_ns is not None:
            # A machine's clock that was set back must not mix two runs.
            begins_ns = max(now_ns, header.unix_ns)
            self._ahead_ns = begins_ns - header.clock_ns
        elif is_latest and self._present_ahead_ns is not None:
            self._ahead_ns = self._present_ahead_ns
        else:
            self._ahead_ns = _guessed_ahead_ns(parts)
        self.activity.begin_run(begins_ns)

    @property
    def ahead_ns(self) -> int:
        """How far the scheduler's clock is behind the machine's in the latest run."""
        return self._ahead_ns

    def _read_on(self) -> None:
        """Read whole lines up to the end of the open file."""
        stream, take, ahead_ns = self._stream, self.activity.take, self._ahead_ns
        if stream is None:
            return
        while data := stream.read(_CHUNK_BYTES):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._line += 1
                try:
                    entry = _entries.decode(line)
                except _BAD_LINE as error:
                    raise self._error(error) from None
                take(entry, ahead_ns)

    def _error(self, error: Exception) -> InputError:
        problem = f"not a line of a log: {error}."
        return _DamageError(problem, source=str(self._path), line=self._line)


def _first_time_ns(stream: BinaryIO) -> int | None:
    """Return the time of the next event in a file, and go back to it."""
    position = stream.tell()
    line = stream.readline(MAX_LINE_BYTES + 1)
    stream.seek(position)
    try:
        return _entries.decode(line).event.at_ns
    except _BAD_LINE:
        return None


def _guessed_ahead_ns(parts: Parts) -> int:
    """Return how far a run's clock was behind: its last event is about as old as its last file."""
    for _, path in reversed(parts):
        last_ns = last_time_ns(path)
        if last_ns is not None:
            return path.stat().st_mtime_ns - last_ns
    return 0
