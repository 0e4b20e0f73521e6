"""Parquet files: written with a checksum, and read without harm from damaged or huge ones.

The checksum is between the data and the footer, where Parquet's readers do not look: `_MARK`, then
the SHA-256 of the rest of the file. Files without one are read too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from headway.domain.errors import InputError, shown
from headway.files import open_output, system_problem

if TYPE_CHECKING:
    import polars

PARQUET_MAGIC = b"PAR1"

_MARK = b"headway sha-256:"
_CHUNK_BYTES = 1 << 20


@contextmanager
def parquet_output(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file, or standard output for `-`, for polars to write; the checksum is added."""
    import polars

    with open_output(path) as stream:
        if stream.readable() and stream.seekable():
            try:
                yield stream
            except polars.exceptions.PolarsError:
                # Of a full disk polars may only say "transport error"; writing more tells.
                stream.write(bytes(_CHUNK_BYTES))
                stream.flush()
                raise
            _add_checksum(stream)
        else:
            with tempfile.TemporaryFile() as whole:
                yield whole
                _add_checksum(whole)
                whole.seek(0)
                shutil.copyfileobj(whole, stream, _CHUNK_BYTES)


def read_parquet(
    stream: BinaryIO, path: str | None = None, most_rows: int | None = None
) -> tuple[polars.DataFrame, dict[str, str]]:
    """Return the table of a Parquet file, and its metadata.

    Args:
        stream: The file, which can seek.
        path: Where polars can map it into memory instead of copying it.
        most_rows: How many rows are allowed.

    Raises:
        InputError: It is damaged, or has more rows.
    """
    import polars

    _check_checksum(stream)
    stream.seek(0)
    content = path or stream
    with _damage_explained():
        metadata = polars.read_parquet_metadata(content)
        if most_rows is not None:
            count = polars.scan_parquet(content, glob=False).select(polars.len())
            rows = count.collect().item()
            if rows > most_rows:
                raise InputError(f"has {rows:,} rows; at most {most_rows:,} are allowed.")
        return polars.read_parquet(content, glob=False), metadata


def read_parquet_column(path: str, name: str) -> list[Any]:
    """Return one column of a Parquet file, empty if there is none; the rest is not looked at.

    Raises:
        InputError: It cannot be read or is damaged.
    """
    import polars

    with _damage_explained():
        if name not in polars.read_parquet_schema(path):
            return []
        return polars.read_parquet(path, columns=[name], glob=False)[name].to_list()


@contextmanager
def _damage_explained() -> Iterator[None]:
    """Turn errors of polars, and its panics, into one line."""
    import polars

    try:
        with _without_panic_reports():
            yield
    # A panic of polars on damaged bytes is a BaseException.
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        if (problem := system_problem(error)) is not None:
            raise InputError(problem) from error
        raise InputError(f"is damaged: {shown(str(error).splitlines()[0], 80)}.") from error


def _footer(stream: BinaryIO) -> int:
    """Return where the footer of a Parquet file begins, by the length behind it."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - 8))
    return size - 8 - int.from_bytes(stream.read(4), "little")


def _digest(stream: BinaryIO, *spans: tuple[int, int]) -> bytes:
    """Return the SHA-256 of what lies in these spans of a file."""
    digest = hashlib.sha256()
    for begin, end in spans:
        stream.seek(begin)
        left = end - begin
        while left and (chunk := stream.read(min(_CHUNK_BYTES, left))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.digest()


def _add_checksum(stream: BinaryIO) -> None:
    begin = _footer(stream)
    digest = _digest(stream, (0, stream.seek(0, os.SEEK_END)))
    stream.seek(begin)
    footer = stream.read()
    stream.seek(begin)
    stream.write(_MARK + digest + footer)


def _check_checksum(stream: BinaryIO) -> None:
    begin = _footer(stream)
    at = begin - len(_MARK) - hashlib.sha256().digest_size
    if at < len(PARQUET_MAGIC):
        return
    stream.seek(at)
    found = stream.read(begin - at)
    if not found.startswith(_MARK):
        return
    rest = _digest(stream, (0, at), (begin, stream.seek(0, os.SEEK_END)))
    if found != _MARK + rest:
        raise InputError("is damaged: its content does not match its checksum.")


@contextmanager
def _without_panic_reports() -> Iterator[None]:
    """Keep what polars writes to standard error when it panics, but for the exception, away.

    Descriptor 2 is all threads', so beside other threads it is left alone.
    """
    with ExitStack() as stack:
        written = None
        if threading.active_count() == 1:
            with suppress(OSError):  # It is closed, or no more files can be opened.
                before = os.dup(2)
                stack.callback(os.close, before)
                written = stack.enter_context(tempfile.TemporaryFile())
        if written is None:
            yield
            return
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            written.seek(0)
            text = written.read()
            if b"panicked" not in text:
                os.write(2, text)
