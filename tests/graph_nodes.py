"""The tasks and messages of a graph, read from its entries alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from headway.domain.graph import Graph, Message

SHARES = {"all-reduce": 1.0, "reduce-scatter": 0.5, "all-gather": 0.5, "send": 0.5}
"""f of each kind; all-to-all has half the most ranks on a server, a send 1 with a ring's law."""


@dataclass
class Node:
    """A task, on one rank, or a message, among several."""

    entry: str
    ranks: frozenset[int]
    task: int | None = None
    """The index of its entry among the tasks, or None for a message."""
    message: Message | None = None
    before: set[int] = field(default_factory=set)
    """The nodes that must end first."""


@lru_cache(maxsize=64)
def nodes_of(graph: Graph) -> list[Node]:
    """Return the nodes, tasks first, with what each waits for: stream, `after` and channel."""
    nodes = [
        Node(task.name, frozenset([rank]), task=index)
        for index, task in enumerate(graph.tasks)
        for rank in sorted(task.ranks)
    ]
    nodes += [
        Node(message.name, frozenset(group), message=message)
        for message in graph.messages
        for group in message.groups
    ]
    after = {entry.name: set(entry.after) for entry in graph.entries}
    last_on_rank: dict[int, int] = {}
    last_in_channel: dict[tuple[str, int], int] = {}
    for number, node in enumerate(nodes):
        for other, candidate in enumerate(nodes):
            if candidate.entry in after[node.entry] and candidate.ranks & node.ranks:
                node.before.add(other)
        for rank in node.ranks:
            if node.message is None:
                previous = last_on_rank.get(rank)
                last_on_rank[rank] = number
            else:
                previous = last_in_channel.get((node.message.channel, rank))
                last_in_channel[node.message.channel, rank] = number
            if previous is not None:
                node.before.add(previous)
    return nodes


def size_bytes(message: Message, servers: list[int], ring: bool) -> int:
    """Return round(f * M) for a message whose ranks are on these servers, one for each rank."""
    if message.kind == "all-to-all":
        share = max(servers.count(server) for server in servers) / 2
    else:
        share = 1.0 if message.kind == "send" and ring else SHARES[message.kind]
    return round(share * message.buffer_bytes)


def latency_ns(message: Message | None, a_ns: int) -> int:
    """Return round(l * a); without a graph a message is an all-reduce."""
    return a_ns if message is None or message.kind == "all-reduce" else round(0.5 * a_ns)
