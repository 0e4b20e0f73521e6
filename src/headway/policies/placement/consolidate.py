"""Consolidation.

Placing a job in as few servers as possible, whatever its model, is the rule that J. Gu et al.,
"Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, section 2, describe as
the common practice before them; there a job waits until it can be consolidated, here it does not.
"""

from __future__ import annotations

import numpy as np

from headway.domain.records import NOBODY, ClusterView
from headway.jit import routine
from headway.policies.ordering import Integers
from headway.policies.placement.by_server import count_by_server, servers_with, take_from_servers
from headway.policies.registry import placement_policy


@routine
def fewest_servers(counts: Integers, wanted: int) -> Integers:
    """Return how many of `wanted` GPUs each server gives, so that the fewest servers give any.

    A server has counts[S] to give; together they have enough. While no server has enough for what
    is left, the next is the one with most, and it gives all; the last is the one with the fewest
    that are enough. Ties go to the lowest number.
    """
    # Servers with more than `most` give all; so do the first `full` of those with just `most`.
    numbers = servers_with(counts)
    most, full, left = len(numbers) - 1, 0, wanted
    while True:
        full = min(numbers[most], (left - 1) // most)
        left -= full * most
        if full < numbers[most]:
            break
        most -= 1
    shares = np.zeros(len(counts), np.int64)
    last = NOBODY
    for server in range(len(counts)):
        if counts[server] > most or (counts[server] == most and full > 0):
            shares[server] = counts[server]
            full -= counts[server] == most
        elif counts[server] >= left and (last == NOBODY or counts[server] < counts[last]):
            last = server
    shares[last] = left
    return shares


@placement_policy("consolidate", steady=True, timeless=True)
def consolidate(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Consolidate: the fewest servers that hold the job, the last of them the best fit."""
    counts = count_by_server(cluster, candidates)
    shares = fewest_servers(counts, cluster.jobs[job].gpus)
    take_from_servers(cluster, candidates, counts, shares)
    return True
