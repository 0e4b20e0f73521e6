"""The Ray executor: on each node of an attempt a detached actor runs a shim and its ranks.

The actors outlive the scheduler, and the next one finds them by name. They request no CPUs or GPUs
from Ray: the scheduler allocates the slots. Headway need not be installed on the nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from headway.domain.errors import InputError
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
from headway.live.executors.attempt_tracker import NEVER_STARTED_OUTCOME, AttemptTracker
from headway.live.executors.node_tools import OVERDUE_S
from headway.live.executors.rank_plans import rank_plans
from headway.live.executors.ray.attempt import LOST, RayAttempt
from headway.live.executors.ray.cluster import ANSWER_TIMEOUT_S, RayCluster, RayNode
from headway.live.executors.ray.state_files import NodeNames, can_reach
from headway.live.executors.remote_files import certificates, identity

_POLL_INTERVAL_S = 0.5
_RECOVERY_POLL_S = 0.05
_RECOVERY_TIMEOUT_S = 60.0
"""How long agents may take to send their first report to a new scheduler."""

_THREADS = 64
"""Each launch occupies one while it lasts, for 60 s at most."""

CONTROL_LOST_S = 30.0
"""How long the cluster's control service may be unreachable; after 60 s Ray ends the process."""
_CONTROL_POLL_S = 1.0
_CONNECT_TIMEOUT_S = 5.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


class RayExecutor:
    """Starts jobs on the nodes of a Ray cluster; see `headway.live.executors.Executor`.

    With `gate_host`, nodes that cannot reach a gate on that host are rejected.
    """

    def __init__(
        self,
        address: str,
        folder: Path,
        grace_s: float = shim.GRACE_S,
        gate_host: str | None = None,
    ) -> None:
        self._attempts: AttemptTracker[RayAttempt] = AttemptTracker(folder)
        self._grace_s, self._gate_host = grace_s, gate_host
        self._free_threads = asyncio.Semaphore(_THREADS)
        self._threads: set[threading.Thread] = set()
        self._control_missing = False
        self._nodes: dict[str, RayNode] = {}
        self._cluster = RayCluster(address)
        self._names = NodeNames(self._attempts.folder / "nodes.json")
        self._unreachable: set[str] = set()
        self._background: list[asyncio.Task[None]] = []
        self._poll_lock = asyncio.Lock()

    async def start(self, handler: ExecutorHandler) -> Sequence[ExecutorNode]:
        """Connect to the cluster, and return its nodes."""
        make_folder(self._attempts.folder)
        self._attempts.handler = handler
        own_identity = identity(self._attempts.folder / "identity")
        await self._in_thread(self._cluster.connect, own_identity, self._names.read())
        _restore_sigterm()
        self._nodes, self._unreachable = await self._in_thread(self._find_nodes, ANSWER_TIMEOUT_S)
        if self._unreachable:
            raise InputError(
                f"node {min(self._unreachable)} cannot reach the gate on {self._gate_host}; give an"
                " address of this machine that all nodes can reach.",
                field="gate_host",
            )
        self._background = [
            asyncio.create_task(self._poll_forever()),
            asyncio.create_task(self._watch_control(self._cluster.control_address)),
        ]
        return [found.node.executor_node() for found in self._nodes.values()]

    async def find_unknown(self, known: Collection[Attempt]) -> Sequence[LaunchedAttempt]:
        """Return the attempts of an earlier scheduler that are running and not known."""
        names = await self._in_thread(self._cluster.find_groups)
        attempts = [attempt_of(name) for name in names]
        return [
            LaunchedAttempt(one, *launched_with(self._attempts.folder_of(one)))
            for one in attempts
            if one is not None and one not in known
        ]

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        """Take over running attempts, report ended ones, stop unknown ones."""
        found = await self._in_thread(self._cluster.find_groups)
        recovered: dict[Attempt, RayAttempt] = {}
        for name, groups in found.items():
            attempt = attempt_of(name)
            if attempt is None or attempt in self._attempts.running:
                continue
            tracked = self._attempts.running[attempt] = recovered[attempt] = RayAttempt()
            tracked.groups = [group for group in groups if group is not None]
            tracked.incomplete = len(tracked.groups) < len(groups)
            tracked.started.set()
            if attempt not in known:
                self._attempts.ignore_end(attempt)
                await self.stop(attempt)
        for attempt in known:
            missing = attempt not in self._attempts.running
            if missing and self._attempts.folder_of(attempt).exists():
                lost = (LOST, "none of its processes is left on the cluster")
                self._attempts.end(attempt, lost)
        await self._wait_for_reports(recovered)
        return [attempt for attempt in known if attempt in self._attempts.running]

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> None:
        """Start an attempt once; returns when its ranks have been started."""
        attempts = self._attempts
        if attempt in attempts.running or attempts.refuse_if_ended(attempt):
            return
        tracked = attempts.running[attempt] = RayAttempt()
        names = list(dict.fromkeys(slot.node for slot in slots))
        variables = {**environment}
        path = variables.pop(GATE_CERTIFICATE, None)

        def plans_at(port: int) -> list[list[dict[str, Any]]]:
            nodes = {name: found.node for name, found in self._nodes.items()}
            plans = rank_plans(attempt, spec, slots, nodes, variables, port)
            return [
                [plan for plan, slot in zip(plans, slots, strict=True) if slot.node == name]
                for name in names
            ]

        try:
            missing = [name for name in names if name not in self._nodes]
            if missing:
                raise ValueError(f"there is no node {missing[0]}")
            tracked.groups, port = await self._in_thread(
                self._cluster.launch,
                folder_name(attempt),
                [self._nodes[name] for name in names],
                plans_at,
                attempts.ports.candidates(),
                self._grace_s,
                "" if path is None else await self._in_thread(certificates, path),
            )
            attempts.use_port(tracked, port)
            with contextlib.suppress(OSError):
                folder = attempts.folder_of(attempt)
                folder.mkdir(mode=0o700)
                # If the database is lost: agents know neither the job nor its slots.
                (folder / RUNNING).write_bytes(msgspec.json.encode(Launched(spec, tuple(slots))))
        except FileExistsError:
            del attempts.running[attempt]
            await self.recover([attempt, *attempts.running])
            if attempt not in attempts.running and not attempts.has_ended(attempt):
                attempts.refuse(attempt)
        except Exception as error:  # Whatever it is, it is the cluster's fault and not the job's.
            if not self._cluster.closing:
                attempts.end(attempt, (NEVER_STARTED, f"could not start: {error}"))
        finally:
            tracked.started.set()

    async def stop(self, attempt: Attempt) -> None:
        """Ask the agents to end an attempt; again only after they have had time to do so."""
        tracked = await self._attempts.started(attempt)
        now_s = asyncio.get_running_loop().time()
        overdue_s = self._grace_s + OVERDUE_S
        if tracked is None or now_s < (tracked.stop_requested_s or -overdue_s) + overdue_s:
            return
        await self._in_thread(self._cluster.stop, tracked.running_groups(), self._grace_s)
        tracked.stop_requested_s = now_s

    def log(self, attempt: Attempt, rank: int) -> Path:
        """Return the path of a rank's output; older output is in `NAME.1`."""
        return self._attempts.log(attempt, rank)

    async def close(self) -> None:
        """Release all resources; the processes keep running."""
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        self._cluster.abort_launches()
        if self._control_missing:
            return  # Whatever is asked of Ray now would wait until it ends the process.
        # Threads first: a launch that is cut off would leave actors behind.
        for thread in list(self._threads):
            await asyncio.to_thread(thread.join)
        await asyncio.to_thread(self._cluster.close)

    async def _watch_control(self, address: tuple[str, int] | None) -> None:
        """Report the cluster as lost before Ray ends this process for it, without a word."""
        loop = asyncio.get_running_loop()
        lost_s = float("inf")
        while address is not None:
            await asyncio.sleep(_CONTROL_POLL_S)
            missing = not await _accepts(*address)
            named = f"{address[0]}:{address[1]}"
            if missing and not self._control_missing:
                lost_s = loop.time() + CONTROL_LOST_S
                operator_log.warning("Ray's control service cannot be reached", address=named)
            elif self._control_missing and not missing:
                operator_log.info("Ray's control service can be reached again", address=named)
            self._control_missing = missing
            if missing and loop.time() >= lost_s:
                self._attempts.handler.executor_lost(
                    f"Ray's control service (GCS) at {named} has been unreachable for "
                    f"{CONTROL_LOST_S:g} s; start the scheduler again when the cluster is back."
                )
                return

    async def _wait_for_reports(self, recovered: Mapping[Attempt, RayAttempt]) -> None:
        """Wait until each attempt has ended or is known to continue."""

        def continues(attempt: Attempt, tracked: RayAttempt) -> bool:
            wanted = not self._attempts.has_ended(attempt)
            return wanted and tracked.outcome is None and tracked.all_reported()

        deadline_s = asyncio.get_running_loop().time() + _RECOVERY_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline_s:
            await self._try_to_poll()
            if all(one.ended.is_set() or continues(key, one) for key, one in recovered.items()):
                return
            await asyncio.sleep(_RECOVERY_POLL_S)

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL_S)
            await self._try_to_poll()

    async def _try_to_poll(self) -> None:
        try:
            await self._poll()
        except Exception as error:  # Ray raises many kinds; the next poll may succeed.
            operator_log.warning("Ray does not answer", problem=str(error))

    async def _poll(self) -> None:
        """Check all nodes and all attempts, and report changes."""
        async with self._poll_lock:
            nodes, unreachable = await self._in_thread(self._find_nodes)
            for name in unreachable - self._unreachable:
                operator_log.warning(
                    "node cannot reach the gate", node=name, gate_host=self._gate_host
                )
            self._unreachable = unreachable
            self._update_nodes(nodes)
            running = {key: one for key, one in self._attempts.running.items() if one.groups}
            await self._in_thread(self._read_reports, running)
            for attempt, tracked in running.items():
                await self._update_attempt(attempt, tracked)

    def _find_nodes(self, wait_s: float = 0.0) -> tuple[dict[str, RayNode], set[str]]:
        """Return the live nodes, and the names of those that cannot reach the gate."""
        nodes = self._cluster.nodes(wait_s)
        self._names.save(self._cluster.names)
        host = self._gate_host
        unreachable = {
            name
            for name, found in nodes.items()
            if host is not None and not can_reach(found.node.address, host)
        }
        return {
            name: found for name, found in nodes.items() if name not in unreachable
        }, unreachable

    def _update_nodes(self, nodes: dict[str, RayNode]) -> None:
        """Report nodes that were lost and nodes that joined."""
        before, self._nodes = self._nodes, nodes
        for name, node in before.items():
            if name not in nodes or nodes[name].node_id != node.node_id:
                for tracked in self._attempts.running.values():
                    for group in tracked.running_groups():
                        if group.node_id == node.node_id:
                            group.outcome = (LOST, f"node {name} was lost")
                self._attempts.handler.node_lost(name)
        for name, node in nodes.items():
            if name not in before or before[name].node_id != node.node_id:
                self._attempts.handler.node_up(node.node.executor_node())

    def _read_reports(self, running: Mapping[Attempt, RayAttempt]) -> None:
        """Collect the reports of all agents, and store the output of ranks."""
        owners = {group: key for key, one in running.items() for group in one.running_groups()}
        for group, report in self._cluster.reports(list(owners), _POLL_INTERVAL_S).items():
            attempt = owners[group]
            if report is None and not group.silent:
                group.silent = True  # The next check of the nodes shows whether its node is lost.
            elif report is None:
                group.outcome = (LOST, "its processes on a node are gone")
            elif not report["started"]:
                group.outcome = NEVER_STARTED_OUTCOME
            else:
                self._store_report(attempt, running[attempt], report)
                group.outcome, group.received = report["outcome"], report["number"]

    def _store_report(self, attempt: Attempt, tracked: RayAttempt, report: dict[str, Any]) -> None:
        tracked.port = report["port"]
        for rank, data in report["output"].items():
            if rank not in tracked.logs:
                path = self.log(attempt, rank)
                with contextlib.suppress(OSError):  # On a full disk output is only counted.
                    path.parent.mkdir(mode=0o700, exist_ok=True)
                    # The first report starts with the oldest output that is left. The copy of an
                    # earlier scheduler may lack what was in transit when that one ended.
                    for older in (path, path.with_name(f"{path.name}.1")):
                        older.unlink(missing_ok=True)
                tracked.logs[rank] = shim.Log(path)
            tracked.logs[rank].write(data)

    async def _update_attempt(self, attempt: Attempt, tracked: RayAttempt) -> None:
        """Stop all groups when one has failed; report the attempt's end when all have ended."""
        self._attempts.use_port(tracked, tracked.port)
        tracked.decide_outcome()
        if tracked.running_groups():
            # Repeated: an agent may have missed the request.
            if tracked.outcome is not None or tracked.stop_requested_s is not None:
                await self.stop(attempt)
            return
        await self._in_thread(self._cluster.release, tracked.groups)
        for log in tracked.logs.values():
            log.close()
        self._attempts.end(attempt, tracked.outcome or (0, ""))
        await self._attempts.remove_oldest_folders()

    async def _in_thread(
        self, function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs
    ) -> _T:
        """Return what a function returns that may never do so: its thread holds up no exit."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[_T] = loop.create_future()

        def settle(settling: Callable[[Any], None], value: Any) -> None:
            if not found.done():
                settling(value)

        def work() -> None:
            settling: Callable[[Any], None] = found.set_result
            try:
                value: Any = function(*arguments, **named)
            except BaseException as error:
                settling, value = found.set_exception, error
            self._threads.discard(thread)
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(settle, settling, value)

        async with self._free_threads:
            thread = threading.Thread(target=work, name="ray", daemon=True)
            self._threads.add(thread)
            thread.start()
            return await found


async def _accepts(host: str, port: int) -> bool:
    """Return whether something accepts connections at an address."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _restore_sigterm() -> None:
    """Undo Ray's handler, which passes the signal on and aborts the process three seconds later."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.siginterrupt(signal.SIGTERM, False)  # as asyncio does
