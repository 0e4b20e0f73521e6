"""LWF-kappa."""

from __future__ import annotations

import numpy as np

from headway.policies import (
    ClusterView,
    Integers,
    Parameter,
    count_by_server,
    placement_policy,
    put_least_first,
    sort_by_key,
    take_from_servers,
)


@placement_policy(
    "lwf", parameter=Parameter("kappa", least=1, integer=True), steady=True, timeless=True
)
def least_workload_first(
    cluster: ClusterView, job: int, candidates: Integers, kappa: float
) -> bool:
    """Least workload first: GPUs by load up to kappa GPUs, else server by server (Algorithm 1).

    n <= kappa: ascending (L_g, g). n > kappa: servers by ascending (L_S, S), and within a server
    GPUs by ascending (L_g, g).
    """
    wanted = cluster.jobs[job].gpus
    if wanted <= kappa:
        put_least_first(candidates, cluster.gpus.load_ns, wanted)
        return True
    counts = count_by_server(cluster, candidates)
    servers = np.nonzero(counts)[0]
    put_least_first(servers, cluster.servers.load_ns, wanted)
    servers = servers[:wanted]  # each gives a GPU at least
    sort_by_key(servers, cluster.servers.load_ns)
    shares = np.zeros(len(counts), np.int64)
    for server in servers:
        shares[server] = min(wanted, counts[server])
        wanted -= shares[server]
    take_from_servers(cluster, candidates, counts, shares)
    return True
