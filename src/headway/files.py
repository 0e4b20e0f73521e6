"""Reading files, and writing them atomically."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from headway.domain.errors import InputError
from headway.interrupts import before_forced_exit, check, is_leaving

STANDARD = "-"
"""Stands for standard input or output."""


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the operating system into errors that name the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=os.fspath(path)) from error


@contextlib.contextmanager
def open_input(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`, to read bytes."""
    with _explained(path):
        if os.fspath(path) == STANDARD:
            if sys.stdin is None:
                raise InputError("is closed.", source="standard input")
            yield sys.stdin.buffer
        else:
            with open(path, "rb") as stream:
                yield stream


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder and its parents unless they exist."""
    with _explained(path):
        Path(path).mkdir(parents=True, exist_ok=True)


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, before doing work that would be lost."""
    target = Path(path)
    if os.fspath(path) == STANDARD or (target.exists() and not target.is_dir()):
        return
    if target.is_dir():
        raise InputError("is a folder, not a file.", source=str(target))
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}.", source=str(target))


def check_different(inputs: Sequence[str], outputs: Sequence[str], what: str) -> None:
    """Refuse paths that name the same file; `-` may be one input and one output."""
    files = [os.path.realpath(path) for path in [*inputs, *outputs] if path != STANDARD]
    standard_twice = inputs.count(STANDARD) > 1 or outputs.count(STANDARD) > 1
    if standard_twice or len(set(files)) < len(files):
        raise InputError(f"{what} must be different files.")


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
        special = os.path.abspath(path).startswith(("/dev/", "/proc/"))
        if special or (target.exists() and not target.is_file()):
            # A device or a pipe cannot be replaced.
            with open(path, "wb") as stream:
                yield stream
            return
        cleaning_up = is_leaving()
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with before_forced_exit(lambda: os.unlink(temporary)):
                with os.fdopen(handle, "wb") as stream:
                    yield stream
                if not cleaning_up:
                    check()
            os.chmod(temporary, _mode(target))
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


def _mode(target: Path) -> int:
    """Return the permissions of the file, or those that a new file would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
