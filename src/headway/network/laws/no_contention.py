"""A network where messages never meet: each goes as if it were alone, and uplinks slow none.

It shows what contention costs.
"""

from __future__ import annotations

from headway.domain.records import ClusterView
from headway.jit import inlined
from headway.network.traffic import Traffic


@inlined
def alone_ns_per_byte(cluster: ClusterView, message: int) -> float:
    """Return the cost of a message's bytes."""
    return float(cluster.messages[message].byte_weight * cluster.system[0].b_ns_per_byte)


@inlined
def find_costs(cluster: ClusterView, traffic: Traffic) -> int:
    """Find the costs of the messages that have just started; they will not change."""
    count = traffic.counts[0].sent
    for i in range(count):
        message = traffic.sent[i]
        traffic.found[i] = message
        traffic.costs[message] = alone_ns_per_byte(cluster, message)
    return int(count)
