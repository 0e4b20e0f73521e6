"""What is known of testbeds between commands: one file each, written before anything is made."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.domain.errors import InputError
from headway.files import open_output
from headway.testbed.description import FOLDER, Testbed, check_name, log_of, socket_of
from headway.testbed.processes import Process
from headway.testbed.system import require


@dataclass(frozen=True, slots=True)
class Record:
    """A testbed that is up, half made or half gone, and its keeper once that has started."""

    testbed: Testbed
    keeper: Process | None = None


@contextlib.contextmanager
def locked(*, shared: bool = False) -> Iterator[int]:
    """Hold the lock of all testbeds: one command at a time changes them.

    The lock is on the folder itself, so that no file stays behind.
    """
    FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


def names() -> list[str]:
    """Return the names of all testbeds that are up, half made or half gone."""
    require()
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def find(name: str = "default") -> Testbed | None:
    """Return the testbed of that name, or None if there is none."""
    require()
    record = read(name)
    return None if record is None else record.testbed


def read(name: str) -> Record | None:
    """Return what is known of a testbed, or None if there is none of that name."""
    path = path_of(check_name(name))
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(path) from error
    try:
        values = json.loads(text)
        testbed = Testbed(name, values["hosts"], values["rate_mbit"], values["eta"])
        keeper = None if values["keeper"] is None else Process(*map(int, values["keeper"]))
        # What is removed later must be what this program names, whatever the file says.
        if values["namespaces"] != testbed.namespaces:
            raise ValueError
    except (InputError, ValueError, TypeError, KeyError) as error:
        raise _broken(path) from error
    return Record(testbed, keeper)


def write(record: Record) -> None:
    """Write what is known of a testbed, all of it or nothing."""
    testbed, keeper = record.testbed, record.keeper
    values = {
        "hosts": testbed.hosts,
        "rate_mbit": testbed.rate_mbit,
        "eta": testbed.eta,
        "namespaces": testbed.namespaces,
        "keeper": None if keeper is None else [keeper.pid, keeper.started_ticks],
    }
    with open_output(path_of(testbed.name)) as stream:
        stream.write((json.dumps(values, indent=2) + "\n").encode())


def forget(name: str) -> None:
    """Remove every file of a testbed, its state last, and what a killed writer left of it."""
    halves = FOLDER.glob(f".{name}.json.*")
    for path in (socket_of(name), log_of(name), *halves, path_of(name)):
        path.unlink(missing_ok=True)


def path_of(name: str) -> Path:
    """Return the path of a testbed's state."""
    return FOLDER / f"{name}.json"


def _broken(path: Path) -> InputError:
    return InputError(
        "is not the state of a testbed; remove it and its namespaces by hand.", source=str(path)
    )
