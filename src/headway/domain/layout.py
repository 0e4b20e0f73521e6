"""The arrays of a cluster that nothing runs on, for the engine and the live core alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.records import GPU, NOBODY, PORT, SERVER, Records, zeros


def lay_out_servers(
    server_gpus: Sequence[int], memory_bytes: Sequence[int], uplinks: Sequence[float] = ()
) -> tuple[Records, Records, Records]:
    """Return the GPUs, the servers and the ports of a cluster.

    Server s has server_gpus[s] GPUs with memory_bytes[s] each; uplinks[r] is the cost of a byte on
    the uplink of rack r relative to its cost on a server's port.
    """
    counts = np.array(server_gpus, np.int64)
    gpus, servers = zeros(int(counts.sum()), GPU), zeros(len(counts), SERVER)
    ports = zeros(len(counts) + len(uplinks), PORT)
    servers.gpus[:] = counts
    servers.first_gpu[:] = np.cumsum(counts) - counts
    gpus.server[:] = np.repeat(np.arange(len(counts)), counts)
    gpus.memory_bytes[:] = gpus.free_bytes[:] = np.repeat(np.array(memory_bytes, np.int64), counts)
    ports.factor[:] = [*[1.0] * len(counts), *uplinks]
    gpus.held[:] = ports.first_in_flight[:] = ports.held[:] = NOBODY
    return gpus, servers, ports


def prepare_jobs(jobs: NDArray[Any], messages: NDArray[Any], a_ns: int) -> None:
    """Set what all jobs, and their messages, have in common before they are placed."""
    jobs["start_ns"] = jobs["finish_ns"] = jobs["graph"] = NOBODY
    messages["latency_ns"] = a_ns
    messages["byte_weight"] = 1.0
