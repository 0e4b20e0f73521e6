"""The local executor: each attempt has a folder and a shim, and the scheduler watches the shim."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from headway.files import make_folder
from headway.live import operator_log
from headway.live.core.events import NEVER_STARTED, JobSpec, Slot
from headway.live.executors import (
    Attempt,
    ExecutorHandler,
    ExecutorNode,
    LaunchedAttempt,
    shim,
)
from headway.live.executors.attempt_folders import attempt_of, launched_with
from headway.live.executors.attempt_tracker import AttemptTracker, TrackedAttempt
from headway.live.executors.local.shim_process import (
    ShimProcess,
    final_outcome,
    find_shim,
    first_free_port,
    start_shim,
)
from headway.live.executors.node_tools import (
    FOLDER_LOST,
    FOLDER_VARIABLE,
    OVERDUE_S,
    adopt_orphans,
    write_plan,
)
from headway.live.executors.rank_plans import LaunchNode, rank_plans

RETRY_S = 1.0


class _LocalAttempt(TrackedAttempt):
    """An attempt and its shim, once that has started and until it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.shim: ShimProcess | None = None
        self.kill: asyncio.TimerHandle | None = None

    def signal(self, number: int) -> None:
        """Send a signal to the shim, if it lives."""
        if self.shim is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.shim.pidfd, number)

    def release(self) -> None:
        """Stop watching the shim."""
        if self.shim is not None:
            asyncio.get_running_loop().remove_reader(self.shim.pidfd)
            os.close(self.shim.pidfd)
            self.shim = None
        if self.kill is not None:
            self.kill.cancel()


class LocalExecutor:
    """Starts jobs on nodes of this machine; see `headway.live.executors.Executor`."""

    def __init__(
        self, folder: Path, nodes: Sequence[LaunchNode], grace_s: float = shim.GRACE_S
    ) -> None:
        self._attempts: AttemptTracker[_LocalAttempt] = AttemptTracker(folder)
        self._grace_s = grace_s
        self._nodes = {node.name: node for node in nodes}
        # Read before the scheduler raises its own limit: jobs get what its user gave it.
        self._file_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, handler: ExecutorHandler) -> Sequence[ExecutorNode]:
        """Start, and return the nodes."""
        self._attempts.handler = handler
        make_folder(self._attempts.folder)
        adopt_orphans()
        return [node.executor_node() for node in self._nodes.values()]

    async def find_unknown(self, known: Collection[Attempt]) -> Sequence[LaunchedAttempt]:
        """Return the attempts of an earlier scheduler that are running and not known."""
        return await asyncio.to_thread(self._find_unknown, known)

    def _find_unknown(self, known: Collection[Attempt]) -> list[LaunchedAttempt]:
        found = []
        for name in sorted(os.listdir(self._attempts.folder)):
            attempt = attempt_of(name)
            if attempt is None or attempt in known:
                continue
            folder = self._attempts.folder_of(attempt)
            if (process := find_shim(folder)) is not None:
                os.close(process.pidfd)
                found.append(LaunchedAttempt(attempt, *launched_with(folder)))
        return found

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        """Take over running attempts, report ended ones, stop unknown ones."""
        running = [attempt for attempt in known if await self._take_over(attempt)]
        unknown = []
        for name in os.listdir(self._attempts.folder):
            attempt = attempt_of(name)
            if attempt is None or self._is_tracked(attempt):
                continue
            self._attempts.ignore_end(attempt)
            if await self._take_over(attempt):
                unknown.append(self._attempts.running[attempt])
                await self.stop(attempt)
        await asyncio.gather(*(tracked.ended.wait() for tracked in unknown))
        return running

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> None:
        """Start an attempt once; a rank that cannot start is reported as the attempt's end."""
        attempts = self._attempts
        if attempt in attempts.running or attempts.refuse_if_ended(attempt):
            return
        tracked = attempts.running[attempt] = _LocalAttempt()
        candidates = attempts.ports.candidates()
        try:
            process = await asyncio.to_thread(
                self._start, attempt, spec, slots, environment, candidates
            )
        except FileExistsError:
            del attempts.running[attempt]
            attempts.refuse(attempt)
        except Exception as error:  # No failure before the first rank is the job's fault.
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            attempts.end(attempt, (NEVER_STARTED, f"could not start: {reason}"))
        else:
            self._watch(attempt, tracked, process)
        tracked.started.set()

    async def stop(self, attempt: Attempt) -> None:
        """Ask the shim to end an attempt; a shim that does not is killed, and its ranks with it."""
        if not self._is_tracked(attempt) and not await self._take_over(attempt):
            self._attempts.end(attempt, FOLDER_LOST)  # Unless it has reported another end.
        tracked = await self._attempts.started(attempt)
        if tracked is not None and tracked.shim is not None and tracked.kill is None:
            tracked.signal(signal.SIGTERM)
            loop, timeout_s = asyncio.get_running_loop(), self._grace_s + OVERDUE_S
            tracked.kill = loop.call_later(timeout_s, tracked.signal, signal.SIGKILL)

    def log(self, attempt: Attempt, rank: int) -> Path:
        """Return the path of a rank's output; older output is in `NAME.1`."""
        return self._attempts.log(attempt, rank)

    async def close(self) -> None:
        """Release all resources; the processes keep running."""
        for tracked in self._attempts.running.values():
            tracked.release()
        self._attempts.running.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=OVERDUE_S)
        for task in list(self._tasks):
            task.cancel()  # The next scheduler reads the outcome.

    def _is_tracked(self, attempt: Attempt) -> bool:
        return attempt in self._attempts.running or self._attempts.has_ended(attempt)

    def _start(
        self,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
        candidates: Sequence[int],
    ) -> ShimProcess:
        """Create the folder and start the shim; may block."""
        missing = [slot.node for slot in slots if slot.node not in self._nodes]
        if missing:
            raise ValueError(f"there is no node {missing[0]}")
        port = first_free_port(self._nodes[slots[0].node], candidates)
        folder = self._attempts.folder_of(attempt)
        folder.mkdir(mode=0o700)
        try:
            variables = {**environment, FOLDER_VARIABLE: str(folder)}
            plan = {
                "ranks": rank_plans(attempt, spec, slots, self._nodes, variables, port),
                "grace_s": self._grace_s,
                "port": port,
                "files": self._file_limit,
                "spec": msgspec.to_builtins(spec),
                "slots": msgspec.to_builtins(slots),
            }
            write_plan(folder, plan)
            return start_shim(folder, port)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    async def _take_over(self, attempt: Attempt) -> bool:
        """Watch an attempt of an earlier scheduler; if it has ended, report how: False.

        Nothing is reported of an attempt without files: only the scheduler's records can tell
        whether it has run.
        """
        if attempt in self._attempts.running:
            return True
        folder = self._attempts.folder_of(attempt)
        found = await asyncio.to_thread(find_shim, folder)
        if found is None:
            outcome = await asyncio.to_thread(final_outcome, folder)
            if outcome is not None:
                self._attempts.end(attempt, outcome)
            return False
        tracked = self._attempts.running[attempt] = _LocalAttempt()
        self._watch(attempt, tracked, found)
        return True

    def _watch(self, attempt: Attempt, tracked: _LocalAttempt, process: ShimProcess) -> None:
        tracked.shim = process
        tracked.started.set()
        self._attempts.use_port(tracked, process.port)
        loop = asyncio.get_running_loop()
        loop.add_reader(process.pidfd, self._shim_ended, attempt, tracked, process)

    def _shim_ended(self, attempt: Attempt, tracked: _LocalAttempt, process: ShimProcess) -> None:
        # First the task: without memory for it, this is called again.
        task = asyncio.create_task(self._finish(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        tracked.release()
        with contextlib.suppress(ChildProcessError):  # An earlier scheduler's is not our child.
            os.waitpid(process.pid, os.WNOHANG)

    async def _finish(self, attempt: Attempt) -> None:
        """Report the end of an attempt once all its processes are gone; remove old folders."""
        folder = self._attempts.folder_of(attempt)
        while True:
            try:
                outcome = await asyncio.to_thread(final_outcome, folder)
                self._attempts.end(attempt, FOLDER_LOST if outcome is None else outcome)
                break
            except Exception as error:  # OSError, MemoryError, a thread that cannot start, ...
                # Its slots stay taken: while the outcome cannot be read, it may still run.
                operator_log.failure(
                    "cannot determine how an attempt ended", error, attempt=folder.name
                )
            await asyncio.sleep(RETRY_S)
        try:
            await self._attempts.remove_oldest_folders()
        except Exception as error:
            operator_log.failure("cannot remove the folders of old attempts", error)
