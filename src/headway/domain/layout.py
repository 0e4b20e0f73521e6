"""The arrays of a cluster that nothing runs on, for the engine and the live core alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.cluster import Cluster
from headway.domain.records import GPU, NOBODY, PORT, SERVER, Records, zeros


def lay_out_servers(
    server_gpus: Sequence[int], memory_bytes: Sequence[int]
) -> tuple[Records, Records, Records]:
    """Return the GPUs, the servers and the ports of a cluster, one port for each server.

    Server s has server_gpus[s] GPUs with memory_bytes[s] each.
    """
    counts = np.array(server_gpus, np.int64)
    gpus, servers = zeros(int(counts.sum()), GPU), zeros(len(counts), SERVER)
    servers.gpus[:] = counts
    servers.first_gpu[:] = np.cumsum(counts) - counts
    servers.first_port[:] = np.arange(len(counts))
    servers.rails[:] = 1
    gpus.server[:] = np.repeat(np.arange(len(counts)), counts)
    gpus.memory_bytes[:] = gpus.free_bytes[:] = np.repeat(np.array(memory_bytes, np.int64), counts)
    gpus.held[:] = NOBODY
    return gpus, servers, _ports(np.ones(len(counts)), 1, np.arange(len(counts)), NOBODY)


def lay_out_cluster(cluster: Cluster) -> tuple[Records, Records, Records]:
    """Return the GPUs, the servers and the ports of a cluster."""
    memory_bytes = [cluster.gpu_types[type_].memory_bytes for type_ in cluster.server_type]
    gpus, servers, _ = lay_out_servers(cluster.server_gpus, memory_bytes)
    gpus.type[:] = cluster.type_of_gpu
    rails, fabric = np.array(cluster.server_rails, np.int64), cluster.fabric
    servers.rack[:] = cluster.server_rack
    servers.first_port[:] = np.cumsum(rails) - rails
    servers.rails[:] = rails
    return gpus, servers, _ports(fabric.factor, fabric.carries, fabric.server, fabric.above)


def _ports(
    factor: NDArray[Any],
    carries: NDArray[Any] | int,
    server: NDArray[Any],
    above: NDArray[Any] | int,
) -> Records:
    ports = zeros(len(factor), PORT)
    ports.factor[:], ports.carries[:] = factor, carries
    ports.server[:], ports.above[:] = server, above
    ports.first_in_flight[:] = ports.held[:] = NOBODY
    return ports


def prepare_jobs(jobs: NDArray[Any], messages: NDArray[Any], a_ns: int) -> None:
    """Set what all jobs, and their messages, have in common before they are placed."""
    jobs["start_ns"] = jobs["finish_ns"] = jobs["graph"] = NOBODY
    messages["latency_ns"] = a_ns
    messages["byte_weight"] = 1.0
