"""The links of a cluster: the rails of its servers, and the uplinks of the switches above them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.domain.records import NOBODY

if TYPE_CHECKING:
    from headway.domain.cluster import Cluster

Integers = NDArray[np.int64]


class Fabric:
    """All links: rails, server by server, then uplinks, tier by tier, in the order of switches."""

    factor: NDArray[np.float64]
    """The cost of a byte on each link relative to its cost on a rail."""
    carries: Integers
    """How many messages each link has room for: 1 on a rail, and on an uplink at least 1."""
    server: Integers
    """The server of each rail, NOBODY for an uplink."""
    above: Integers
    """The uplink of the switch over each link, or NOBODY."""
    rail_of_gpu: Integers
    """The link of each GPU."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        rails = np.array(cluster.server_rails, np.int64)
        server = np.repeat(np.arange(len(rails)), rails)
        sizes = [len(server), *map(len, cluster.uplinks)]
        first = np.cumsum(sizes) - sizes
        self.above = np.full(sum(sizes), NOBODY, np.int64)
        below = np.arange(len(server))
        for index in range(len(cluster.uplinks)):
            over = first[index + 1] + np.array(cluster.server_switches[index], np.int64)[server]
            self.above[below] = over
            below = over
        self.server = np.full(sum(sizes), NOBODY, np.int64)
        self.server[: len(server)] = server
        self.factor = np.array([*[1.0] * len(server), *chain.from_iterable(cluster.uplinks)])
        self.carries = np.ones(sum(sizes), np.int64)
        self.carries[len(server) :] = list(chain.from_iterable(cluster.uplink_carries))
        self.rail_of_gpu = rail_of_gpu(cluster.server_gpus, cluster.server_rails)

    @property
    def tiers(self) -> list[str]:
        """The tier of each link: `server`, or that of the switch."""
        cluster = self._cluster
        tiers = zip(cluster.all_tiers, cluster.uplinks, strict=False)
        uplinks = chain.from_iterable([tier.name] * len(links) for tier, links in tiers)
        return [*["server"] * sum(cluster.server_rails), *uplinks]

    @property
    def names(self) -> list[str]:
        """The name of each link."""
        cluster = self._cluster
        names = [
            f"server {server}" + (f" rail {rail}" if rails > 1 else "")
            for server, rails in enumerate(cluster.server_rails)
            for rail in range(rails)
        ]
        tiers = zip(cluster.all_tiers, cluster.switch_names, cluster.uplinks, strict=False)
        return names + [f"{tier.name} {name}" for tier, switches, _ in tiers for name in switches]

    def shares(self, gpus: Iterable[int]) -> dict[int, float]:
        """Return the links of a message among ranks on these GPUs, with its share of each.

        The share is the part of the message's bytes that goes over the link. A message on one
        server has no links.
        """
        ranks = Counter(int(self.rail_of_gpu[gpu]) for gpu in gpus)
        together: Counter[int] = Counter()
        for link, count in ranks.items():
            together[int(self.server[link])] += count
        if len(together) == 1:
            return {}
        shares = {link: ranks[link] / together[int(self.server[link])] for link in sorted(ranks)}
        level = sorted({int(self.above[link]) for link in shares})
        while len(level) > 1:
            shares |= dict.fromkeys(level, 1.0)
            level = sorted({int(self.above[link]) for link in level})
        return shares

    def alone(self, gpus: Iterable[int], uplinks: bool = True) -> float:
        """Return the cost of a byte of such a message alone, relative to that on one rail."""
        shares = self.shares(gpus).items()
        factors = [
            self.factor[link] * share
            for link, share in shares
            if uplinks or self.server[link] != NOBODY
        ]
        return float(max(factors, default=1.0))


def rail_of_gpu(server_gpus: Sequence[int], server_rails: Sequence[int]) -> Integers:
    """Return the rail of each GPU: each has a block of its server's GPUs."""
    gpus, rails = np.array(server_gpus, np.int64), np.array(server_rails, np.int64)
    server = np.repeat(np.arange(len(gpus)), gpus)
    index = np.arange(len(server)) - (np.cumsum(gpus) - gpus)[server]
    first = (np.cumsum(rails) - rails)[server]
    found: Integers = first + index * rails[server] // gpus[server]
    return found
