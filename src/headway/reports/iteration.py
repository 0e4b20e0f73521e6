"""One iteration of a graph, alone on a network: when everything runs, and its critical path."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headway.configuration import network_from
from headway.domain.cluster import Cluster
from headway.domain.graph import Graph, Message, Task
from headway.domain.graph_expansion import Integers
from headway.domain.job import Job
from headway.domain.limits import MAX_GPUS, whole
from headway.domain.workload import Workload
from headway.durations import milliseconds_text
from headway.engine.run import simulate
from headway.network.contention import NetworkModel
from headway.reports.graph_text import ranks_text
from headway.results.timeline.sinks import Timeline
from headway.text_table import TextTable

COMPUTING = "computing"

_FEW = 24
"""The most rows of a critical path to print."""


@dataclass(frozen=True, eq=False)
class Iteration:
    """Start and end of every node of a graph's expansion."""

    graph: Graph
    servers: int
    gpus_per_server: int
    start_ns: Integers
    end_ns: Integers

    @property
    def length_ns(self) -> int:
        """When the last node ends."""
        return int(self.end_ns.max())

    @cached_property
    def critical_path(self) -> list[int]:
        """Nodes, each of them after the one before, from the start to the end of the iteration.

        Among nodes that end at the same time, the one with the lowest number is on the path.
        """
        path = [int(self.end_ns.argmax())]
        while len(before := self.before(path[-1])):
            path.append(int(before[self.end_ns[before].argmax()]))
        return path[::-1]

    def before(self, node: int) -> Integers:
        """Return the nodes that a node waits for, ascending."""
        start, nodes = self._before
        return nodes[start[node] : start[node + 1]]

    @cached_property
    def _before(self) -> tuple[Integers, Integers]:
        """The nodes that each node waits for: starts, and one list of all."""
        expanded = self.graph.expanded
        sources = np.repeat(np.arange(expanded.nodes), np.diff(expanded.successor_start))
        order = np.argsort(expanded.successors, kind="stable")
        return np.concatenate([[0], np.cumsum(expanded.predecessors)]), sources[order]

    @cached_property
    def path_parts_ns(self) -> dict[str, int]:
        """The time of the critical path: computing, and messages by kind."""
        parts: Counter[str] = Counter({COMPUTING: 0})
        for node in self.critical_path:
            parts[self.kind(node)] += int(self.end_ns[node] - self.start_ns[node])
        return dict(parts)

    def entry(self, node: int) -> Task | Message:
        """Return the entry of a node."""
        expanded = self.graph.expanded
        if node < expanded.tasks:
            return self.graph.tasks[int(expanded.task_entry[node])]
        return self.graph.messages[int(expanded.message_entry[node - expanded.tasks])]

    def kind(self, node: int) -> str:
        """Return the kind of a message, or `computing` for a task."""
        entry = self.entry(node)
        return entry.kind if isinstance(entry, Message) else COMPUTING

    def name(self, node: int) -> str:
        """Return the name of a node's entry."""
        return self.entry(node).name

    def ranks(self, node: int) -> list[int]:
        """Return the ranks of a node, ascending."""
        expanded = self.graph.expanded
        if node < expanded.tasks:
            return [int(expanded.task_rank[node])]
        number = node - expanded.tasks
        first, end = expanded.group_start[number], expanded.group_start[number + 1]
        return [int(rank) for rank in expanded.group_ranks[first:end]]


def run_alone(graph: Graph, network: NetworkModel | str, gpus_per_server: int = 1) -> Iteration:
    """Simulate one iteration of a graph alone, every message sent as soon as it is ready.

    Args:
        graph: The graph.
        network: The network between servers, its name, or the path of a TOML file.
        gpus_per_server: Ranks on each server, in their order.
    """
    if isinstance(network, str):
        network = network_from(network)
    size = whole(gpus_per_server, "gpus_per_server", 1, MAX_GPUS)
    servers = -(-graph.ranks // size)
    timeline = Timeline()
    simulate(
        Workload([Job("alone", 0, graph.ranks, 1, graph=graph)]),
        Cluster(servers, min(size, graph.ranks)),
        network=network,
        policy=f"ff+srsf:{max(1, graph.message_count)}",
        timeline=timeline,
    )
    tasks = timeline.tasks()
    start_ns = np.full(graph.expanded.nodes, -1)
    end_ns = np.full(graph.expanded.nodes, -1)
    start_ns[tasks.node], end_ns[tasks.node] = tasks.start_ns, tasks.end_ns
    _add_free_messages(graph, start_ns, end_ns)
    return Iteration(graph, servers, min(size, graph.ranks), start_ns, end_ns)


def _add_free_messages(graph: Graph, start_ns: Integers, end_ns: Integers) -> None:
    """Add messages within a server, which take no time: they end when they are ready."""
    expanded = graph.expanded
    if (end_ns >= 0).all():
        return
    ready = np.zeros(expanded.nodes, np.int64)
    for node in expanded.topological_order:
        if end_ns[node] < 0:
            start_ns[node] = end_ns[node] = ready[node]
        following = expanded.successors[
            expanded.successor_start[node] : expanded.successor_start[node + 1]
        ]
        ready[following] = np.maximum(ready[following], end_ns[node])


def path_table(iteration: Iteration) -> TextTable:
    """Return the rows of the critical path; of a long one, the first and the last."""
    table = TextTable(["critical path"], ["from (ms)", "ms"], ["kind", "ranks"])
    path = [
        node
        for node in iteration.critical_path
        if iteration.end_ns[node] > iteration.start_ns[node]
    ]
    left_out = max(0, len(path) - _FEW)
    for index, node in enumerate(path):
        if left_out and _FEW // 2 <= index < _FEW // 2 + left_out:
            if index == _FEW // 2:
                table.add_row(f"… ({left_out:,} more)", "", "", "", "")
            continue
        start_ns, end_ns = int(iteration.start_ns[node]), int(iteration.end_ns[node])
        table.add_row(
            iteration.name(node),
            milliseconds_text(start_ns),
            milliseconds_text(end_ns - start_ns),
            iteration.kind(node),
            ranks_text(iteration.ranks(node), iteration.graph.ranks),
        )
    return table
