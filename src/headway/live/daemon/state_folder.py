"""The scheduler's state folder: what lies in it, whose it is, and how others find the scheduler."""

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


def default_folder() -> Path:
    """Return where the scheduler keeps its state unless told: ~/.local/state/headway."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return home / "headway"


@dataclass(frozen=True, slots=True)
class Places:
    """Paths in a state folder."""

    folder: Path

    @property
    def token(self) -> Path:
        """The secret that whoever talks to the scheduler must know; mode 0600."""
        return self.folder / "token"

    @property
    def database(self) -> Path:
        """Jobs and settings that outlive the scheduler: SQLite."""
        return self.folder / "state.db"

    @property
    def gate(self) -> Path:
        """The gate's Unix socket."""
        return self.folder / "gate.sock"

    @property
    def address(self) -> Path:
        """Where the API is: written when it listens."""
        return self.folder / "address.json"

    @property
    def events(self) -> Path:
        """The log of what happened and what was decided, since the scheduler started."""
        return self.folder / "events.jsonl"

    @property
    def attempts(self) -> Path:
        """The executor's folder: output of jobs."""
        return self.folder / "attempts"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the API is, and the certificate to trust when it is https."""

    url: str
    certificate: str | None = None


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[Places]:
    """Make the folder, mode 0700, and hold it: one scheduler at a time.

    The lock is on the folder itself and goes with the process, however that ends.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=str(folder)) from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                "another scheduler runs on this folder; end it first, or give another with "
                "--folder.",
                source=str(folder),
            ) from None
        _check_private(folder)
        yield Places(folder)
    finally:
        os.close(held)


def _check_private(folder: Path) -> None:
    """Refuse a folder that is not its owner's alone: what jobs print lies in it."""
    found = folder.stat()
    if found.st_uid != os.getuid():
        raise InputError("belongs to another user.", source=str(folder))
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise InputError(
            f"others can look into this folder; run chmod 700 {folder}.", source=str(folder)
        )


@contextlib.contextmanager
def published(places: Places, address: Address) -> Iterator[None]:
    """Say where the API is for as long as this lasts.

    The file stays locked by the process that wrote it. A scheduler that is killed leaves one that
    is not: its port may be another program's by now, which must not be sent the token. A lock ties
    the address to a process that lives, and costs no request.
    """
    text = json.dumps({"url": address.url, "certificate": address.certificate})
    part = places.address.with_suffix(".part")
    try:
        held = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            os.write(held, f"{text}\n".encode())
            os.replace(part, places.address)
        except BaseException:
            os.close(held)
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=str(places.address)) from None
    try:
        yield
    finally:
        places.address.unlink(missing_ok=True)
        os.close(held)


def read_address(places: Places) -> Address:
    """Return where the scheduler that runs on this folder says that its API is."""
    try:
        with places.address.open("rb") as stream:
            if not _locked(stream.fileno()):
                raise FileNotFoundError
            values = json.loads(stream.read())
        return Address(str(values["url"]), values.get("certificate"))
    except FileNotFoundError:
        raise InputError(
            f"no scheduler runs on {places.folder}; start one with headway serve, or say where it "
            "is with --folder or --server."
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError("is not the address of a scheduler.", source=str(places.address)) from None


def _locked(file: int) -> bool:
    """Tell whether a scheduler that lives has locked a file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
