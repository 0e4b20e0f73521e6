"""A network where messages never meet: each goes as if it were alone, and uplinks slow none.

It shows what contention costs.
"""

from __future__ import annotations

from headway.domain.records import NOBODY, ClusterView
from headway.jit import part
from headway.network.traffic import Traffic, rate


@part
def alone_ns_per_byte(cluster: ClusterView, message: int) -> float:
    """Return the cost of a message's bytes: on the rail that carries most of them."""
    record, b_ns_per_byte = cluster.messages[message], cluster.system[0].b_ns_per_byte
    if len(cluster.shares) == 0:
        return float(record.byte_weight * b_ns_per_byte)
    largest = 0.0
    for link in range(record.first_link, record.first_link + record.links):
        if cluster.ports[cluster.links[link].port].server != NOBODY:
            largest = max(largest, cluster.shares[link])
    return float(record.byte_weight * (largest * b_ns_per_byte))


@part
def update_costs(cluster: ClusterView, traffic: Traffic) -> int:
    """Give the messages that have just started their costs, which will not change."""
    changed = 0
    for i in range(traffic.counts[0].sent):
        message = traffic.sent[i]
        if rate(cluster, message, alone_ns_per_byte(cluster, message)):
            traffic.found[changed] = message
            changed += 1
    return changed
