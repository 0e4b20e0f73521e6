"""Shims on this machine: starting them, finding them again, and their outcomes.

The lock of an attempt's folder, not a process id, tells whether its shim lives, so no other process
can be mistaken for it. Every function here may block.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headway.live.executors import rendezvous, shim
from headway.live.executors.attempt_tracker import NEVER_STARTED_OUTCOME, Outcome
from headway.live.executors.node_tools import (
    PYTHON,
    SHIM_LOST,
    kill_orphans,
    kill_remaining,
    open_regular,
    read_outcome,
    read_regular,
)
from headway.live.executors.rank_plans import LaunchNode

_START_TIMEOUT_S = 2.0
"""How long a shim may take to begin before its plan is withdrawn."""

_POLL_S = 0.01
_PID_BYTES = 32

_SPAWNING = threading.Lock()
"""A shim that is not yet running its program looks like an orphan."""


class ShimProcess(NamedTuple):
    """A live shim, its pidfd, and the rendezvous port of its ranks."""

    pid: int
    pidfd: int
    port: int


def start_shim(folder: Path, port: int) -> ShimProcess:
    """Start the shim of a folder that has a plan; it inherits the lock of the folder."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.pwrite(lock, b" " * _PID_BYTES, 0)  # The disk may be full when the shim writes its id.
        # It inherits only the lock. SIGTERM stays blocked until the shim has its handler.
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        with _SPAWNING:
            pid = os.posix_spawn(
                sys.executable,
                [*PYTHON, str(shim.__file__), str(folder)],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, lock, shim.LOCK), *null],
                setsid=True,
                setsigmask=[signal.SIGTERM],
            )
    finally:
        os.close(lock)
    try:
        return ShimProcess(pid, os.pidfd_open(pid), port)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def find_shim(folder: Path) -> ShimProcess | None:
    """Return the live shim of a folder; one that takes too long to begin is kept from beginning."""
    if read_outcome(folder) is not None:
        return None
    try:
        lock = open_regular(folder / "lock")
    except OSError:
        return None
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    try:
        while _is_held(lock) and (folder / "plan.json").exists() and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        with contextlib.suppress(FileNotFoundError):
            os.rename(folder / "plan.json", folder / "refused.json")
            return None
        if not _is_held(lock):
            return None
        pid = int(os.pread(lock, _PID_BYTES, 0))
        port = int(json.loads(read_regular(folder / "running.json"))["port"])
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            if _is_held(lock):  # Still held, so the pidfd is the shim's.
                return ShimProcess(pid, pidfd, port)
            os.close(pidfd)
        return None
    finally:
        os.close(lock)


def final_outcome(folder: Path) -> Outcome | None:
    """Return the outcome of an attempt without a live shim, after killing all that is left.

    Without the shim's files there is none: the folder was removed, or never made.
    """
    outcome = read_outcome(folder)
    if outcome is not None:
        return outcome
    kill_remaining(folder)
    with _SPAWNING:
        kill_orphans(str(shim.__file__))
    if (folder / "running.json").exists():
        return SHIM_LOST
    unstarted = (folder / "plan.json").exists() or (folder / "refused.json").exists()
    return NEVER_STARTED_OUTCOME if unstarted else None


def first_free_port(node: LaunchNode, candidates: Sequence[int]) -> int:
    """Return the first port that is free on a node; a testbed's host has ports of its own."""
    if not node.prefix:
        return rendezvous.first_free_port(node.address, candidates)
    script = [str(rendezvous.__file__), node.address, *map(str, candidates)]
    done = subprocess.run(
        [*node.prefix, *PYTHON, *script], capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode != 0:
        raise OSError(done.stderr.strip().rpartition("\n")[2])
    return int(done.stdout)


def _is_held(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False
