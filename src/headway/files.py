"""Reading and writing files so that nothing is ever half-written."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from headway.domain.errors import InputError

STANDARD = "-"
"""The name that means standard input or output."""


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the system's refusals into errors that name the file."""
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
    """Make a folder and those above it, unless they are there."""
    with _explained(path):
        Path(path).mkdir(parents=True, exist_ok=True)


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, before work is done that would be lost."""
    target = Path(path)
    if os.fspath(path) == STANDARD or (target.exists() and not target.is_dir()):
        return
    if target.is_dir():
        raise InputError("is a folder, not a file.", source=str(target))
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}.", source=str(target))


def check_different(inputs: Sequence[str], outputs: Sequence[str], what: str) -> None:
    """Refuse paths of which two are the same file; `-` may be one input and one output."""
    places = [os.path.realpath(path) for path in [*inputs, *outputs] if path != STANDARD]
    twice = inputs.count(STANDARD) > 1 or outputs.count(STANDARD) > 1
    if twice or len(set(places)) < len(places):
        raise InputError(f"{what} must be different files.")


@contextlib.contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file, or standard output for `-`, to write bytes.

    The bytes go to a temporary file beside the target, which takes the target's name only when all
    is written. Whatever interrupts the writing, the target is as it was or complete.
    """
    with _explained(path):
        if os.fspath(path) == STANDARD:
            if sys.stdout is None:
                raise InputError("is closed.", source="standard output")
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        # Through a link, so that what it points to is replaced and not the link.
        target = Path(os.path.realpath(path))
        special = os.path.abspath(path).startswith(("/dev/", "/proc/"))
        if special or (target.exists() and not target.is_file()):
            # A device or a pipe cannot be replaced.
            with open(path, "wb") as stream:
                yield stream
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
            os.chmod(temporary, _mode(target))
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


def _mode(target: Path) -> int:
    """Return the permissions the file has, or a new one would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
