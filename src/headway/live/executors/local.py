"""Jobs as plain processes of this machine, or of the hosts of a testbed.

Every attempt has a folder and a shim, which sees to it; the scheduler only watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.files import make_folder
from headway.live import operator_log
from headway.live.core.events import JobSpec, Slot
from headway.live.executors import Attempt, Node, Watcher, shim
from headway.live.executors.nodes import LocalNode, testbed_nodes, this_machine
from headway.live.executors.on_node import FOLDER_VARIABLE, OVERDUE_S, prepare
from headway.live.executors.ranks import NEVER_STARTED_VERDICT, attempt_of, name_of, ranks_of
from headway.live.executors.shims import Shim, find_shim, first_free, start_shim, verdict
from headway.live.executors.watching import Watched, Watching

__all__ = ["LocalExecutor", "LocalNode", "testbed_nodes", "this_machine"]

LOOK_AGAIN_S = 1.0
_LACKING = (OSError, RuntimeError)
"""What a machine without files, memory or threads raises."""


class _Watched(Watched):
    """An attempt that was started; its shim is there until it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.shim: Shim | None = None
        self.kill: asyncio.TimerHandle | None = None


class LocalExecutor(Watching[_Watched]):
    """Starts jobs on nodes of this machine; see `headway.live.executors.Executor`."""

    def __init__(
        self, folder: Path, nodes: Sequence[LocalNode], grace_s: float = shim.GRACE_S
    ) -> None:
        super().__init__(folder)
        self._grace_s = grace_s
        self._nodes = {node.name: node for node in nodes}
        # As it is before the scheduler allows itself more: jobs have what its user gave it.
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._tasks: set[asyncio.Task[None]] = set()

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
            self._end(attempt)  # Nobody wants to hear of it.
            if await self._take_over(attempt):
                strangers.append(self._watched[attempt])
                await self.stop(attempt)
        await asyncio.gather(*(watched.over.wait() for watched in strangers))
        return running

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> None:
        """Start an attempt, once; whether its ranks could start is told when they have ended."""
        if attempt in self._watched:
            return
        if attempt in self._over:
            self._refuse(attempt)
            return
        watched = self._watched[attempt] = _Watched()
        tried = self._ports.candidates()
        start = (self._folder / name_of(attempt), attempt, spec, slots, environment, tried)
        try:
            begun = await asyncio.to_thread(self._begin, *start)
        except FileExistsError:
            del self._watched[attempt]
            self._refuse(attempt)
        except Exception as error:  # Nothing that comes before the ranks is the job's own.
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            self._tell(attempt, NEVER_STARTED_VERDICT[0], f"could not start: {reason}")
        else:
            self._watch(attempt, watched, begun)
        watched.settled.set()

    async def stop(self, attempt: Attempt) -> None:
        """Ask the shim to end an attempt; a shim that does not is killed, and its ranks with it."""
        if attempt not in self._watched and attempt not in self._over:
            await self._take_over(attempt)
        watched = await self._settled(attempt)
        if watched is not None and watched.shim is not None and watched.kill is None:
            _send(watched, signal.SIGTERM)
            loop, patience_s = asyncio.get_running_loop(), self._grace_s + OVERDUE_S
            watched.kill = loop.call_later(patience_s, _send, watched, signal.SIGKILL)

    async def close(self) -> None:
        """Let go of everything, and leave what runs running."""
        for watched in self._watched.values():
            _let_go(watched)
        self._watched.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=OVERDUE_S)
        for task in list(self._tasks):
            task.cancel()  # The next scheduler looks again.

    def _begin(
        self,
        folder: Path,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
        tried: Sequence[int],
    ) -> Shim:
        """Make the folder and start the shim."""
        missing = [slot.node for slot in slots if slot.node not in self._nodes]
        if missing:
            raise ValueError(f"there is no node {missing[0]}")
        port = first_free(self._nodes[slots[0].node], tried)
        folder.mkdir(mode=0o700)
        try:
            extra = {**environment, FOLDER_VARIABLE: str(folder)}
            ranks = ranks_of(attempt, spec, slots, self._nodes, extra, port)
            plan = {"ranks": ranks, "grace_s": self._grace_s, "port": port, "files": self._files}
            prepare(folder, plan)
            return start_shim(folder, port)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    async def _take_over(self, attempt: Attempt) -> bool:
        """Watch an attempt that an earlier scheduler started; False, and told, if it is over."""
        if attempt in self._watched:
            return True
        folder = self._folder / name_of(attempt)
        found = await asyncio.to_thread(find_shim, folder)
        if found is None:
            self._tell(attempt, *await asyncio.to_thread(verdict, folder))
            return False
        watched = self._watched[attempt] = _Watched()
        self._watch(attempt, watched, found)
        return True

    def _watch(self, attempt: Attempt, watched: _Watched, found: Shim) -> None:
        watched.shim, watched.port = found, found.port
        watched.settled.set()
        self._ports.used.add(found.port)
        loop = asyncio.get_running_loop()
        loop.add_reader(found.descriptor, self._shim_ended, attempt, watched, found)

    def _shim_ended(self, attempt: Attempt, watched: _Watched, found: Shim) -> None:
        _let_go(watched)
        with contextlib.suppress(ChildProcessError):  # An earlier scheduler's is not our child.
            os.waitpid(found.pid, os.WNOHANG)
        task = asyncio.create_task(self._conclude(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _conclude(self, attempt: Attempt) -> None:
        """Tell how an attempt has ended, once nothing of it is left; forget the oldest folders."""
        folder = self._folder / name_of(attempt)
        while True:
            try:
                self._tell(attempt, *await asyncio.to_thread(verdict, folder))
                break
            except _LACKING as error:
                # Its slots stay taken: without files or threads to look with, it may still run.
                operator_log.failure("an attempt's end cannot be seen", error, attempt=folder.name)
            await asyncio.sleep(LOOK_AGAIN_S)
        try:
            await self._forget_oldest()
        except _LACKING as error:
            operator_log.failure("old attempts cannot be removed", error)


def _let_go(watched: _Watched) -> None:
    if watched.shim is not None:
        asyncio.get_running_loop().remove_reader(watched.shim.descriptor)
        os.close(watched.shim.descriptor)
        watched.shim = None
    if watched.kill is not None:
        watched.kill.cancel()


def _send(watched: _Watched, number: int) -> None:
    if watched.shim is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(watched.shim.descriptor, number)
