"""Helpers for placements that decide how many GPUs each server gives."""

from __future__ import annotations

import numpy as np

from headway.domain.records import NOBODY, ClusterView, Integers
from headway.jit import routine
from headway.policies.ordering import bring_forward, put_least_first


@routine
def count_by_server(cluster: ClusterView, candidates: Integers) -> Integers:
    """Return how many candidates each server has."""
    counts = np.zeros(len(cluster.servers), np.int64)
    for gpu in candidates:
        counts[cluster.gpus[gpu].server] += 1
    return counts


@routine
def servers_with(counts: Integers) -> Integers:
    """Return how many servers have 0, 1, 2, … of what is counted."""
    most = 0
    for count in counts:
        most = max(most, count)
    numbers = np.zeros(most + 1, np.int64)
    for count in counts:
        numbers[count] += 1
    return numbers


@routine
def take_from_servers(
    cluster: ClusterView, candidates: Integers, counts: Integers, shares: Integers
) -> None:
    """Put shares[S] candidates of each server S first: those with the least (L_g, g).

    Candidates come in ascending g, and so server by server, counts[S] of each.
    """
    taken, start = 0, 0
    for server in range(len(counts)):
        if shares[server] > 0:
            own = candidates[start : start + counts[server]]
            put_least_first(own, cluster.gpus.load_ns, shares[server])
            bring_forward(candidates, start, shares[server], taken)
            taken += shares[server]
        start += counts[server]


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
