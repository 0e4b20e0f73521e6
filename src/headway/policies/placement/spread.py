"""Spread."""

from __future__ import annotations

import numpy as np

from headway.domain.records import ClusterView
from headway.policies.ordering import Integers, stable_sort
from headway.policies.registry import placement_policy


@placement_policy("spread", steady=True)
def spread(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Spread: one GPU of each server, then a second of each, and so on.

    A server gives its GPUs in ascending (L_g, g); in each round servers come by ascending (L_S, S).
    """
    stable_sort(candidates, cluster.gpus.load_ns)
    given = np.zeros(len(cluster.servers), np.int64)
    rounds = np.zeros(len(cluster.gpus), np.int64)
    for gpu in candidates:
        server = cluster.gpus[gpu].server
        rounds[gpu] = given[server]
        given[server] += 1
    stable_sort(candidates, cluster.gpus.server)
    stable_sort(candidates, cluster.servers.load_ns[cluster.gpus.server])
    stable_sort(candidates, rounds)
    return True
