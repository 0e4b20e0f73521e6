"""Secrets: the scheduler's own in a file that only its user reads, and one for every attempt."""

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

_LONGEST = 1024
_TOKEN = re.compile(r"[!-~]{32,512}")


def create(path: str | os.PathLike[str]) -> str:
    """Write a new secret into a file that is not there yet, for its owner alone; return it.

    The file appears with all its bytes or not at all. A name that is taken, be it by a link, is
    refused.
    """
    target, secret = Path(path), secrets.token_hex(32)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "w") as stream:
                stream.write(f"{secret}\n")
                stream.flush()
                os.fsync(stream.fileno())
            # Unlike a rename, a link never replaces what is there.
            os.link(temporary, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except FileExistsError:
        raise InputError("is there already.", source=str(target)) from None
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=str(target)) from None
    return secret


def read(path: str | os.PathLike[str]) -> str:
    """Return the secret in a file, unless others than its owner may read or change that file."""
    source = os.fspath(path)
    try:
        # A pipe in the file's place must not make anyone wait.
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            _check(os.fstat(handle), source)
            data = os.read(handle, _LONGEST)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError("is a link, and must be a file.", source=source) from None
        raise InputError(f"{error.strerror or error}.", source=source) from None
    token = data.decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(token):
        raise InputError("must hold one line of 32 to 512 letters and digits.", source=source)
    return token


def job_token(secret: str, job: str, attempt: int) -> str:
    """Return what one attempt at a job proves itself with: HMAC-SHA256 under the secret.

    It is worth nothing for another attempt or job, and the secret cannot be had from it.
    """
    # The number first: it ends at the line feed, whatever the job is called.
    text = f"headway job token\n{attempt}\n{job}"
    return hmac.new(_bytes(secret), _bytes(text), hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Tell whether two secrets are equal, in a time that does not tell where they differ."""
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
            f"others than its owner can read or change it: run chmod 600 {source}, and make a new "
            "token if they may have read it.",
            source=source,
        )
