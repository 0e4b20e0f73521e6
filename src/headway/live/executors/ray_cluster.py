"""What is asked of a Ray cluster: its nodes, and the keepers on them. Every call may block."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway import ray_session
from headway.live.executors import on_node, ports, shim, tail
from headway.live.executors.nodes import LocalNode
from headway.live.executors.ray_parts import Part

SENT = (on_node, ports, shim, tail, ray_session)
"""The modules that are sent to nodes by value, so that these need nothing of Headway."""

_NAMESPACE = "headway"
ANSWER_S = 60.0
"""How long a new actor, or a node that is asked for its GPUs, may take to answer."""

_LEAVE_S = 5.0
_POLL_S = 0.2
_REACH_S = 1.0


class ClusterNode(NamedTuple):
    """A node, and Ray's number for it, which no later node has."""

    number: str
    node: LocalNode


class Cluster:
    """A connection to a Ray cluster, for one scheduler.

    `names` are those of the nodes by Ray's numbers. Of two nodes that Ray calls the same the later
    one is called otherwise, and only who remembers the names knows which that is.
    """

    def __init__(self, address: str) -> None:
        self._address, self._identity = address, ""
        self._session = contextlib.ExitStack()
        self._ray: Any = None
        self._keeper: Any = None
        self.names: dict[str, str] = {}
        self._closing = threading.Event()
        self._gpus: dict[str, Any] = {}
        self._doubtful: set[str] = set()

    def connect(self, identity: str, names: dict[str, str]) -> None:
        """Connect; `identity` tells the actors of this scheduler from those of others."""
        self._identity, self.names = identity, names
        self._ray = self._session.enter_context(ray_session.connected(self._address, 1))
        for module in SENT:
            self._ray.cloudpickle.register_pickle_by_value(module)
        self._keeper = self._ray.remote(num_cpus=0, max_restarts=0)(on_node.Keeper)

    @property
    def closing(self) -> bool:
        """Whether starts under way give up."""
        return self._closing.is_set()

    def give_up(self) -> None:
        """Let starts under way end soon: an attempt that is not running by then does not run."""
        self._closing.set()

    def close(self) -> None:
        """Let go; keepers stay. Nobody may use the cluster any more."""
        self._session.close()

    def nodes(self, wait_s: float = 0.0) -> dict[str, ClusterNode]:
        """Return the nodes that are there, by name; waits so long for new ones to tell their GPUs.

        Ray takes a quarter of a minute to miss a node. One whose keepers are gone, and that nobody
        can reach, counts as lost before that.
        """
        alive = [node for node in self._ray.nodes() if node["Alive"] and _slots(node) > 0]
        # Whoever has the name of a newcomer may be what the newcomer was before.
        new = {_name(node) for node in alive if node["NodeID"] not in self.names}
        self._doubtful |= {number for number, name in self.names.items() if name in new}
        self._doubtful = {
            node["NodeID"]
            for node in alive
            if node["NodeID"] in self._doubtful and not self._reached(node)
        }
        alive = [node for node in alive if node["NodeID"] not in self._doubtful]
        numbers = {node["NodeID"] for node in alive}
        self.names = {key: name for key, name in self.names.items() if key in numbers}
        found = {}
        for node in sorted(alive, key=lambda node: str(node["NodeID"])):
            gpus = self._gpus_of(node, wait_s)
            if gpus is not None:
                described = self._described(node, gpus)
                found[described.node.name] = described
        return found

    def _reached(self, told: dict[str, Any]) -> bool:
        if self._address.startswith("ray://"):
            return True  # From outside the cluster nodes cannot be reached anyway.
        place = (told["NodeManagerAddress"], told["NodeManagerPort"])
        try:
            socket.create_connection(place, timeout=_REACH_S).close()
        except OSError:
            return False
        return True

    def _described(self, told: dict[str, Any], gpus: list[int]) -> ClusterNode:
        number, has = told["NodeID"], told["Resources"]
        slots = _slots(told)
        memory_bytes = min(gpus, default=int(has.get("memory", 0)) // max(1, slots))
        if number not in self.names:
            name = _name(told)
            self.names[number] = f"{name}-{number[:8]}" if name in self.names.values() else name
        address = told["NodeManagerAddress"]
        cuda = bool(gpus)
        node = LocalNode(self.names[number], slots, memory_bytes, address, cuda=cuda)
        return ClusterNode(number, node)

    def _gpus_of(self, told: dict[str, Any], wait_s: float) -> list[int] | None:
        """Return the memory of each GPU of a node in bytes; None if it has not answered yet."""
        number = told["NodeID"]
        if told["Resources"].get("GPU", 0) < 1:
            return []
        if number not in self._gpus:
            asked = self._ray.remote(num_cpus=0)(on_node.gpu_memories_bytes)
            self._gpus[number] = asked.options(scheduling_strategy=self._on(number)).remote()
        try:
            gpus: list[int] = self._ray.get(self._gpus[number], timeout=wait_s)
        except self._ray.exceptions.GetTimeoutError:
            return None
        except self._ray.exceptions.RayError:
            del self._gpus[number]  # To ask again.
            return None
        return gpus

    def start(
        self,
        name: str,
        nodes: Sequence[ClusterNode],
        ranks_at: Callable[[int], list[list[dict[str, Any]]]],
        tried: Sequence[int],
        grace_s: float,
        certificate: str,
    ) -> tuple[list[Part], int]:
        """Start an attempt's ranks on nodes; return its parts, and the port where they meet.

        `ranks_at` returns for a port what to start on each node; with `certificate` the gate's is
        put beside it. Of several starts of one name all but the first raise FileExistsError.
        """
        parts: list[Part] = []
        try:
            for index, node in enumerate(nodes):
                parts.append(self._new_part(f"{name}/{index}/{len(nodes)}", node))
            [port] = self._answers([parts[0].keeper.first_free.remote(list(tried))])
            plans = [{"ranks": ranks, "grace_s": grace_s, "port": port} for ranks in ranks_at(port)]
            begun = [
                part.keeper.start.remote(plan, certificate)
                for part, plan in zip(parts, plans, strict=True)
            ]
            self._answers(begun)
        except self._ray.exceptions.RayError as error:
            self.release(parts)
            raise OSError(" ".join(str(error).split())[:300]) from None
        except BaseException:
            self.release(parts)
            raise
        return parts, port

    def _answers(self, asked: list[Any]) -> list[Any]:
        """Return what keepers answer, unless that takes too long or the scheduler ends."""
        deadline_s = time.monotonic() + ANSWER_S
        waiting = asked
        while waiting:
            _, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=_POLL_S)
            if waiting and self.closing:
                raise OSError("the scheduler ends")
            if waiting and time.monotonic() > deadline_s:
                raise OSError(f"its nodes did not answer within {ANSWER_S:.0f} s")
        answers: list[Any] = self._ray.get(asked)
        return answers

    def _new_part(self, name: str, node: ClusterNode) -> Part:
        kind = self._keeper.options(
            name=f"{self._identity}/{name}/{node.number}",
            namespace=_NAMESPACE,
            lifetime="detached",
            scheduling_strategy=self._on(node.number),
        )
        try:
            keeper = kind.remote(Path(shim.__file__).read_text(), node.node.address)
        except ValueError:
            raise FileExistsError(name) from None
        return Part(keeper, node.number)

    def find(self) -> dict[str, list[Part | None]]:
        """Return the parts of every attempt that this scheduler started; None for one that is gone.

        The keepers' names say it all: IDENTITY/ATTEMPT/INDEX/PARTS/NODE.
        """
        found: dict[str, list[Part | None]] = {}
        for listed in self._ray.util.list_named_actors(all_namespaces=True):
            words = listed["name"].split("/")
            if listed["namespace"] != _NAMESPACE or words[0] != self._identity:
                continue
            _, attempt, index, parts, number = words
            with contextlib.suppress(ValueError):  # It may end at this moment.
                keeper = self._ray.get_actor(listed["name"], namespace=_NAMESPACE)
                found.setdefault(attempt, [None] * int(parts))[int(index)] = Part(keeper, number)
        return found

    def ask(self, parts: Sequence[Part], wait_s: float) -> dict[Part, dict[str, Any] | None]:
        """Return what keepers say that answer in time; None for one that is dead.

        One that cannot be reached just now is not dead: it is asked again.
        """
        for part in parts:
            part.question = part.question or part.keeper.look.remote(part.kept)
        asked = {part.question: part for part in parts}
        answered: list[Any] = []
        if asked:
            answered, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=wait_s)
        answers: dict[Part, dict[str, Any] | None] = {}
        for question in answered:
            part = asked[question]
            part.question = None
            try:
                answers[part] = self._ray.get(question)
            except self._ray.exceptions.ActorUnavailableError:
                self._doubtful.add(part.node_number)
            except self._ray.exceptions.RayError:
                answers[part] = None
                self._doubtful.add(part.node_number)
        return answers

    def stop(self, parts: Sequence[Part], grace_s: float) -> None:
        """Ask keepers to end their ranks."""
        for part in parts:
            part.keeper.stop.remote(grace_s)

    def release(self, parts: Sequence[Part]) -> None:
        """End keepers, and what they still keep."""
        if not parts:
            return
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.wait(
                [part.keeper.leave.remote() for part in parts],
                num_returns=len(parts),
                timeout=_LEAVE_S,
            )
        for part in parts:
            with contextlib.suppress(Exception):
                self._ray.kill(part.keeper)

    def _on(self, number: str) -> Any:
        kind = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        return kind(number, soft=False)


def _name(told: dict[str, Any]) -> str:
    """Return what Ray calls a node: what `ray start --node-name` said, else its address."""
    return str(told.get("NodeName") or told["NodeManagerAddress"])


def _slots(told: dict[str, Any]) -> int:
    """Return how many slots a node has; none, if it is only the cluster's head."""
    return int(told["Resources"].get("GPU", 0)) or int(told["Resources"].get("CPU", 0))
