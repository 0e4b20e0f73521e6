"""Jobs on a Ray cluster: on every node of an attempt a detached actor keeps a shim and its ranks.

The actors outlive the scheduler, and their names tell the next one of them. Ray is asked for no CPU
and no GPU: the scheduler counts the slots. The nodes need nothing of Headway for this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from headway.domain.errors import InputError
from headway.files import make_folder
from headway.live.core.events import JobSpec, Slot
from headway.live.executors import Attempt, Node, Watcher, shim
from headway.live.executors.on_node import CERTIFICATE_VARIABLE, OVERDUE_S
from headway.live.executors.ranks import NEVER_STARTED_VERDICT, attempt_of, name_of, ranks_of
from headway.live.executors.ray_cluster import ANSWER_S, Cluster, ClusterNode
from headway.live.executors.ray_files import Names, certificates, identity, reaches
from headway.live.executors.ray_parts import LOST, Parts
from headway.live.executors.watching import Watching

_LOOK_S = 0.5
_AGAIN_S = 0.05
_RECOVER_S = 60.0
"""How long keepers may take to tell a new scheduler how it stands."""

_THREADS = 64
"""A launch holds one for as long as it takes, 60 s at most."""

_log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")


class RayExecutor(Watching[Parts]):
    """Starts jobs on the nodes of a Ray cluster; see `headway.live.executors.Executor`.

    With `gate_host` nodes that cannot reach a gate there are refused.
    """

    def __init__(
        self,
        address: str,
        folder: Path,
        grace_s: float = shim.GRACE_S,
        gate_host: str | None = None,
    ) -> None:
        super().__init__(folder)
        self._grace_s, self._gate_host = grace_s, gate_host
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ray")
        self._nodes: dict[str, ClusterNode] = {}
        self._cluster = Cluster(address)
        self._names = Names(self._folder / "nodes.json")
        self._far: set[str] = set()
        self._looking: asyncio.Task[None] | None = None
        self._one_look = asyncio.Lock()

    async def start(self, watcher: Watcher) -> Sequence[Node]:
        """Connect to the cluster; return its nodes."""
        make_folder(self._folder)
        self._watcher = watcher
        mine = identity(self._folder / "identity")
        await self._in_thread(self._cluster.connect, mine, self._names.read())
        _take_back_sigterm()
        self._nodes, self._far = await self._in_thread(self._find_nodes, ANSWER_S)
        if self._far:
            raise InputError(
                f"node {min(self._far)} cannot reach the gate on {self._gate_host}; give an address"
                " of this machine that all nodes reach.",
                field="gate_host",
            )
        self._looking = asyncio.create_task(self._look_again_and_again())
        return [found.node.node() for found in self._nodes.values()]

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        """Take over what runs, tell what has ended, stop what nobody knows."""
        found = await self._in_thread(self._cluster.find)
        taken: dict[Attempt, Parts] = {}
        for name, parts in found.items():
            attempt = attempt_of(name)
            if attempt is None or attempt in self._watched:
                continue
            watched = self._watched[attempt] = taken[attempt] = Parts()
            watched.parts = [part for part in parts if part is not None]
            watched.incomplete = len(watched.parts) < len(parts)
            watched.settled.set()
            if attempt not in known:
                self._end(attempt)  # Nobody wants to hear of it.
                await self.stop(attempt)
        for attempt in known:
            if attempt not in self._watched:
                gone = (LOST, "nothing of it is left on the cluster")
                begun = self.log(attempt, 0).parent.exists()
                self._tell(attempt, *(gone if begun else NEVER_STARTED_VERDICT))
        await self._hear(taken)
        return [attempt for attempt in known if attempt in self._watched]

    async def _hear(self, taken: Mapping[Attempt, Parts]) -> None:
        """Wait until it is known of every attempt whether it goes on; those that do not end."""

        def goes_on(attempt: Attempt, watched: Parts) -> bool:
            return attempt not in self._over and watched.verdict is None and watched.heard()

        deadline_s = asyncio.get_running_loop().time() + _RECOVER_S
        while asyncio.get_running_loop().time() < deadline_s:
            await self._try_to_look()
            if all(one.over.is_set() or goes_on(attempt, one) for attempt, one in taken.items()):
                return
            await asyncio.sleep(_AGAIN_S)

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        slots: Sequence[Slot],
        environment: Mapping[str, str],
    ) -> None:
        """Start an attempt, once; returns when its ranks have been started."""
        if attempt in self._watched:
            return
        if attempt in self._over:
            self._refuse(attempt)
            return
        watched = self._watched[attempt] = Parts()
        hosts = list(dict.fromkeys(slot.node for slot in slots))
        variables = {**environment}
        path = variables.pop(CERTIFICATE_VARIABLE, None)

        def ranks_at(port: int) -> list[list[dict[str, Any]]]:
            nodes = {name: found.node for name, found in self._nodes.items()}
            ranks = ranks_of(attempt, spec, slots, nodes, variables, port)
            return [
                [rank for rank, slot in zip(ranks, slots, strict=True) if slot.node == host]
                for host in hosts
            ]

        try:
            missing = [host for host in hosts if host not in self._nodes]
            if missing:
                raise ValueError(f"there is no node {missing[0]}")
            watched.parts, watched.port = await self._in_thread(
                self._cluster.start,
                name_of(attempt),
                [self._nodes[host] for host in hosts],
                ranks_at,
                self._ports.candidates(),
                self._grace_s,
                "" if path is None else await self._in_thread(certificates, path),
            )
            self._ports.used.add(watched.port)
            with contextlib.suppress(OSError):
                self.log(attempt, 0).parent.mkdir(mode=0o700)
        except FileExistsError:
            del self._watched[attempt]
            await self.recover([attempt, *self._watched])
        except Exception as error:  # Whatever it is, it is the cluster's fault and not the job's.
            if not self._cluster.closing:
                self._tell(attempt, NEVER_STARTED_VERDICT[0], f"could not start: {error}")
        finally:
            watched.settled.set()

    async def stop(self, attempt: Attempt) -> None:
        """Ask the keepers to end an attempt."""
        watched = await self._settled(attempt)
        now_s = asyncio.get_running_loop().time()
        overdue_s = self._grace_s + OVERDUE_S
        if watched is None or now_s < (watched.asked_to_end_s or -overdue_s) + overdue_s:
            return
        await self._in_thread(self._cluster.stop, watched.left(), self._grace_s)
        watched.asked_to_end_s = now_s

    async def close(self) -> None:
        """Let go of everything, and leave what runs running."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        # First what is under way in threads: a start that is cut off would leave actors behind.
        self._cluster.give_up()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        await asyncio.to_thread(self._cluster.close)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._try_to_look()

    async def _try_to_look(self) -> None:
        try:
            await self._look()
        except Exception as error:  # Ray's are many; the next look may go well.
            _log.warning("Ray does not answer: %s", error)

    async def _look(self) -> None:
        """Look at all nodes and at all attempts, and tell what is new."""
        async with self._one_look:
            nodes, far = await self._in_thread(self._find_nodes)
            for name in far - self._far:
                _log.warning("node %s cannot reach the gate on %s", name, self._gate_host)
            self._far = far
            self._compare(nodes)
            watched = {attempt: one for attempt, one in self._watched.items() if one.parts}
            await self._in_thread(self._ask, watched)
            for attempt, one in watched.items():
                await self._settle(attempt, one)

    def _find_nodes(self, wait_s: float = 0.0) -> tuple[dict[str, ClusterNode], set[str]]:
        """Return the nodes that are there, and the names of those that cannot reach the gate."""
        nodes = self._cluster.nodes(wait_s)
        self._names.save(self._cluster.names)
        host = self._gate_host
        far = {
            name
            for name, found in nodes.items()
            if host is not None and not reaches(found.node.address, host)
        }
        return {name: found for name, found in nodes.items() if name not in far}, far

    def _compare(self, nodes: dict[str, ClusterNode]) -> None:
        """Tell which nodes went and came."""
        before, self._nodes = self._nodes, nodes
        for name, node in before.items():
            if name not in nodes or nodes[name].number != node.number:
                for watched in self._watched.values():
                    for part in watched.left():
                        if part.node_number == node.number:
                            part.verdict = (LOST, f"node {name} was lost")
                self._watcher.node_lost(name)
        for name, node in nodes.items():
            if name not in before or before[name].number != node.number:
                self._watcher.node_came(node.node.node())

    def _ask(self, watched: Mapping[Attempt, Parts]) -> None:
        """Ask all keepers how it goes, and keep what ranks have printed."""
        whose = {part: attempt for attempt, one in watched.items() for part in one.left()}
        for part, answer in self._cluster.ask(list(whose), _LOOK_S).items():
            attempt = whose[part]
            if answer is None and not part.silent:
                part.silent = True  # The next look at the nodes tells whether its node is lost.
            elif answer is None:
                part.verdict = (LOST, "its processes on a node are gone")
            elif not answer["started"]:
                part.verdict = NEVER_STARTED_VERDICT
            else:
                self._keep(attempt, watched[attempt], answer)
                part.verdict, part.kept = answer["ended"], answer["number"]

    def _keep(self, attempt: Attempt, watched: Parts, answer: dict[str, Any]) -> None:
        watched.port = answer["port"]
        for rank, data in answer["output"].items():
            if rank not in watched.logs:
                path = self.log(attempt, rank)
                with contextlib.suppress(OSError):  # Output that finds no room is only counted.
                    path.parent.mkdir(mode=0o700, exist_ok=True)
                    # The first answer begins with the oldest that is left. An earlier scheduler's
                    # copy may lack what was on its way when that ended.
                    for older in (path, path.with_name(f"{path.name}.1")):
                        older.unlink(missing_ok=True)
                watched.logs[rank] = shim.Log(path)
            watched.logs[rank].write(data)

    async def _settle(self, attempt: Attempt, watched: Parts) -> None:
        """End all parts when one has failed; tell the attempt's end once all have ended."""
        self._ports.used.add(watched.port)
        watched.judge()
        if watched.left():
            # Again and again: a keeper may not have heard it.
            if watched.verdict is not None or watched.asked_to_end_s is not None:
                await self.stop(attempt)
            return
        await self._in_thread(self._cluster.release, watched.parts)
        for log in watched.logs.values():
            log.close()
        self._tell(attempt, *(watched.verdict or (0, "")))
        await self._forget_oldest()

    async def _in_thread(
        self, function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs
    ) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*arguments, **named))


def _take_back_sigterm() -> None:
    """Undo Ray's handler, which passes the signal on and aborts the process three seconds later."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.siginterrupt(signal.SIGTERM, False)  # As asyncio has it.
