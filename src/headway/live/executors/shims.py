"""Shims on this machine: how they are started, found again, and what is left when they are gone.

The lock of an attempt's folder, not a process number, says whether its shim lives: no other process
can be taken for it. Every function here may block.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headway.live.executors import ports, shim
from headway.live.executors.nodes import LocalNode
from headway.live.executors.on_node import PYTHON, SHIM_LOST, end_remains, ended
from headway.live.executors.ranks import NEVER_STARTED_VERDICT

_TAKEN_S = 2.0
"""How long a shim may take to begin before it is told not to."""

_POLL_S = 0.01


class Shim(NamedTuple):
    """A shim that lives, and the port where its ranks meet."""

    pid: int
    descriptor: int
    port: int


def start_shim(folder: Path, port: int) -> Shim:
    """Start the shim of a folder that is prepared; it takes the folder's lock along."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Nothing but the lock is handed on. SIGTERM waits until the shim can take it.
        nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        pid = os.posix_spawn(
            sys.executable,
            [*PYTHON, str(shim.__file__), str(folder)],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, lock, shim.LOCK), *nothing],
            setsid=True,
            setsigmask=[signal.SIGTERM],
        )
    finally:
        os.close(lock)
    try:
        return Shim(pid, os.pidfd_open(pid), port)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def find_shim(folder: Path) -> Shim | None:
    """Return the shim of a folder if it lives; one that has started nothing in time never will."""
    if ended(folder) is not None:
        return None
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
    except OSError:
        return None
    deadline_s = time.monotonic() + _TAKEN_S
    try:
        while _held(lock) and (folder / "plan.json").exists() and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder / "plan.json", folder / "refused.json")
            return None
        if not _held(lock):
            return None
        pid = int(os.pread(lock, 32, 0))
        port = int(json.loads((folder / "running.json").read_bytes())["port"])
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            if _held(lock):  # Still: so it is the shim that was opened.
                return Shim(pid, descriptor, port)
            os.close(descriptor)
        return None
    finally:
        os.close(lock)


def verdict(folder: Path) -> tuple[int, str]:
    """Return how an attempt ended whose shim is gone, and see to it that nothing of it is left."""
    told = ended(folder)
    if told is not None:
        return told
    end_remains(folder)
    return SHIM_LOST if (folder / "running.json").exists() else NEVER_STARTED_VERDICT


def _held(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def first_free(node: LocalNode, tried: Sequence[int]) -> int:
    """Return the first of these ports that is free on a node, which has ports of its own."""
    if not node.prefix:
        return ports.first_free(node.address, tried)
    words = [*node.prefix, *PYTHON, str(ports.__file__), node.address, *map(str, tried)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise OSError(done.stderr.strip().rpartition("\n")[2])
    return int(done.stdout)
