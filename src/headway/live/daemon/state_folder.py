"""The scheduler's state folder: its files, its lock, and how clients find the API's address."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.domain.errors import InputError
from headway.live.daemon.errors import NoSchedulerError
from headway.live.executors.node_tools import open_regular

_ADDRESS_BYTES = 4096
"""What the address file occupies, so that a longer address fits in it later."""


def default_folder() -> Path:
    """Return $XDG_STATE_HOME/headway, or ~/.local/state/headway."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return home / "headway"


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Paths of the files in a state folder."""

    path: Path

    @property
    def token(self) -> Path:
        """The secret that every client must present; mode 0600."""
        return self.path / "token"

    @property
    def database(self) -> Path:
        """Jobs and settings that survive a restart: SQLite."""
        return self.path / "state.db"

    @property
    def gate(self) -> Path:
        """The gate's Unix socket."""
        return self.path / "gate.sock"

    @property
    def address(self) -> Path:
        """The API's address, published while the scheduler runs."""
        return self.path / "address.json"

    @property
    def event_log(self) -> Path:
        """A link to the newest part of the event log."""
        return self.path / "events.jsonl"

    @property
    def attempts(self) -> Path:
        """The executor's folder, with the output of jobs."""
        return self.path / "attempts"


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """The API's URL and, for https, the certificate to trust."""

    url: str
    certificate: str | None = None


@contextlib.contextmanager
def locked_folder(path: Path) -> Iterator[StateFolder]:
    """Create the folder, mode 0700, and lock it: one scheduler at a time.

    The lock is on the folder itself and ends with the process, even if that is killed.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=str(path)) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                "another scheduler is using this folder; stop it first, or choose another with "
                "--folder.",
                source=str(path),
            ) from None
        _check_private(path)
        yield StateFolder(path)
    finally:
        os.close(lock)


def _check_private(path: Path) -> None:
    """Refuse a folder that other users can read: it holds the output of jobs."""
    found = path.stat()
    if found.st_uid != os.getuid():
        raise InputError("belongs to another user.", source=str(path))
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise InputError(
            f"other users can read this folder; run chmod 700 {path}.", source=str(path)
        )


@contextlib.contextmanager
def published_address(folder: StateFolder, address: ApiAddress) -> Iterator[None]:
    """Publish the API's address in the state folder.

    The file stays locked by the process that wrote it. The file of a killed scheduler is unlocked,
    and its port may belong to another program by now, which must not be sent the token. A lock
    proves that the scheduler is alive without sending a request.
    """
    text = json.dumps({"url": address.url, "certificate": address.certificate})
    # The file of an earlier scheduler is reused, whose space is there even if the disk is full.
    part = folder.address.with_suffix(".part")
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder.address, part)
    try:
        if os.path.lexists(part) and not stat.S_ISREG(os.lstat(part).st_mode):
            part.unlink()  # Opening a pipe would wait for its reader.
        lock = os.open(part, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.pwrite(lock, f"{text}\n".encode().ljust(_ADDRESS_BYTES), 0)
            os.replace(part, folder.address)
        except BaseException:
            os.close(lock)
            raise
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=str(folder.address)) from None
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.replace(folder.address, part)
        os.close(lock)


def read_address(folder: StateFolder) -> ApiAddress:
    """Return the API address of the scheduler that runs on this folder."""
    try:
        with os.fdopen(open_regular(folder.address), "rb") as stream:
            if not _is_locked(stream.fileno()):
                raise FileNotFoundError
            values = json.loads(stream.read())
        return ApiAddress(str(values["url"]), values.get("certificate"))
    except FileNotFoundError:
        raise NoSchedulerError(
            f"no scheduler is running on {folder.path}; start one with headway serve, or give its "
            "location with --folder or --server."
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError("is not a scheduler's address file.", source=str(folder.address)) from None


def _is_locked(file: int) -> bool:
    """Return whether a live scheduler holds the lock of a file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
