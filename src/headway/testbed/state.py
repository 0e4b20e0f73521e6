"""The state of testbeds between commands: one file each, written before anything is created."""

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
from headway.testbed.system import check_prerequisites


@dataclass(frozen=True, slots=True)
class Record:
    """A testbed, complete or not, and its rate controller once that has started."""

    testbed: Testbed
    rate_controller: Process | None = None


@contextlib.contextmanager
def locked(*, shared: bool = False) -> Iterator[int]:
    """Hold the lock of all testbeds: only one command at a time may change them.

    The folder itself is locked, so no lock file stays behind.
    """
    FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


def names() -> list[str]:
    """Return the names of all testbeds, complete or not."""
    check_prerequisites()
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def find(name: str = "default") -> Testbed | None:
    """Return the testbed with this name; None if there is none."""
    check_prerequisites()
    record = read(name)
    return None if record is None else record.testbed


def read(name: str) -> Record | None:
    """Return the record of a testbed; None if there is none."""
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
        controller = values["rate_controller"]
        process = None if controller is None else Process(*map(int, controller))
        # `down` removes these: never remove other namespaces, whatever the file says.
        if values["namespaces"] != testbed.namespaces:
            raise ValueError
    except (InputError, ValueError, TypeError, KeyError) as error:
        raise _broken(path) from error
    return Record(testbed, process)


def write(record: Record) -> None:
    """Write the record of a testbed atomically."""
    testbed, controller = record.testbed, record.rate_controller
    values = {
        "hosts": testbed.hosts,
        "rate_mbit": testbed.rate_mbit,
        "eta": testbed.eta,
        "namespaces": testbed.namespaces,
        "rate_controller": controller and [controller.pid, controller.started_ticks],
    }
    with open_output(path_of(testbed.name)) as stream:
        stream.write((json.dumps(values, indent=2) + "\n").encode())


def forget(name: str) -> None:
    """Remove all files of a testbed, its state last, and the temporary files of a killed writer."""
    temporary = FOLDER.glob(f".{name}.json.*")
    for path in (socket_of(name), log_of(name), *temporary, path_of(name)):
        path.unlink(missing_ok=True)


def path_of(name: str) -> Path:
    """Return the path of a testbed's state file."""
    return FOLDER / f"{name}.json"


def _broken(path: Path) -> InputError:
    return InputError(
        "is not a valid state file; remove it and the testbed's namespaces by hand.",
        source=str(path),
    )
