"""The tasks and messages of a graph, read from its entries alone, and what messages send."""

from __future__ import annotations

from functools import lru_cache

from headway.domain.graph import Graph, Message
from oracle import Expansion, Node

SHARES = {"all-reduce": 1.0, "reduce-scatter": 0.5, "all-gather": 0.5, "send": 0.5}
"""f of each kind; all-to-all has half the most ranks on a server, a send 1 with a ring's law."""


@lru_cache(maxsize=64)
def expansion_of(graph: Graph) -> Expansion:
    return Expansion(graph)


def nodes_of(graph: Graph) -> list[Node]:
    return expansion_of(graph).nodes


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
