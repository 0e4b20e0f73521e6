"""Consolidation.

Placing a job in as few servers as possible, whatever its model, is the rule that J. Gu et al.,
"Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, section 2, describe as
the common practice before them; there a job waits until it can be consolidated, here it does not.
"""

from __future__ import annotations

import numpy as np

from headway.domain.records import NOBODY, ClusterView
from headway.jit import routine
from headway.policies.ordering import Integers, stable_sort
from headway.policies.registry import placement_policy


@routine
def count_by_server(cluster: ClusterView, candidates: Integers) -> Integers:
    """Return how many candidates each server has."""
    counts = np.zeros(len(cluster.servers), np.int64)
    for gpu in candidates:
        counts[cluster.gpus[gpu].server] += 1
    return counts


@routine
def take_fewest_servers(
    cluster: ClusterView, candidates: Integers, counts: Integers, wanted: int
) -> None:
    """Put the candidates of the fewest servers with `wanted` of them first.

    A server gives all its `counts` GPUs or, the last one, those with the least (L_g, g). While no
    server has enough for what is left, the next is the one with most; the last is the one with the
    fewest that are enough. Ties go to the lowest number.
    """
    last = len(cluster.servers)
    turns = np.full(last, last, np.int64)
    turn, left = 0, wanted
    while left > 0:
        most, best = NOBODY, NOBODY
        for server in range(last):
            if turns[server] < last:
                continue
            if most == NOBODY or counts[server] > counts[most]:
                most = server
            if counts[server] >= left and (best == NOBODY or counts[server] < counts[best]):
                best = server
        if best == NOBODY:
            best = most
        turns[best] = turn
        turn += 1
        left -= counts[best]
    stable_sort(candidates, cluster.gpus.load_ns)
    stable_sort(candidates, turns[cluster.gpus.server])


@placement_policy("consolidate", steady=True)
def consolidate(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Consolidate: the fewest servers that hold the job, the last of them the best fit."""
    counts = count_by_server(cluster, candidates)
    take_fewest_servers(cluster, candidates, counts, cluster.jobs[job].gpus)
    return True
