"""Reads files of a trace, plain or gzip, in bounded memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from headway.domain.errors import InputError
from headway.files import STANDARD, open_input
from headway.workload.text import text_lines

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from headway.workload.traces.records import RowLog

CHUNK = 2**20
_GZIP = b"\x1f\x8b"
NOT_TEXT = "not a text file; a trace is UTF-8 text, plain or gzip (unpack a .tar first)."
_TOO_LONG = "a trace's lines are short."


def source_name(path: str) -> str:
    """Return the name of a file in messages."""
    return "standard input" if path == STANDARD else path


@contextlib.contextmanager
def open_trace(path: str, log: RowLog) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`, to read bytes; gzip is decompressed."""
    with open_input(path) as stream:
        plain = io.BufferedReader(_Counted(stream, log), CHUNK)
        if plain.peek(2)[:2] != _GZIP:
            yield plain
            return
        with gzip.GzipFile(fileobj=plain, mode="rb") as packed:
            yield io.BufferedReader(_Unpacked(packed, source_name(path)), CHUNK)


def trace_lines(stream: BinaryIO, source: str) -> Iterator[str]:
    """Yield the lines of an open trace."""
    return text_lines(stream, source, NOT_TEXT, _TOO_LONG)


class _Counted(io.RawIOBase):
    """A stream that reports how many bytes have been read."""

    def __init__(self, stream: BinaryIO, log: RowLog) -> None:
        self._stream = stream
        self._log = log
        self._done = 0
        try:
            self._size = os.fstat(stream.fileno()).st_size
        except (OSError, AttributeError):
            self._size = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read bytes into the buffer."""
        view = memoryview(buffer)
        data = self._stream.read(len(view))
        view[: len(data)] = data
        self._done += len(data)
        if self._log.progress is not None and self._size:
            self._log.progress(min(self._done / self._size, 1.0), self._done)
        return len(data)


class _Unpacked(io.RawIOBase):
    """A gzip stream whose damage is reported with the file's name."""

    def __init__(self, stream: gzip.GzipFile, source: str) -> None:
        self._stream = stream
        self._source = source

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read bytes into the buffer."""
        view = memoryview(buffer)
        try:
            data = self._stream.read(len(view))
        except EOFError:
            raise InputError("the gzip file is truncated.", source=self._source) from None
        except (gzip.BadGzipFile, zlib.error):
            raise InputError("the gzip file is damaged.", source=self._source) from None
        view[: len(data)] = data
        return len(data)
