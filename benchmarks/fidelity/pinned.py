"""A placement that puts message j of a mix on slot j of the hosts that it was measured on."""

from __future__ import annotations

import numpy as np

from headway.policies import ClusterView, Integers, placement_policy, stable_sort


@placement_policy("pinned", steady=True, timeless=True)
def pinned(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Take the hosts that the bits of the job's memory name."""
    keys = np.ones(len(cluster.gpus), np.int64)
    for server in range(len(cluster.servers)):
        if (cluster.jobs[job].memory_bytes >> server) & 1:
            keys[cluster.servers[server].first_gpu + job] = 0
    stable_sort(candidates, keys)
    return True
