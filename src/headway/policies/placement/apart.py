"""Interference avoidance.

A. Qiao, S. K. Choe, S. J. Subramanya, W. Neiswanger, Q. Ho, H. Zhang, G. R. Ganger, E. P. Xing,
"Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021, section
4.2: among allocations, only those count in which no two distributed jobs share a server. Pollux
searches them and moves jobs; here a job is placed once, or waits.
"""

from __future__ import annotations

from headway.policies import (
    NOBODY,
    ClusterView,
    Integers,
    count_by_server,
    fewest_servers,
    placement_policy,
    routine,
    servers_with,
    take_from_servers,
)


@routine
def _is_shared(cluster: ClusterView, gpu: int) -> bool:
    """Whether a GPU holds a job of several servers."""
    seat = cluster.gpus[gpu].held
    while seat != NOBODY:
        if cluster.jobs[cluster.seats[seat].job].servers > 1:
            return True
        seat = cluster.seats[seat].beside
    return False


@placement_policy("apart", steady=True, timeless=True)
def apart(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Apart: at most one job of several servers on each server; where there is one already, wait.

    In one server, if one has enough candidates; else as `consolidate` among the servers that hold
    no part of a job of several servers; if these have too few candidates, the job stays queued.
    """
    counts = count_by_server(cluster, candidates)
    wanted = cluster.jobs[job].gpus
    offered = counts.copy()
    if len(servers_with(counts)) <= wanted:
        for gpu in range(len(cluster.gpus)):
            if _is_shared(cluster, gpu):
                offered[cluster.gpus[gpu].server] = 0
        if offered.sum() < wanted:
            return False
    take_from_servers(cluster, candidates, counts, fewest_servers(offered, wanted))
    return True
