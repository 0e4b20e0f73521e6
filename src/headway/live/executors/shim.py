"""The shim: runs the ranks of one attempt on one machine, stores their output and ends them all.

It is a separate program, `python shim.py FOLDER`, so that ranks outlive the scheduler. It imports
only the standard library. FOLDER contains

- plan.json: what to start; only the process that renames it to running.json may start it;
- lock: locked while the shim lives, with its process id;
- rank-R.log: the output of rank R, and rank-R.log.1, its older output;
- ended.json: the outcome.

With `--leash` it ends when its standard input is closed, and removes the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import resource
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

GRACE_S = 5.0
"""How long ranks may take to end after SIGTERM."""

LOG_BYTES = 16 * 2**20
"""The largest size of a log file; each rank has at most two."""

COULD_NOT_START, STOPPED = 127, 128 + signal.SIGTERM
OUT_OF_RESOURCES = -1
"""The code if ranks could not start because of the machine, not the job; it equals
`live.core.events.NEVER_STARTED`, which this program cannot import."""

_OUT_OF_RESOURCES_ERRORS = (
    errno.EAGAIN,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOSPC,
    errno.EDQUOT,
)

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b")
"""The beginning of the line of a traceback that names the exception."""

LOCK = 3
"""The file descriptor of the lock in the shim."""

LEASH = "--leash"
RESERVED_BYTES = 4096
_CHUNK_BYTES = 1 << 16
_KILL_AGAIN_S = 0.1
_WATCH_S = 1.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_DEFAULTS = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
"""Default variables of ranks: as torchrun sets, and for logs without delay."""


def write_outcome(path: Path, code: int, reason: str) -> None:
    """Write the outcome into the space reserved for it in a file.

    A folder that was removed meanwhile is made again: whether the job succeeded must not be lost.
    """
    text = json.dumps({"code": code, "reason": reason[: RESERVED_BYTES // 16]})
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as stream:
        stream.write(text.encode().ljust(RESERVED_BYTES))
        stream.flush()
        with contextlib.suppress(OSError):
            os.fsync(stream.fileno())


class Log:
    """A file of bounded size; output that does not fit on the disk is only counted."""

    def __init__(self, path: Path, max_bytes: int = LOG_BYTES) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._handle = -1
        self._bytes = 0
        self._lost_bytes = 0
        self.write(b"")

    def write(self, data: bytes) -> None:
        """Append; a full file becomes NAME.1 and replaces the older one."""
        try:
            if self._bytes + len(data) > self._max_bytes:
                self.close()
                os.rename(self._path, f"{self._path}.1")
            if self._handle < 0:
                self._open()
            if self._lost_bytes:
                self._append(f"\n[{self._lost_bytes} bytes of output are lost]\n".encode())
                self._lost_bytes = 0
            self._lost_bytes += len(data) - self._append(data)
        except OSError:
            # A full disk must not end a job.
            self._lost_bytes += len(data)

    def _open(self) -> None:
        """Open the file; what the job put in its place is removed unless it is a regular file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW
        for again in (True, False):
            try:
                self._handle = os.open(self._path, flags, 0o600)
            except OSError as error:
                if not again or error.errno not in (errno.ELOOP, errno.ENXIO):
                    raise
            else:
                found = os.fstat(self._handle)
                if stat.S_ISREG(found.st_mode):
                    self._bytes = found.st_size
                    return
                self.close()
            os.unlink(self._path)
        raise OSError(errno.EINVAL, "not a regular file", str(self._path))

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self._bytes = -1, 0

    def _append(self, data: bytes) -> int:
        written = os.write(self._handle, data)
        self._bytes += written
        return written


class _Rank:
    """A process of the job, in its own session."""

    def __init__(self, plan: dict[str, Any], folder: Path, in_child: Callable[[], None]) -> None:
        self.rank = int(plan["rank"])
        self._log = Log(folder / f"rank-{self.rank}.log")
        self._last = b""
        self._process = subprocess.Popen(
            plan["command"],
            cwd=plan["folder"],
            env={**_DEFAULTS, **os.environ, **plan["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=in_child,  # noqa: PLW1509 (the shim has one thread)
        )
        assert self._process.stdout is not None
        self.pid, self.output = self._process.pid, self._process.stdout.fileno()
        os.set_blocking(self.output, False)

    def read(self) -> bool:
        """Store new output; False at its end."""
        try:
            data = os.read(self.output, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        self._log.write(data)
        self._last = (self._last + data)[-RESERVED_BYTES:]
        return bool(data)

    def reaped(self, code: int) -> None:
        """Record the exit code, and read the rest of the pipe, which holds 16 chunks at most."""
        self._process.returncode = code
        for _ in range(16):
            self.read()

    def failure(self, code: int) -> str:
        """Describe how it failed: the signal, or the exit code and the last line of output."""
        if code < 0:
            names = {number.value: number.name for number in signal.Signals}
            return f"rank {self.rank} was killed by {names.get(-code, f'signal {-code}')}"
        last = _error_line(self._last.decode(errors="replace").split("\n"))
        last = "".join(letter for letter in last if letter.isprintable())[:200]
        return f"rank {self.rank} exited with {code}" + (f": {last}" if last else "")

    def signal(self, number: int) -> None:
        """Send a signal to it and its children."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, number)


class _Shim:
    """Runs all ranks of an attempt until none is left."""

    def __init__(
        self, folder: Path, plan: dict[str, Any], leashed: bool, parent: int | None = None
    ) -> None:
        self._folder, self._plan, self._parent = folder, plan, parent
        self._running: dict[int, _Rank] = {}
        self._stop_requested = self.abandoned = False
        self._outcome: tuple[int, str] | None = None
        self._kill_at_s = float("inf")
        self._selector = selectors.DefaultSelector()
        self._install_signal_handlers()
        if leashed:
            self._selector.register(0, selectors.EVENT_READ, self._leash)

    def run(self) -> tuple[int, str]:
        """Start all ranks, wait for their end and return the outcome: code and reason."""
        try:
            self._start()
            while self._running:
                self._wait()
        finally:
            _end_children()
        return self._outcome or (0, "")

    def _wait(self) -> None:
        """Wait for the next event, or until the grace period of ending ranks is over."""
        left_s = max(_KILL_AGAIN_S, self._kill_at_s - time.monotonic())
        watch_s = None if self._parent is None else _WATCH_S
        for key, _ in self._selector.select(watch_s if self._outcome is None else left_s):
            if not key.data():
                self._selector.unregister(key.fileobj)
        self._reap()
        if self._parent not in (None, os.getppid()) and self._running:
            self._end(128 + signal.SIGKILL, "the process that ran its step was killed")
        if self._stop_requested and self._running:
            self._end(STOPPED, "stopped")
        if time.monotonic() >= self._kill_at_s:
            for rank in self._running.values():
                rank.signal(signal.SIGKILL)

    def _install_signal_handlers(self) -> None:
        """Make signals wake the loop; by handlers, because ranks would inherit ignored signals."""
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, _CHUNK_BYTES))
        signal.signal(signal.SIGTERM, self._request_stop)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _request_stop(self, *_: object) -> None:
        self._stop_requested = True

    def _leash(self) -> bool:
        held = bool(os.read(0, _CHUNK_BYTES))
        if not held:
            self._stop_requested = self.abandoned = True
        return held

    def _start(self) -> None:
        libc, parent = ctypes.CDLL(None), os.getpid()
        usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = (self._plan.get("files", usual), most)
        # Orphans of ranks become children of the shim, which can then end them too.
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)

        def die_with_shim() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            resource.setrlimit(resource.RLIMIT_NOFILE, files)

        for plan in self._plan["ranks"]:
            try:
                rank = _Rank(plan, self._folder, die_with_shim)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                number = error.errno if isinstance(error, OSError) else None
                exhausted = number in _OUT_OF_RESOURCES_ERRORS
                code = OUT_OF_RESOURCES if exhausted else COULD_NOT_START
                self._end(code, f"rank {plan['rank']} could not start: {_describe(error)}")
                return
            self._running[rank.pid] = rank
            self._selector.register(rank.output, selectors.EVENT_READ, rank.read)

    def _reap(self) -> None:
        """Reap all processes that have ended; a rank that failed ends the others."""
        failed = []
        for pid, code in _reaped():
            rank = self._running.pop(pid, None)
            if rank is not None:
                rank.reaped(code)
                if code != 0:
                    failed.append((code, rank))
        if failed:
            # A killed rank is the cause; the others may only have lost a peer.
            code, rank = min(failed, key=lambda one: one[0] > 0)
            self._end(code if code > 0 else 128 - code, rank.failure(code))

    def _end(self, code: int, reason: str) -> None:
        """Ask all ranks to end; the first outcome counts."""
        if self._outcome is None:
            self._outcome = (code, reason)
            self._kill_at_s = time.monotonic() + float(self._plan["grace_s"])
            for rank in self._running.values():
                rank.signal(signal.SIGTERM)


def _error_line(lines: list[str]) -> str:
    """Return the error at the end of the output: the exception of a traceback, or the last line.

    PyTorch prints where an exception was raised after the exception itself.
    """
    found = ""
    for line in lines:
        text = re.sub(r"^\[rank\d+\]: ?", "", line)
        if text.startswith("Traceback (most recent call last)"):
            found = "Traceback"
        elif found and _EXCEPTION.match(text):
            found = text.strip()
    if found not in ("", "Traceback"):
        return found
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _reaped() -> Iterator[tuple[int, int]]:
    """Yield process id and exit code of each child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            yield pid, os.waitstatus_to_exitcode(status)


def _end_children() -> None:
    """Kill all processes that ranks left behind, including grandchildren."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for path in Path("/proc").glob("[0-9]*/stat"):
                with contextlib.suppress(OSError):
                    if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                        os.kill(int(path.parent.name), signal.SIGKILL)
            os.waitpid(-1, 0)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def run_plan(folder: Path, plan: dict[str, Any]) -> tuple[int, str]:
    """Run the ranks of a plan until none is left or the parent of this process ends."""
    return _outcome(_Shim(folder, plan, leashed=False, parent=os.getppid()))


def _outcome(shim: _Shim) -> tuple[int, str]:
    try:
        return shim.run()
    except Exception as error:  # Report anything rather than nothing.
        return COULD_NOT_START, f"its shim failed: {_describe(error)}"


def main(folder: Path, leashed: bool) -> None:
    """Run the attempt of this folder, unless its plan was withdrawn."""
    if not leashed:
        os.set_inheritable(LOCK, False)
        os.pwrite(LOCK, str(os.getpid()).encode(), 0)
    try:
        os.rename(folder / "plan.json", folder / "running.json")
    except FileNotFoundError:
        return
    shim = _Shim(folder, json.loads((folder / "running.json").read_bytes()), leashed)
    code, reason = _outcome(shim)
    if shim.abandoned:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        write_outcome(folder / "ended.part", code, reason)
        os.rename(folder / "ended.part", folder / "ended.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]), LEASH in sys.argv[2:])
