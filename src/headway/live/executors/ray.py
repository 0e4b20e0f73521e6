"""Jobs on a Ray cluster: on every node of an attempt a detached actor keeps a shim and its ranks.

The actors outlive the scheduler, and their names tell the next one of them. Ray is asked for no CPU
and no GPU: the scheduler counts the slots. The nodes need nothing of Headway for this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from headway.files import make_folder, open_output
from headway.live.events import JobSpec, Seat
from headway.live.executors import Attempt, Ended, Node, Watcher, ports, shim
from headway.live.executors.ranks import (
    NEVER_STARTED,
    attempt_of,
    forget_oldest,
    log_of,
    name_of,
    ranks_of,
)
from headway.live.executors.ray_cluster import ANSWER_S, Cluster, ClusterNode, Part

_LOOK_S = 0.5
_THREADS = 64
"""A launch holds one for as long as it takes, 60 s at most."""

_LOST = 255

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Watched:
    """An attempt that was started, on one node or several."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.port = 0
        self.logs: dict[int, shim.Log] = {}
        self.verdict: tuple[int, str] | None = None
        self.asked_to_end = False
        self.settled = asyncio.Event()
        self.over = asyncio.Event()

    def left(self) -> list[Part]:
        """Return the parts that have not ended."""
        return [part for part in self.parts if part.verdict is None]


class RayExecutor:
    """Starts jobs on the nodes of a Ray cluster; see `headway.live.executors.Executor`."""

    def __init__(self, address: str, folder: Path, grace_s: float = shim.GRACE_S) -> None:
        self._folder, self._grace_s = folder.absolute(), grace_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ray")
        self._nodes: dict[str, ClusterNode] = {}
        self._watched: dict[Attempt, _Watched] = {}
        self._over: set[Attempt] = set()
        self._ports = ports.Ports()
        self._cluster = Cluster(address)
        self._looking: asyncio.Task[None] | None = None
        self._one_look = asyncio.Lock()

    async def start(self, watcher: Watcher) -> Sequence[Node]:
        """Connect to the cluster; return its nodes."""
        make_folder(self._folder)
        self._watcher = watcher
        identity = _identity(self._folder / "identity")
        await self._in_thread(self._cluster.connect, identity)
        self._nodes = await self._in_thread(self._cluster.nodes, ANSWER_S)
        self._looking = asyncio.create_task(self._look_again_and_again())
        return [found.node.node() for found in self._nodes.values()]

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        """Take over what runs, tell what has ended, stop what nobody knows."""
        found = await self._in_thread(self._cluster.find)
        strangers = []
        for name, parts in found.items():
            attempt = attempt_of(name)
            if attempt is None or attempt in self._watched:
                continue
            watched = self._watched[attempt] = _Watched()
            watched.parts = [part for part in parts if part is not None]
            if len(watched.parts) < len(parts):
                watched.verdict = (_LOST, "a node of it was lost while no scheduler ran")
            watched.settled.set()
            if attempt not in known:
                self._over.add(attempt)  # Nobody wants to hear of it.
                strangers.append(watched)
                await self.stop(attempt)
        for attempt in known:
            if attempt not in self._watched:
                gone = (_LOST, "nothing of it is left on the cluster")
                begun = self.log(attempt, 0).parent.exists()
                self._tell(attempt, *(gone if begun else NEVER_STARTED))
        await self._look()
        await asyncio.gather(*(watched.over.wait() for watched in strangers))
        return [attempt for attempt in known if attempt in self._watched]

    async def launch(
        self,
        attempt: Attempt,
        spec: JobSpec,
        seats: Sequence[Seat],
        environment: Mapping[str, str],
    ) -> None:
        """Start an attempt, once; returns when its ranks have been started."""
        if attempt in self._watched or attempt in self._over:
            return
        watched = self._watched[attempt] = _Watched()
        hosts = list(dict.fromkeys(seat.node for seat in seats))

        def ranks_at(port: int) -> list[list[dict[str, Any]]]:
            nodes = {name: found.node for name, found in self._nodes.items()}
            ranks = ranks_of(attempt, spec, seats, nodes, environment, port)
            return [
                [rank for rank, seat in zip(ranks, seats, strict=True) if seat.node == host]
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
            )
            self._ports.used.add(watched.port)
            with contextlib.suppress(OSError):
                self.log(attempt, 0).parent.mkdir(mode=0o700)
        except FileExistsError:
            del self._watched[attempt]
            await self.recover([attempt, *self._watched])
        except Exception as error:  # Whatever it is, it is the attempt's end.
            self._tell(attempt, shim.COULD_NOT_START, f"could not start: {error}")
        finally:
            watched.settled.set()

    async def stop(self, attempt: Attempt) -> None:
        """Ask the keepers to end an attempt."""
        if attempt in self._watched:
            await self._watched[attempt].settled.wait()
        watched = self._watched.get(attempt)
        if watched is not None and not watched.asked_to_end:
            watched.asked_to_end = True
            await self._in_thread(self._cluster.stop, watched.left(), self._grace_s)

    def log(self, attempt: Attempt, rank: int) -> Path:
        """Return the file with what a rank printed; what it printed earlier is in `NAME.1`."""
        return log_of(self._folder / name_of(attempt), rank)

    async def close(self) -> None:
        """Let go of everything, and leave what runs running."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._in_thread(self._cluster.close)
        self._threads.shutdown()

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look()
            except Exception as error:  # Ray's are many; the next look may go well.
                logging.getLogger(__name__).warning("Ray does not answer: %s", error)

    async def _look(self) -> None:
        """Look at all nodes and at all attempts, and tell what is new."""
        async with self._one_look:
            self._compare(await self._in_thread(self._cluster.nodes))
            watched = {attempt: one for attempt, one in self._watched.items() if one.parts}
            await self._in_thread(self._ask, watched)
            for attempt, one in watched.items():
                await self._settle(attempt, one)

    def _compare(self, nodes: dict[str, ClusterNode]) -> None:
        """Tell which nodes went and came."""
        before, self._nodes = self._nodes, nodes
        for name, node in before.items():
            if name not in nodes or nodes[name].number != node.number:
                for watched in self._watched.values():
                    for part in watched.left():
                        if part.node_number == node.number:
                            part.verdict = (_LOST, f"node {name} was lost")
                self._watcher.node_lost(name)
        for name, node in nodes.items():
            if name not in before or before[name].number != node.number:
                self._watcher.node_came(node.node.node())

    def _ask(self, watched: Mapping[Attempt, _Watched]) -> None:
        """Ask all keepers how it goes, and keep what ranks have printed."""
        whose = {part: attempt for attempt, one in watched.items() for part in one.left()}
        for part, answer in self._cluster.ask(list(whose), _LOOK_S).items():
            attempt = whose[part]
            if answer is None and not part.silent:
                part.silent = True  # The next look at the nodes tells whether its node is lost.
            elif answer is None:
                part.verdict = (_LOST, "its processes on a node are gone")
            elif not answer["started"]:
                part.verdict = NEVER_STARTED
            else:
                part.verdict = answer["ended"]
                self._keep(attempt, watched[attempt], answer)

    def _keep(self, attempt: Attempt, watched: _Watched, answer: dict[str, Any]) -> None:
        watched.port = answer["port"]
        for rank, data in answer["output"].items():
            if rank not in watched.logs:
                path = self.log(attempt, rank)
                with contextlib.suppress(OSError):  # Output that finds no room is only counted.
                    path.parent.mkdir(mode=0o700, exist_ok=True)
                watched.logs[rank] = shim.Log(path)
            watched.logs[rank].write(data)

    async def _settle(self, attempt: Attempt, watched: _Watched) -> None:
        """End all parts when one has failed; tell the attempt's end once all have ended."""
        self._ports.used.add(watched.port)
        failed = [part.verdict for part in watched.parts if part.verdict and part.verdict[0] != 0]
        if failed and watched.verdict is None:
            # What was lost or killed is the cause; others may only have lost their neighbour.
            watched.verdict = max(failed, key=lambda verdict: verdict[0])
        if watched.left():
            if watched.verdict is not None:
                await self.stop(attempt)
            return
        await self._in_thread(self._cluster.release, watched.parts)
        for log in watched.logs.values():
            log.close()
        self._tell(attempt, *(watched.verdict or (0, "")))
        running = {name_of(one) for one in self._watched}
        await self._in_thread(forget_oldest, self._folder, running)

    def _tell(self, attempt: Attempt, code: int, reason: str) -> None:
        watched = self._watched.pop(attempt, None)
        if watched is not None:
            self._ports.used.discard(watched.port)
            watched.over.set()
        if attempt not in self._over:
            self._over.add(attempt)
            self._watcher.attempt_ended(Ended(attempt, code, reason))

    async def _in_thread(
        self, function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs
    ) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*arguments, **named))


def _identity(path: Path) -> str:
    """Return what tells this scheduler's actors from those of others on the same cluster."""
    if not path.exists():
        with open_output(path) as stream:
            stream.write(secrets.token_hex(8).encode())
    return path.read_text()
