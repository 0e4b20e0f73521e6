"""A Ray cluster as the executor sees it: nodes, and agents on them. Every call may block."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway import ray_session
from headway.live.executors import log_tail, node_tools, rendezvous, shim
from headway.live.executors.rank_plans import LaunchNode
from headway.live.executors.ray import node_agent
from headway.live.executors.ray.attempt import RankGroup

SENT_MODULES = (log_tail, node_agent, node_tools, ray_session, rendezvous, shim)
"""Modules that are sent to nodes by value, so that Headway need not be installed there."""

ANSWER_TIMEOUT_S = 60.0
"""How long a new actor, or a node asked for its GPUs, may take to answer."""

_NAMESPACE = "headway"
_RELEASE_TIMEOUT_S = 5.0
_POLL_S = 0.2
_CONNECT_TIMEOUT_S = 1.0


class RayNode(NamedTuple):
    """A node, and Ray's id of it, which no later node has."""

    node_id: str
    node: LaunchNode


class RayCluster:
    """A connection to a Ray cluster, for one scheduler.

    `names` maps Ray's node ids to names. If two nodes have the same name in Ray, the later one gets
    another: the mapping must be kept to tell them apart.
    """

    def __init__(self, address: str) -> None:
        self._address, self._identity = address, ""
        self._session = contextlib.ExitStack()
        self._ray: Any = None
        self._agent_class: Any = None
        self.names: dict[str, str] = {}
        self._closing = threading.Event()
        self._gpus: dict[str, Any] = {}
        self._doubtful: set[str] = set()

    def connect(self, identity: str, names: dict[str, str]) -> None:
        """Connect; `identity` distinguishes this scheduler's actors from others'."""
        self._identity, self.names = identity, names
        self._ray = self._session.enter_context(ray_session.connected(self._address, 1))
        for module in SENT_MODULES:
            self._ray.cloudpickle.register_pickle_by_value(module)
        self._agent_class = self._ray.remote(num_cpus=0, max_restarts=0)(node_agent.NodeAgent)

    @property
    def control_address(self) -> tuple[str, int] | None:
        """Where the cluster's control service listens, without which Ray ends this process.

        None if the connection goes through Ray's proxy for clients outside the cluster.
        """
        if self._address.startswith("ray://"):
            return None
        host, _, port = str(self._ray.get_runtime_context().gcs_address).rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def closing(self) -> bool:
        """Whether launches in progress give up."""
        return self._closing.is_set()

    def abort_launches(self) -> None:
        """Make launches in progress return soon; attempts that are not running by then never do."""
        self._closing.set()

    def close(self) -> None:
        """Disconnect; agents keep running. The cluster must not be used any more."""
        self._session.close()

    def nodes(self, wait_s: float = 0.0) -> dict[str, RayNode]:
        """Return the live nodes by name; wait this long for the GPUs of new nodes.

        Ray takes about 15 s to notice that a node is lost. A node whose agents are gone and that
        cannot be reached counts as lost before that.
        """
        alive = [entry for entry in self._ray.nodes() if entry["Alive"] and _slots(entry) > 0]
        # A known node with the name of a new one may be the new one's former self.
        new = {_name(entry) for entry in alive if entry["NodeID"] not in self.names}
        self._doubtful |= {node_id for node_id, name in self.names.items() if name in new}
        self._doubtful = {
            entry["NodeID"]
            for entry in alive
            if entry["NodeID"] in self._doubtful and not self._is_reachable(entry)
        }
        alive = [entry for entry in alive if entry["NodeID"] not in self._doubtful]
        node_ids = {entry["NodeID"] for entry in alive}
        self.names = {key: name for key, name in self.names.items() if key in node_ids}
        found = {}
        for entry in sorted(alive, key=lambda entry: str(entry["NodeID"])):
            gpus = self._gpu_memories(entry, wait_s)
            if gpus is not None:
                node = self._ray_node(entry, gpus)
                found[node.node.name] = node
        return found

    def launch(
        self,
        name: str,
        nodes: Sequence[RayNode],
        plans_at: Callable[[int], list[list[dict[str, Any]]]],
        candidates: Sequence[int],
        grace_s: float,
        certificate: str,
    ) -> tuple[list[RankGroup], int]:
        """Start the ranks of an attempt; return its groups and its rendezvous port.

        `plans_at` returns what to start on each node for a port; `certificate` is the gate's, for
        the ranks to trust. Of several launches of one name all but the first raise FileExistsError.
        """
        groups: list[RankGroup] = []
        try:
            for index, node in enumerate(nodes):
                groups.append(self._create_agent(f"{name}/{index}/{len(nodes)}", node))
            [port] = self._answers([groups[0].agent.first_free_port.remote(list(candidates))])
            plans = [{"ranks": ranks, "grace_s": grace_s, "port": port} for ranks in plans_at(port)]
            starts = [
                group.agent.start.remote(plan, certificate)
                for group, plan in zip(groups, plans, strict=True)
            ]
            self._answers(starts)
        except self._ray.exceptions.RayError as error:
            self.release(groups)
            raise OSError(" ".join(str(error).split())[:300]) from None
        except BaseException:
            self.release(groups)
            raise
        return groups, port

    def find_groups(self) -> dict[str, list[RankGroup | None]]:
        """Return the groups of each attempt of this scheduler, by name; None for one that is gone.

        They are found by the agents' names: IDENTITY/ATTEMPT/INDEX/GROUPS/NODE_ID.
        """
        found: dict[str, list[RankGroup | None]] = {}
        for actor in self._ray.util.list_named_actors(all_namespaces=True):
            words = actor["name"].split("/")
            if actor["namespace"] != _NAMESPACE or words[0] != self._identity:
                continue
            _, attempt, index, groups, node_id = words
            with contextlib.suppress(ValueError):  # It may end at this moment.
                agent = self._ray.get_actor(actor["name"], namespace=_NAMESPACE)
                group = RankGroup(agent, node_id)
                found.setdefault(attempt, [None] * int(groups))[int(index)] = group
        return found

    def reports(
        self, groups: Sequence[RankGroup], wait_s: float
    ) -> dict[RankGroup, dict[str, Any] | None]:
        """Return the reports of the agents that answer in time; None for a dead one.

        An agent that cannot be reached just now is not dead: it is asked again.
        """
        for group in groups:
            group.pending_report = group.pending_report or group.agent.report.remote(group.received)
        pending = {group.pending_report: group for group in groups}
        done: list[Any] = []
        if pending:
            done, _ = self._ray.wait(list(pending), num_returns=len(pending), timeout=wait_s)
        found: dict[RankGroup, dict[str, Any] | None] = {}
        for reference in done:
            group = pending[reference]
            group.pending_report = None
            try:
                found[group] = self._ray.get(reference)
            except self._ray.exceptions.ActorUnavailableError:
                self._doubtful.add(group.node_id)
            except self._ray.exceptions.RayError:
                found[group] = None
                self._doubtful.add(group.node_id)
        return found

    def stop(self, groups: Sequence[RankGroup], grace_s: float) -> None:
        """Ask agents to end their ranks."""
        for group in groups:
            group.agent.stop.remote(grace_s)

    def release(self, groups: Sequence[RankGroup]) -> None:
        """End agents, and any processes that they still run."""
        if not groups:
            return
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.wait(
                [group.agent.release.remote() for group in groups],
                num_returns=len(groups),
                timeout=_RELEASE_TIMEOUT_S,
            )
        for group in groups:
            with contextlib.suppress(Exception):
                self._ray.kill(group.agent)

    def _is_reachable(self, entry: dict[str, Any]) -> bool:
        if self._address.startswith("ray://"):
            return True  # From outside the cluster its nodes cannot be reached anyway.
        address = (entry["NodeManagerAddress"], entry["NodeManagerPort"])
        try:
            socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def _ray_node(self, entry: dict[str, Any], gpus: list[int]) -> RayNode:
        node_id, resources = entry["NodeID"], entry["Resources"]
        slots = _slots(entry)
        memory_bytes = min(gpus, default=int(resources.get("memory", 0)) // max(1, slots))
        if node_id not in self.names:
            name = _name(entry)
            self.names[node_id] = f"{name}-{node_id[:8]}" if name in self.names.values() else name
        address = entry["NodeManagerAddress"]
        node = LaunchNode(self.names[node_id], slots, memory_bytes, address, cuda=bool(gpus))
        return RayNode(node_id, node)

    def _gpu_memories(self, entry: dict[str, Any], wait_s: float) -> list[int] | None:
        """Return the memory of each GPU of a node in bytes; None if it has not answered yet."""
        node_id = entry["NodeID"]
        if entry["Resources"].get("GPU", 0) < 1:
            return []
        if node_id not in self._gpus:
            query = self._ray.remote(num_cpus=0)(node_tools.gpu_memories_bytes)
            self._gpus[node_id] = query.options(scheduling_strategy=self._on(node_id)).remote()
        try:
            gpus: list[int] = self._ray.get(self._gpus[node_id], timeout=wait_s)
        except self._ray.exceptions.GetTimeoutError:
            return None
        except self._ray.exceptions.RayError:
            del self._gpus[node_id]  # The next call asks again.
            return None
        return gpus

    def _answers(self, references: list[Any]) -> list[Any]:
        """Return the answers of agents, unless they take too long or the scheduler ends."""
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        waiting = references
        while waiting:
            _, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=_POLL_S)
            if waiting and self.closing:
                raise OSError("the scheduler is ending")
            if waiting and time.monotonic() > deadline_s:
                raise OSError(f"its nodes did not answer within {ANSWER_TIMEOUT_S:.0f} s")
        answers: list[Any] = self._ray.get(references)
        return answers

    def _create_agent(self, name: str, node: RayNode) -> RankGroup:
        agent_class = self._agent_class.options(
            name=f"{self._identity}/{name}/{node.node_id}",
            namespace=_NAMESPACE,
            lifetime="detached",
            scheduling_strategy=self._on(node.node_id),
        )
        try:
            agent = agent_class.remote(Path(shim.__file__).read_text(), node.node.address)
        except ValueError:
            raise FileExistsError(name) from None
        return RankGroup(agent, node.node_id)

    def _on(self, node_id: str) -> Any:
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        return strategy(node_id, soft=False)


def _name(entry: dict[str, Any]) -> str:
    """Return the name of a node: that of `ray start --node-name`, else its address."""
    return str(entry.get("NodeName") or entry["NodeManagerAddress"])


def _slots(entry: dict[str, Any]) -> int:
    """Return the number of slots of a node; 0 if it is only the cluster's head."""
    return int(entry["Resources"].get("GPU", 0)) or int(entry["Resources"].get("CPU", 0))
