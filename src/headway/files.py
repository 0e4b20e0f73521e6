"""Reading files, and writing them atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from headway.domain.errors import InputError
from headway.interrupts import before_forced_exit, check, is_leaving

STANDARD = "-"
"""Stands for standard input or output."""

_POLARS = ("polars", "pyo3_runtime")
"""Modules of polars' exceptions; the second is that of its panics."""


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the operating system into errors that name the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=os.fspath(path)) from error
    except Exception as error:
        if (problem := system_problem(error)) is None:
            raise
        raise InputError(problem, source=os.fspath(path)) from error


def system_problem(error: BaseException) -> str | None:
    """Return what the operating system said, if polars was refused something by it."""
    number = re.search(r"\(os error (\d+)\)|\bOs \{ code: (\d+)", str(error))
    if number is None or not type(error).__module__.startswith(_POLARS):
        return None
    code = int(number[1] or number[2])
    if code == errno.EPIPE:
        raise BrokenPipeError(code, os.strerror(code)) from error
    return f"{os.strerror(code)}."


_being_noted: list[set[str]] = []


@contextlib.contextmanager
def inputs_read() -> Iterator[set[str]]:
    """Note the files that are opened as inputs, among them those that other inputs name."""
    paths: set[str] = set()
    _being_noted.append(paths)
    try:
        yield paths
    finally:
        _being_noted.pop()


@contextlib.contextmanager
def open_input(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`, to read bytes."""
    with _explained(path):
        if os.fspath(path) == STANDARD:
            if sys.stdin is None:
                raise InputError("is closed.", source="standard input")
            yield sys.stdin.buffer
        else:
            for paths in _being_noted:
                paths.add(os.fspath(path))
            with open(path, "rb") as stream:
                yield stream


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder and its parents unless they exist."""
    with _explained(path):
        Path(path).mkdir(parents=True, exist_ok=True)


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, before doing work that would be lost."""
    if os.fspath(path) == STANDARD:
        return
    target = Path(path)
    if target.is_dir():
        raise InputError("is a folder, not a file.", source=str(target))
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}.", source=str(target))
    with _explained(path):
        if not _is_replaced(path):
            if not os.access(path, os.W_OK):
                raise InputError("is not writable.", source=str(target))
            return
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))):
            pass


def check_outputs(
    outputs: Iterable[str | os.PathLike[str] | None], inputs: Iterable[str | None] = ()
) -> None:
    """Refuse outputs that cannot be written, are given twice or are also an input.

    `-` may be an input and an output, and None stands for a file that was not given.
    """
    read = {_identity(path) for path in inputs if path is not None and path != STANDARD}
    written = set()
    for path in outputs:
        if path is None:
            continue
        check_output(path)
        source = "standard output" if os.fspath(path) == STANDARD else os.fspath(path)
        if _identity(path) in written:
            raise InputError("is given for two outputs.", source=source)
        if _identity(path) in read:
            raise InputError("is an input too; give another file for the output.", source=source)
        written.add(_identity(path))


def _identity(path: str | os.PathLike[str]) -> str:
    return STANDARD if os.fspath(path) == STANDARD else os.path.realpath(path)


def _is_replaced(path: str | os.PathLike[str]) -> bool:
    """Return whether an output is a file that can be replaced, not a device or a pipe."""
    special = os.path.abspath(path).startswith(("/dev/", "/proc/"))
    return not special and (os.path.isfile(path) or not os.path.exists(path))


@contextlib.contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file, or standard output for `-`, to write bytes.

    The bytes go to a temporary file beside the target, which replaces the target when all is
    written. If writing is interrupted, the target is unchanged.
    """
    with _explained(path):
        if os.fspath(path) == STANDARD:
            if sys.stdout is None:
                raise InputError("is closed.", source="standard output")
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        # Follow links, so that the file is replaced and not the link to it.
        target = Path(os.path.realpath(path))
        if not _is_replaced(path):
            with open(path, "wb") as stream:
                yield stream
            return
        cleaning_up = is_leaving()
        temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}"
        with before_forced_exit(temporary.unlink):
            try:
                with open(temporary, "x+b", opener=_private) as stream:
                    yield stream
                if not cleaning_up:
                    check()
                os.chmod(temporary, _mode(target))
                os.replace(temporary, target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _mode(target: Path) -> int:
    """Return the permissions of the file, or those that a new file would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
