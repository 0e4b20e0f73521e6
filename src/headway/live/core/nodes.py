"""The nodes of a live cluster, and the arrays of their slots."""

from __future__ import annotations

from collections.abc import Iterable

from headway.domain.layout import lay_out_servers
from headway.domain.records import NOBODY, Records


class NodeState:
    """A machine with slots; `server` and `first_gpu` are its indices in the arrays."""

    __slots__ = ("draining", "first_gpu", "gpus", "memory_bytes", "name", "server")

    def __init__(self, name: str, gpus: int, memory_bytes: int, draining: bool) -> None:
        self.name = name
        self.gpus = gpus
        # A slot without memory still holds jobs that do not ask for any.
        self.memory_bytes = max(1, memory_bytes)
        self.draining = draining
        self.server = self.first_gpu = NOBODY


def lay_out_nodes(nodes: Iterable[NodeState]) -> tuple[Records, Records, Records]:
    """Return arrays for the GPUs, servers and ports of the nodes, with nothing on them."""
    nodes = list(nodes)
    gpus, servers, ports = lay_out_servers(
        [node.gpus for node in nodes], [node.memory_bytes for node in nodes]
    )
    for server, node in enumerate(nodes):
        node.server, node.first_gpu = server, int(servers.first_gpu[server])
        gpus.closed[node.first_gpu : node.first_gpu + node.gpus] = node.draining
    return gpus, servers, ports
