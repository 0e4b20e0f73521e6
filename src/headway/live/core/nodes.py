"""The nodes of a live cluster, and the arrays of their slots."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headway.domain.records import GPU, NOBODY, PORT, SERVER, Records, zeros


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
    counts = np.array([node.gpus for node in nodes], np.int64)
    gpus, servers = zeros(int(counts.sum()), GPU), zeros(len(nodes), SERVER)
    ports = zeros(len(nodes), PORT)
    ports.factor[:] = 1.0
    ports.first_message[:] = ports.held[:] = NOBODY
    first = 0
    for server, node in enumerate(nodes):
        node.server, node.first_gpu = server, first
        servers.first_gpu[server], servers.gpus[server] = first, node.gpus
        first += node.gpus
    memory_bytes = np.array([node.memory_bytes for node in nodes], np.int64)
    draining = np.array([node.draining for node in nodes], np.bool_)
    gpus.server[:] = np.repeat(np.arange(len(nodes)), counts)
    gpus.memory_bytes[:] = gpus.free_bytes[:] = np.repeat(memory_bytes, counts)
    gpus.closed[:] = np.repeat(draining, counts)
    gpus.held[:] = NOBODY
    return gpus, servers, ports
