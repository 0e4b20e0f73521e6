"""Tokens: the scheduler's secret, in a file that only its owner can read, and one per attempt."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path

from headway.domain.errors import InputError

_MAX_BYTES = 1024
_TOKEN = re.compile(r"[!-~]{32,512}")


def create(path: str | os.PathLike[str]) -> str:
    """Create a file that only its owner can read, with a new secret; return the secret.

    The file appears complete or not at all. An existing file or link is an error.
    """
    target, secret = Path(path), secrets.token_hex(32)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "w") as stream:
                stream.write(f"{secret}\n")
                stream.flush()
                os.fsync(stream.fileno())
            # Unlike a rename, a link never replaces an existing file.
            os.link(temporary, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except FileExistsError:
        raise InputError("exists already.", source=str(target)) from None
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=str(target)) from None
    return secret


def read(path: str | os.PathLike[str]) -> str:
    """Return the secret in a file; an error if anyone but its owner can read or change the file."""
    source = os.fspath(path)
    try:
        # Non-blocking: opening a named pipe must not hang.
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            _check(os.fstat(handle), source)
            data = os.read(handle, _MAX_BYTES)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError("must be a file, not a link.", source=source) from None
        raise InputError(f"{error.strerror or error}.", source=source) from None
    token = data.decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(token):
        raise InputError("must hold one line of 32 to 512 letters and digits.", source=source)
    return token


def job_token(secret: str, job_id: str, attempt: int) -> str:
    """Return the token of one attempt at a job: HMAC-SHA256 under the secret.

    It is worthless for any other attempt or job, and does not reveal the secret.
    """
    # The attempt comes first: it ends at the line feed, whatever characters the job's id has.
    text = f"headway job token\n{attempt}\n{job_id}"
    return hmac.new(_bytes(secret), _bytes(text), hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(_bytes(one), _bytes(other))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _check(status: os.stat_result, source: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InputError("must be a plain file.", source=source)
    if status.st_uid not in (os.geteuid(), 0):
        raise InputError("belongs to another user.", source=source)
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(
            f"others can read or change it: run chmod 600 {source}, and create a new token if they "
            "may have read it.",
            source=source,
        )
