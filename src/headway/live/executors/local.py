"""Jobs as plain processes of this machine, or of the hosts of a testbed.

Every attempt has a folder and a shim, which see to it; the scheduler only watches. The shim's lock,
not its process number, says whether it lives: no other process can be taken for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.files import make_folder
from headway.live.events import JobSpec, Seat
from headway.live.executors import Attempt, Ended, Node, Watcher, ports, shim
from headway.live.executors.nodes import LocalNode, testbed_nodes, this_machine
from headway.live.executors.on_node import (
    FOLDER_VARIABLE,
    OVERDUE_S,
    PYTHON,
    SHIM_LOST,
    end_remains,
)
from headway.live.executors.ranks import (
    NEVER_STARTED,
    attempt_of,
    forget_oldest,
    log_of,
    name_of,
    ranks_of,
)

__all__ = ["LocalExecutor", "LocalNode", "testbed_nodes", "this_machine"]

_TAKEN_S = 5.0
"""How long a shim may take to begin before it is told not to."""

_POLL_S = 0.01


class _Watched:
    """An attempt that was started, and the descriptor that tells when its shim ends."""

    def __init__(self) -> None:
        self.shim = -1
        self.pid = 0
        self.port = 0
        self.settled = asyncio.Event()
        self.over = asyncio.Event()
        self.kill: asyncio.TimerHandle | None = None


class LocalExecutor:
    """Starts jobs on nodes of this machine; see `headway.live.executors.Executor`."""

    def __init__(
        self, folder: Path, nodes: Sequence[LocalNode], grace_s: float = shim.GRACE_S
    ) -> None:
        self._folder, self._grace_s = folder.absolute(), grace_s
        self._nodes = {node.name: node for node in nodes}
        self._watched: dict[Attempt, _Watched] = {}
        self._over: set[Attempt] = set()
        self._ports = ports.Ports()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watcher: Watcher | None = None

    async def start(self, watcher: Watcher) -> Sequence[Node]:
        """Begin; return the nodes."""
        self._watcher = watcher
        make_folder(self._folder)
        return [node.node() for node in self._nodes.values()]

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        """Take over what runs, tell what has ended, stop what nobody knows."""
        running = [attempt for attempt in known if await self._take_over(attempt)]
        strangers = []
        for name in os.listdir(self._folder):
            attempt = attempt_of(name)
            if attempt is None or attempt in self._watched or attempt in self._over:
                continue
            self._over.add(attempt)  # Nobody wants to hear of it.
            if await self._take_over(attempt):
                strangers.append(self._watched[attempt])
                await self.stop(attempt)
        await asyncio.gather(*(watched.over.wait() for watched in strangers))
        return running

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        seats: Sequence[Seat],
        environment: Mapping[str, str],
    ) -> None:
        """Start an attempt, once; whether its ranks could start is told when they have ended."""
        if attempt in self._watched or attempt in self._over:
            return
        watched = self._watched[attempt] = _Watched()
        tried = self._ports.candidates()
        start = (self._folder / name_of(attempt), attempt, spec, seats, environment, tried)
        try:
            watched.port, watched.pid, watched.shim = await asyncio.to_thread(self._begin, *start)
        except FileExistsError:
            del self._watched[attempt]
            await self._take_over(attempt)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            self._tell(attempt, shim.COULD_NOT_START, f"could not start: {reason}")
        else:
            self._watch(attempt, watched)
        watched.settled.set()

    async def stop(self, attempt: Attempt) -> None:
        """Ask the shim to end an attempt; a shim that does not is killed, and its ranks with it."""
        if attempt in self._watched:
            await self._watched[attempt].settled.wait()
        watched = self._watched.get(attempt)
        if watched is not None and watched.shim >= 0 and watched.kill is None:
            _send(watched, signal.SIGTERM)
            loop, patience_s = asyncio.get_running_loop(), self._grace_s + OVERDUE_S
            watched.kill = loop.call_later(patience_s, _send, watched, signal.SIGKILL)

    def log(self, attempt: Attempt, rank: int) -> Path:
        """Return the file with what a rank printed; what it printed earlier is in `NAME.1`."""
        return log_of(self._folder / name_of(attempt), rank)

    async def close(self) -> None:
        """Let go of everything, and leave what runs running."""
        for watched in self._watched.values():
            _let_go(watched)
        self._watched.clear()
        await asyncio.gather(*self._tasks)

    def _begin(
        self,
        folder: Path,
        attempt: Attempt,
        spec: JobSpec,
        seats: Sequence[Seat],
        environment: Mapping[str, str],
        tried: Sequence[int],
    ) -> tuple[int, int, int]:
        """Make the folder and start the shim; return port, process number and descriptor."""
        missing = [seat.node for seat in seats if seat.node not in self._nodes]
        if missing:
            raise ValueError(f"there is no node {missing[0]}")
        port = _first_free(self._nodes[seats[0].node], tried)
        folder.mkdir(mode=0o700)
        try:
            extra = {**environment, FOLDER_VARIABLE: str(folder)}
            ranks = ranks_of(attempt, spec, seats, self._nodes, extra, port)
            shim.prepare(folder, {"ranks": ranks, "grace_s": self._grace_s, "port": port})
            return port, *_spawn(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    async def _take_over(self, attempt: Attempt) -> bool:
        """Watch an attempt that an earlier scheduler started; False, and told, if it is over."""
        if attempt in self._watched:
            return True
        folder = self._folder / name_of(attempt)
        watched = None if shim.ended(folder) else await asyncio.to_thread(_found, folder)
        if watched is not None:
            self._watched[attempt] = watched
            self._watch(attempt, watched)
            return True
        self._tell(attempt, *await _verdict(folder))
        return False

    def _watch(self, attempt: Attempt, watched: _Watched) -> None:
        self._ports.used.add(watched.port)
        watched.settled.set()
        loop = asyncio.get_running_loop()
        loop.add_reader(watched.shim, self._shim_ended, attempt, watched)

    def _shim_ended(self, attempt: Attempt, watched: _Watched) -> None:
        _let_go(watched)
        with contextlib.suppress(ChildProcessError):  # An earlier scheduler's is not our child.
            os.waitpid(watched.pid, os.WNOHANG)
        task = asyncio.create_task(self._conclude(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _conclude(self, attempt: Attempt) -> None:
        """Tell how an attempt has ended, once nothing of it is left; forget the oldest folders."""
        folder = self._folder / name_of(attempt)
        self._tell(attempt, *await _verdict(folder))
        running = {name_of(one) for one in self._watched}
        await asyncio.to_thread(forget_oldest, self._folder, running)

    def _tell(self, attempt: Attempt, code: int, reason: str) -> None:
        watched = self._watched.pop(attempt, None)
        if watched is not None:
            self._ports.used.discard(watched.port)
            watched.over.set()
        if attempt not in self._over and self._watcher is not None:
            self._over.add(attempt)
            self._watcher.attempt_ended(Ended(attempt, code, reason))


async def _verdict(folder: Path) -> tuple[int, str]:
    """Return how an attempt ended whose shim is gone, and see to it that nothing of it is left."""
    told = shim.ended(folder)
    if told is not None:
        return told
    await asyncio.to_thread(end_remains, folder)
    return SHIM_LOST if (folder / "running.json").exists() else NEVER_STARTED


def _spawn(folder: Path) -> tuple[int, int]:
    """Start the shim of a folder with the folder's lock; return process number and descriptor."""
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
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _found(folder: Path) -> _Watched | None:
    """Return the shim of a folder if it lives; one that has started nothing in time never will."""
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
        watched = _Watched()
        watched.pid = int(os.pread(lock, 32, 0))
        watched.port = int(json.loads((folder / "running.json").read_bytes())["port"])
        with contextlib.suppress(ProcessLookupError):
            watched.shim = os.pidfd_open(watched.pid)
            if _held(lock):  # Still: so it is the shim that was opened.
                return watched
            os.close(watched.shim)
        return None
    finally:
        os.close(lock)


def _held(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def _let_go(watched: _Watched) -> None:
    if watched.shim >= 0:
        asyncio.get_running_loop().remove_reader(watched.shim)
        os.close(watched.shim)
        watched.shim = -1
    if watched.kill is not None:
        watched.kill.cancel()


def _send(watched: _Watched, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(watched.shim, number)


def _first_free(node: LocalNode, tried: Sequence[int]) -> int:
    """Return the first of these ports that is free on a node, which has ports of its own."""
    if not node.prefix:
        return ports.first_free(node.address, tried)
    words = [*node.prefix, *PYTHON, str(ports.__file__), node.address, *map(str, tried)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise OSError(done.stderr.strip().rpartition("\n")[2])
    return int(done.stdout)
