"""Spread."""

from __future__ import annotations

import numpy as np

from headway.policies import (
    ClusterView,
    Integers,
    count_by_server,
    placement_policy,
    put_least_first,
    servers_with,
    take_from_servers,
)


@placement_policy("spread", steady=True, timeless=True)
def spread(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Spread: one GPU of each server, then a second of each, and so on.

    A server gives its GPUs in ascending (L_g, g); in each round servers come by ascending (L_S, S).
    """
    counts = count_by_server(cluster, candidates)
    numbers = servers_with(counts)
    rounds, left = 0, cluster.jobs[job].gpus
    giving = len(counts) - numbers[0]  # servers with more than `rounds` candidates
    while 0 < giving <= left:
        left -= giving
        rounds += 1
        giving -= numbers[rounds]
    shares = np.minimum(counts, rounds)
    if left > 0:
        servers = np.nonzero(counts > rounds)[0]
        put_least_first(servers, cluster.servers.load_ns, left)
        for server in servers[:left]:
            shares[server] += 1
    take_from_servers(cluster, candidates, counts, shares)
    return True
