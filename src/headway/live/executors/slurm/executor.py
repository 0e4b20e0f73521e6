"""The Slurm executor: each attempt is a step of an allocation, or a batch job of its own.

Slurm runs a task on each node of an attempt, and the task runs the ranks there. An attempt on nodes
of several allocations is a step in each. Steps outlive the scheduler; the next one finds them by
name. Outcomes and output are files in the attempt's folder, which all nodes see.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headway.domain.errors import HeadwayError
from headway.files import make_folder
from headway.gate.environment import GATE_CERTIFICATE
from headway.live import operator_log
from headway.live.core.events import NEVER_STARTED, JobSpec, Slot
from headway.live.executors import (
    Attempt,
    ExecutorHandler,
    ExecutorNode,
    LaunchedAttempt,
    shim,
)
from headway.live.executors.attempt_folders import (
    RUNNING,
    Launched,
    attempt_of,
    folder_name,
    launched_with,
)
from headway.live.executors.attempt_tracker import AttemptTracker
from headway.live.executors.node_tools import FOLDER_VARIABLE, OVERDUE_S
from headway.live.executors.rank_plans import rank_plans
from headway.live.executors.remote_files import certificates, identity
from headway.live.executors.slurm import attempt_files
from headway.live.executors.slurm.attempt import GONE_AFTER_S, SlurmAttempt, is_running
from headway.live.executors.slurm.cluster import SlurmCluster, SlurmSettings
from headway.slurm import programs
from headway.slurm.programs import SlurmError, SlurmRefusedError, Unit

_TICK_S = 0.5
"""How often files and processes of running attempts are looked at."""


class SlurmExecutor:
    """Starts jobs on the nodes of a Slurm cluster; see `headway.live.executors.Executor`."""

    def __init__(
        self, settings: SlurmSettings, folder: Path, grace_s: float = shim.GRACE_S
    ) -> None:
        self._attempts: AttemptTracker[SlurmAttempt] = AttemptTracker(folder)
        self._settings, self._grace_s = settings, grace_s
        self._cluster: SlurmCluster
        self._polling: asyncio.Task[None] | None = None
        self._poll_lock = asyncio.Lock()
        self._next_look_s = 0.0
        self._sruns: set[int] = set()  # of attempts that have ended
        self._recovered = False

    async def start(self, handler: ExecutorHandler) -> Sequence[ExecutorNode]:
        """Find or ask for the allocation, and return its nodes."""
        make_folder(self._attempts.folder)
        self._attempts.handler = handler
        own = identity(self._attempts.folder / "identity")
        self._cluster = SlurmCluster(self._settings, own, self._attempts.folder / "allocation")
        await asyncio.to_thread(self._cluster.connect)
        for _ in range(2):  # One answer of Slurm may be empty or cut short.
            await asyncio.to_thread(self._cluster.find_nodes)
        for name in self._cluster.draining:
            handler.node_drained(name, True)
        self._polling = asyncio.create_task(self._poll_forever())
        return [node.executor_node() for node in self._cluster.nodes.values()]

    async def find_unknown(self, known: Collection[Attempt]) -> Sequence[LaunchedAttempt]:
        """Return the attempts of an earlier scheduler that are running and not known."""
        units = await asyncio.to_thread(self._running_units)
        attempts = [attempt_of(name) for name in units]
        return [
            LaunchedAttempt(one, *launched_with(self._attempts.folder_of(one)))
            for one in attempts
            if one is not None and one not in known
        ]

    def _running_units(self) -> dict[str, Unit]:
        """Return the attempts that Slurm runs, but for those that have ended on all their nodes.

        Slurm does not notice the end of a step whose own process was killed.
        """
        # One answer of Slurm may be empty or cut short.
        found = self._cluster.units() | self._cluster.units()
        return {
            name: unit
            for name, unit in found.items()
            if not _has_ended(self._attempts.folder / name)
        }

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        """Take over running attempts, report ended ones, stop unknown ones."""
        units = await asyncio.to_thread(self._running_units)
        found = [attempt_of(name) for name in units]
        unknown = [one for one in found if one is not None and one not in known]
        async with self._poll_lock:  # No attempt ends before all of them are tracked.
            for attempt in (*known, *unknown):
                if attempt not in self._attempts.running:
                    await asyncio.to_thread(self._take_over, attempt, folder_name(attempt) in units)
            for attempt in unknown:
                self._attempts.ignore_end(attempt)
            stopping = [self._attempts.running[attempt] for attempt in unknown]
        for attempt in unknown:
            await self.stop(attempt)
        self._recovered = True
        await self._poll(look=True)
        await asyncio.gather(*(tracked.ended.wait() for tracked in stopping))
        return [attempt for attempt in known if attempt in self._attempts.running]

    def _take_over(self, attempt: Attempt, runs: bool) -> None:
        """Track an attempt of an earlier scheduler, unless it was never launched."""
        folder = self._attempts.folder_of(attempt)
        _, slots = launched_with(folder)
        names = [slot.node for slot in slots] or [""] * runs
        if names:
            tracked = self._attempts.running[attempt] = SlurmAttempt(folder, names)
            for node in names:
                now = self._cluster.allocations.get(node, "")
                tracked.allocations[node] = attempt_files.allocation_on(folder, node) or now
            tracked.launched = True
            tracked.started.set()

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> None:
        """Start an attempt once; returns when Slurm has been asked to."""
        attempts = self._attempts
        if attempt in attempts.running or attempts.refuse_if_ended(attempt):
            return
        folder = attempts.folder_of(attempt)
        names = list(dict.fromkeys(slot.node for slot in slots))
        tracked = attempts.running[attempt] = SlurmAttempt(folder, names)
        tracked.allocations = {name: self._cluster.allocations.get(name, "") for name in names}
        try:
            missing = [name for name in names if name not in self._cluster.nodes]
            if missing:
                raise ValueError(f"there is no node {missing[0]}")
            plans = self._plans(tracked, attempt, spec, slots, environment)
            await asyncio.to_thread(self._start, tracked, plans, spec, slots, environment)
        except FileExistsError:
            del attempts.running[attempt]
            attempts.refuse(attempt)
        except SlurmRefusedError as error:
            attempts.end(attempt, (shim.COULD_NOT_START, f"could not start: {error}"))
        except Exception as error:  # No other failure before the first rank is the job's fault.
            attempts.end(attempt, (NEVER_STARTED, f"could not start: {_problem(error)}"))
        tracked.launched = True
        tracked.started.set()
        if self._settings.batch:
            # It may be in Slurm's queue, which users want to know soon.
            soon_s = asyncio.get_running_loop().time() + _TICK_S
            self._next_look_s = min(self._next_look_s, soon_s)

    async def stop(self, attempt: Attempt) -> None:
        """Send SIGTERM through Slurm; SIGKILL follows if that takes too long."""
        tracked = await self._attempts.started(attempt)
        if tracked is None or tracked.stopping:
            return
        await asyncio.to_thread(self._stop, attempt, tracked)
        tracked.stopping = True
        tracked.kill_at_s = asyncio.get_running_loop().time() + self._grace_s + OVERDUE_S

    def log(self, attempt: Attempt, rank: int) -> Path:
        """Return the path of a rank's output; older output is in `NAME.1`."""
        return self._attempts.log(attempt, rank)

    async def close(self) -> None:
        """Release all resources; the processes keep running, and with them the allocation.

        Without any, an allocation that was asked for is given back.
        """
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])
        if self._recovered and not self._attempts.running:
            with contextlib.suppress(HeadwayError):
                await asyncio.to_thread(self._cluster.release)

    def _plans(
        self,
        tracked: SlurmAttempt,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> dict[str, dict[str, Any]]:
        """Return what to start on each node; ports and GPUs are chosen there."""
        folder, nodes = tracked.folder, self._cluster.nodes
        variables = {**environment, FOLDER_VARIABLE: str(folder)}
        if GATE_CERTIFICATE in variables:
            variables[GATE_CERTIFICATE] = str(folder / "gate.pem")
        ranks = rank_plans(attempt, spec, slots, nodes, variables, 0)
        plans: dict[str, dict[str, Any]] = {}
        for slot, rank in zip(slots, ranks, strict=True):
            node = nodes[slot.node]
            ports = [] if plans else self._attempts.ports.candidates()
            plan = plans.setdefault(
                slot.node,
                {
                    "ranks": [],
                    "grace_s": self._grace_s,
                    "address": node.address,
                    "ports": ports,
                    "devices": [],
                    "allocation": tracked.allocations[slot.node],
                },
            )
            plan["ranks"].append(rank)
            if node.cuda:
                plan["devices"].append(slot.index)
        if self._settings.batch:  # Such a job has no GPUs but its own.
            for plan in plans.values():
                plan["devices"] = list(range(len(plan["devices"])))
        return plans

    def _start(
        self,
        tracked: SlurmAttempt,
        plans: dict[str, dict[str, Any]],
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> None:
        """Create the folder and ask Slurm to start the attempt; may block."""
        folder = tracked.folder
        folder.mkdir(mode=0o700)
        try:
            if GATE_CERTIFICATE in environment:
                (folder / "gate.pem").write_text(certificates(environment[GATE_CERTIFICATE]))
            attempt_files.write_plans(folder, plans)
            # Last: an attempt without this file was never launched.
            (folder / RUNNING).write_bytes(msgspec.json.encode(Launched(spec, tuple(slots))))
            if self._settings.batch:
                self._submit(tracked, self._cluster.batch_words(folder, plans, spec))
            else:
                steps = self._cluster.step_words(folder, tracked.allocations, spec)
                for allocation, words in steps.items():
                    tracked.sruns[allocation] = programs.spawn(words, folder / "srun.log")
        except BaseException:
            tracked.end_sruns()
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _submit(self, tracked: SlurmAttempt, words: list[str]) -> None:
        """Submit a batch job; if that fails although Slurm has started it, it is running."""
        try:
            programs.submit(words)
        except SlurmError:
            tracked.withdraw()
            if tracked.running_nodes():
                return
            with contextlib.suppress(HeadwayError):
                self._cluster.cancel_by_name(tracked.folder.name)
            raise

    def _stop(self, attempt: Attempt, tracked: SlurmAttempt) -> None:
        tracked.withdraw()
        self._end(tracked, self._cluster.units().get(folder_name(attempt)))

    def _end(self, tracked: SlurmAttempt, unit: Unit | None) -> None:
        """Ask what Slurm runs of an attempt to end, and what waits for Slurm to give up."""
        if unit is not None:
            self._cluster.stop(unit)
        tracked.end_sruns(() if unit is None else unit.allocations)

    async def _poll_forever(self) -> None:
        failing = False
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                await self._poll()
                failing = False
            except Exception as error:  # The next poll may succeed.
                if not failing:
                    operator_log.warning("polling Slurm failed; trying again", problem=str(error))
                failing = True

    async def _poll(self, look: bool = False) -> None:
        """Look after all attempts, and every `poll_s` at Slurm itself."""
        async with self._poll_lock:
            now_s = asyncio.get_running_loop().time()
            running = {key: one for key, one in self._attempts.running.items() if one.launched}
            before = len(self._attempts.running)
            look = look or now_s >= self._next_look_s
            doubtful = await asyncio.to_thread(self._look_at_files, running, now_s, look)
            self._report_starts(running, look)
            # Slurm stops ranks when their allocation ends, which is the reason then. All other ends
            # are reported even while Slurm does not answer.
            stopped = {key for key, one in running.items() if one.ended_by_slurm()}
            self._report_ends({key: one for key, one in running.items() if key not in stopped})
            if look or stopped:
                look, doubtful = True, running
            try:
                if doubtful:
                    await self._look_at_units(doubtful, now_s)
                    self._report_ends(running)
                elif look:
                    await self._update_nodes()
            finally:
                if look:
                    # It may take long to find out that Slurm does not answer.
                    now_s = asyncio.get_running_loop().time()
                    self._next_look_s = now_s + self._settings.poll_s
            if len(self._attempts.running) < before:
                await self._attempts.remove_oldest_folders()

    def _look_at_files(
        self, running: Mapping[Attempt, SlurmAttempt], now_s: float, look: bool
    ) -> dict[Attempt, SlurmAttempt]:
        """Read outcomes; return the attempts about which Slurm must be asked.

        While an `srun` of this scheduler runs, there is nothing to read, unless it has not noticed
        an end: it is not trusted with `look`.
        """
        self._sruns = {pid for pid in self._sruns if is_running(pid)}
        doubtful = {}
        for attempt, tracked in running.items():
            before = len(tracked.sruns)
            tracked.reap()
            unclear = look or tracked.stopping or tracked.failed()
            if tracked.waits_for or look:
                tracked.has_started = tracked.has_started or tracked.is_claimed()
            if before > 0 and len(tracked.sruns) == before and not unclear:
                continue
            tracked.read_outcomes()
            due_s = min(tracked.kill_at_s, tracked.missing_since_s + GONE_AFTER_S)
            if before > 0 or tracked.failed() or now_s >= due_s:
                doubtful[attempt] = tracked
        return {key: one for key, one in doubtful.items() if one.running_nodes()}

    def _report_ends(self, running: Mapping[Attempt, SlurmAttempt]) -> None:
        """Report the attempts that have ended on all their nodes."""
        for attempt, tracked in running.items():
            if not tracked.running_nodes() and attempt in self._attempts.running:
                sruns = list(tracked.sruns.values())
                self._sruns.update(sruns)
                code, reason = tracked.outcome()
                self._attempts.end(attempt, (code, reason))
                if code != 0:
                    self._clean_up(attempt, sruns)

    def _clean_up(self, attempt: Attempt, sruns: Iterable[int]) -> None:
        """End what Slurm still has of an attempt that has failed, and each `srun`."""

        def cancel() -> None:
            with contextlib.suppress(HeadwayError):
                self._cluster.cancel_by_name(folder_name(attempt))
            for srun in sruns:
                if is_running(srun):
                    os.kill(srun, signal.SIGTERM)

        asyncio.get_running_loop().run_in_executor(None, cancel)

    async def _look_at_units(self, doubtful: Mapping[Attempt, SlurmAttempt], now_s: float) -> None:
        """Settle attempts that Slurm runs no more; end those that failed or do not end.

        Nodes come after the steps: a step that is gone may have lost its node, or its allocation.
        """
        waiting = {one: set(tracked.sruns) for one, tracked in doubtful.items()}
        units = await asyncio.to_thread(self._cluster.units)
        await self._update_nodes()
        await asyncio.to_thread(self._settle, doubtful, waiting, units, now_s)
        self._report_queued(doubtful, units)

    def _settle(
        self,
        doubtful: Mapping[Attempt, SlurmAttempt],
        waiting: Mapping[Attempt, Collection[str]],
        units: Mapping[str, Unit],
        now_s: float,
    ) -> None:
        """Settle attempts; `waiting` are allocations whose `srun` ran when Slurm was asked."""
        cluster = self._cluster
        for attempt, tracked in doubtful.items():
            if cluster.is_closed(tracked.allocations.values()):
                tracked.blame_allocation()
            unit = units.get(folder_name(attempt))
            # While an allocation is ending, its steps may have processes and not be listed.
            gone = [
                node
                for node, allocation in tracked.allocations.items()
                if not cluster.runs(unit, allocation)
                and not cluster.is_closed([allocation])
                and allocation not in waiting[attempt]
                and tracked.outcomes[node] is None
            ]
            if gone:
                tracked.settle(gone, now_s)
            else:
                tracked.missing_since_s = float("inf")
            if unit is not None and now_s >= tracked.kill_at_s:
                cluster.kill(unit)
            elif tracked.running_nodes() and tracked.failed() and tracked.kill_at_s == float("inf"):
                self._end(tracked, unit)
                tracked.kill_at_s = now_s + self._grace_s + OVERDUE_S

    def _report_queued(
        self, running: Mapping[Attempt, SlurmAttempt], units: Mapping[str, Unit]
    ) -> None:
        """Report why attempts wait in Slurm's queue, and that they do so no more."""
        for attempt, tracked in running.items():
            unit = units.get(folder_name(attempt))
            if attempt in self._attempts.running and unit is not None and self._settings.batch:
                reason = unit.waits_for
                why = f"waiting in Slurm's queue ({reason})" if reason else ""
                self._report_waiting(attempt, tracked, why)

    def _report_starts(self, running: Mapping[Attempt, SlurmAttempt], look: bool) -> None:
        """Report that attempts have started, or that their `srun` has not been able to."""
        for attempt, tracked in running.items():
            if tracked.has_started:
                self._report_waiting(attempt, tracked, "")
            elif look and (tracked.sruns or tracked.ended_sruns):
                self._report_waiting(attempt, tracked, "waiting for Slurm to start it")

    def _report_waiting(self, attempt: Attempt, tracked: SlurmAttempt, why: str) -> None:
        if why != tracked.waits_for:
            tracked.waits_for = why
            self._attempts.handler.attempt_waits(attempt, why)

    async def _update_nodes(self) -> None:
        """Report nodes that were lost, joined, or are drained by an administrator."""
        cluster = self._cluster
        before, drained, where = cluster.nodes, cluster.draining, cluster.allocations
        await asyncio.to_thread(cluster.find_nodes)
        nodes, draining = cluster.nodes, cluster.draining
        moved = {name for name in before if where[name] != cluster.allocations.get(name)}
        lost = sorted(moved | (before.keys() - nodes.keys()))
        handler = self._attempts.handler
        running = {key: one for key, one in self._attempts.running.items() if one.launched}
        if cluster.ended:
            cluster.ended = False
            # The ends come first, because the allocation's is the reason, not the loss of nodes.
            # No job may start on these meanwhile.
            for name in sorted(set(lost) - drained):
                handler.node_drained(name, True)
            drained |= frozenset(lost)
            await asyncio.to_thread(_lose_allocations, running.values(), cluster)
            self._report_ends(running)
        await asyncio.to_thread(_lose_nodes, running.values(), lost, cluster)
        for name in lost:
            handler.node_lost(name)
        for name in sorted(draining ^ drained):
            handler.node_drained(name, name in draining)
        for name, node in nodes.items():
            if before.get(name) != node or name in moved:
                handler.node_up(node.executor_node())


def _lose_allocations(attempts: Iterable[SlurmAttempt], cluster: SlurmCluster) -> None:
    for tracked in attempts:
        tracked.lose_allocations(cluster.is_over)


def _lose_nodes(
    attempts: Iterable[SlurmAttempt], names: Iterable[str], cluster: SlurmCluster
) -> None:
    """Give up ranks on nodes that are gone, or are in another allocation now."""
    for name in names:
        now = cluster.allocations.get(name) if name in cluster.nodes else None
        for tracked in attempts:
            if tracked.allocations.get(name) != now:
                tracked.lose(name)


def _problem(error: Exception) -> str:
    """Return what went wrong, without the number and the path of an error of the system."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _has_ended(folder: Path) -> bool:
    _, slots = launched_with(folder)
    nodes = {slot.node for slot in slots}
    return bool(nodes) and all(attempt_files.outcome_on(folder, node) for node in nodes)
