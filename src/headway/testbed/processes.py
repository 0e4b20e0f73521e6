"""Finding the processes in namespaces, and ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from headway.domain.errors import MachineError
from headway.testbed.system import NAMESPACES

GRACE_S = 2.0
"""How long a process may take to end after SIGTERM."""

_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Process:
    """A process; its start time distinguishes it from a later one with the same id."""

    pid: int
    started_ticks: int

    @staticmethod
    def of(pid: int) -> Process | None:
        """Return the process with this id; None if there is none or it has ended."""
        fields = _stat(pid)
        return None if fields is None else Process(pid, int(fields[19]))

    def alive(self) -> bool:
        """Return whether it still runs."""
        return Process.of(self.pid) == self


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name; None for a process that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def session(pid: int) -> int | None:
    """Return the session of a process; None if it has ended."""
    fields = _stat(pid)
    return None if fields is None else int(fields[3])


def inside(namespaces: Iterable[str]) -> dict[str, list[int]]:
    """Return the ids of the processes in each namespace, except this process."""
    found: dict[str, list[int]] = {namespace: [] for namespace in namespaces}
    by_identity = {}
    for namespace in found:
        with contextlib.suppress(OSError):
            by_identity[_identity(str(NAMESPACES / namespace))] = namespace
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            # The process may end meanwhile.
            with contextlib.suppress(OSError):
                home = by_identity.get(_identity(f"/proc/{entry}/ns/net"))
                if home is not None:
                    found[home].append(int(entry))
    return found


def end(running: Callable[[], Iterable[int]]) -> None:
    """End the processes that `running` returns, until it returns none: SIGTERM, then SIGKILL."""
    asked: set[int] = set()
    start = time.monotonic()
    while left := set(running()):
        elapsed_s = time.monotonic() - start
        if elapsed_s > 2 * GRACE_S:
            raise MachineError(f"process {min(left)} does not end.")
        kill = elapsed_s > GRACE_S
        for pid in left if kill else left - asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        asked |= left
        time.sleep(_POLL_S)


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
