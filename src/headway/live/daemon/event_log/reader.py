"""Reads an event log line by line; errors name the file, the line and the column."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import BinaryIO, TypeVar

import msgspec

from headway.domain.errors import InputError
from headway.files import STANDARD, open_input
from headway.live.daemon.event_log.format import FORMAT, MAX_LINE_BYTES, Entry, Header

_Line = TypeVar("_Line")

_header_decoder = msgspec.json.Decoder(Header)
_entry_decoder = msgspec.json.Decoder(Entry)


class EventLogReader:
    """Iterates over the entries of a log; `line` is the number of the line read last."""

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self.source = source
        self.line = 0
        self.truncated = False
        """Whether the last line is incomplete because its writer was killed."""
        self._stream = stream
        header = self._header()
        if header is None:
            raise InputError("is empty, not a log of `headway serve`.", source=source)
        if header.headway_log != FORMAT:
            raise InputError(
                f"is a log of format {header.headway_log}, written by Headway {header.version}; "
                f"this version reads format {FORMAT}.",
                source=source,
                line=1,
            )
        self.header = header

    def __iter__(self) -> Iterator[Entry]:
        while (entry := self._next(_entry_decoder)) is not None:
            yield entry

    def _header(self) -> Header | None:
        """Return the first line; a later part of a run begins with an entry instead."""
        data = self._stream.readline(MAX_LINE_BYTES + 1)
        try:
            _entry_decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InputError):
            return self._decode(data, _header_decoder)
        raise InputError(
            "begins in the middle of a run: it is a later part of a log. Concatenate all parts of "
            "the run, as in cat events-000001-*.jsonl | headway replay -.",
            source=self.source,
            line=1,
        )

    def _next(self, decoder: msgspec.json.Decoder[_Line]) -> _Line | None:
        return self._decode(self._stream.readline(MAX_LINE_BYTES + 1), decoder)

    def _decode(self, data: bytes, decoder: msgspec.json.Decoder[_Line]) -> _Line | None:
        if not data:
            return None
        self.line += 1
        if len(data) > MAX_LINE_BYTES:
            raise self._error(f"the line is longer than {MAX_LINE_BYTES:,} bytes.")
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if self.line > 1 and not data.endswith(b"\n"):
                self.truncated = True
                return None
            offset = re.search(r"\(byte (\d+)\)", str(error))
            raise self._error(
                f"not a line of a log: {error}.", int(offset[1]) + 1 if offset else None
            ) from None
        except InputError as error:
            raise error.at(self.source, self.line) from None

    def _error(self, problem: str, column: int | None = None) -> InputError:
        return InputError(problem, source=self.source, line=self.line, column=column)


@contextlib.contextmanager
def open_event_log(path: str | os.PathLike[str]) -> Iterator[EventLogReader]:
    """Open a log for reading; `-` is standard input."""
    source = "standard input" if os.fspath(path) == STANDARD else os.fspath(path)
    with open_input(path) as stream:
        yield EventLogReader(stream, source)
