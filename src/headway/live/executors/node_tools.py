"""What executors do on a node besides the shim, with the standard library only.

The folder of an attempt holds the files that `shim` documents.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headway.live.executors.shim import RESERVED_BYTES

PYTHON = (sys.executable, "-I", "-S")
"""Python without installed packages, which the shim does not need: it starts faster."""

SHIM_LOST = (137, "its shim was killed")
"""Code and reason of an attempt whose shim ended without a word."""

FOLDER_LOST = (137, "its folder was removed while it ran, and how it ended is not known")
"""Code and reason of an attempt that has run and left nothing that says how it ended."""

OVERDUE_S = 5.0
"""How long after the grace period a shim may take to end before it is killed."""

FOLDER_VARIABLE = "HEADWAY_ATTEMPT_FOLDER"
"""Identifies the processes of an attempt and their children."""

MAX_FILE_BYTES = 2**24
"""More than a plan or an outcome can have."""

_POLL_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36


def write_plan(folder: Path, plan: dict[str, Any]) -> None:
    """Write the shim's plan, and reserve space for its outcome: the disk may be full later."""
    (folder / "ended.part").write_bytes(b" " * RESERVED_BYTES)
    (folder / "plan.json").write_text(json.dumps(plan))


def open_regular(path: str | Path) -> int:
    """Open a regular file for reading; a pipe, a device or a link that a job put there is an error.

    Opening never blocks.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return handle


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file of reasonable size."""
    with os.fdopen(open_regular(path), "rb") as stream:
        return stream.read(MAX_FILE_BYTES)


def read_outcome(folder: Path, name: str = "ended.json") -> tuple[int, str] | None:
    """Return the exit code and the reason that a shim wrote; None if there are none."""
    try:
        outcome = json.loads(read_regular(folder / name))
        return int(outcome["code"]), str(outcome["reason"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def gpu_memories_bytes() -> list[int]:
    """Return the memory of each GPU of this machine, in the order of nvidia-smi."""
    words = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
        return [int(line) * 2**20 for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents have died."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_orphans(shim_path: str) -> None:
    """Kill the processes that a killed shim left behind, whatever session they are in.

    They have become children of this process, which `adopt_orphans` must have prepared. Its other
    children are shims, and programs in its own session.
    """
    deadline_s = time.monotonic() + OVERDUE_S
    while time.monotonic() < deadline_s and (orphans := _orphans(shim_path)):
        for pid in orphans:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_POLL_S)


def _orphans(shim_path: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            state, parent, session = fields[0], int(fields[1]), int(fields[3])
            if parent != os.getpid() or session == os.getsid(0):
                continue
            words = (path / "cmdline").read_bytes().split(b"\0")
            if state == "Z" or os.fsencode(shim_path) not in words:
                found.append(int(path.name))
    return found


def kill_remaining(folder: Path) -> None:
    """Kill the processes of the attempt with this folder, until none is left."""
    deadline_s = time.monotonic() + OVERDUE_S
    wanted = f"{FOLDER_VARIABLE}={folder}".encode()
    while time.monotonic() < deadline_s:
        found = False
        for path in Path("/proc").glob("[0-9]*/environ"):
            # The environment of other users' processes cannot be read; none of them is ours.
            with contextlib.suppress(OSError):
                process = os.pidfd_open(int(path.parent.name))
                try:
                    if wanted in path.read_bytes().split(b"\0"):
                        found = True
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                finally:
                    os.close(process)
        if not found:
            return
        time.sleep(_POLL_S)
