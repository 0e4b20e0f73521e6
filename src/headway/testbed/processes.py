"""Processes: which run inside namespaces, and how they are ended."""

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
    """One process, told from a later one of the same number by when it started."""

    pid: int
    started_ticks: int

    @staticmethod
    def of(pid: int) -> Process | None:
        """Return the process of this number, unless there is none or it has ended."""
        fields = _stat(pid)
        return None if fields is None else Process(pid, int(fields[19]))

    def alive(self) -> bool:
        """Tell whether it still runs."""
        return Process.of(self.pid) == self


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name, or nothing for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def session(pid: int) -> int | None:
    """Return the session of a process, unless it has ended."""
    fields = _stat(pid)
    return None if fields is None else int(fields[3])


def inside(namespaces: Iterable[str]) -> dict[str, list[int]]:
    """Return the numbers of the processes inside each of the namespaces, but for this one."""
    found: dict[str, list[int]] = {namespace: [] for namespace in namespaces}
    by_identity = {}
    for namespace in found:
        with contextlib.suppress(OSError):
            by_identity[_identity(str(NAMESPACES / namespace))] = namespace
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            # A process that ends meanwhile is in no namespace.
            with contextlib.suppress(OSError):
                home = by_identity.get(_identity(f"/proc/{entry}/ns/net"))
                if home is not None:
                    found[home].append(int(entry))
    return found


def end(running: Callable[[], Iterable[int]]) -> None:
    """End the processes that `running` names at any time: SIGTERM, after a while SIGKILL."""
    asked: set[int] = set()
    start = time.monotonic()
    while left := set(running()):
        elapsed_s = time.monotonic() - start
        if elapsed_s > 2 * GRACE_S:
            raise MachineError(f"process {min(left)} cannot be ended.")
        kill = elapsed_s > GRACE_S
        for pid in left if kill else left - asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        asked |= left
        time.sleep(_POLL_S)


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
