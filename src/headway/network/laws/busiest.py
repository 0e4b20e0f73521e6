"""The paper's law: the busiest link of a message sets the cost of its bytes.

On a link with k messages a byte costs k*b + (k-1)*eta; on an uplink, that times its factor, and on
a rail that carries a part of a message, times that part. A message's cost is the highest among its
links.
"""

from __future__ import annotations

from headway.domain.records import NOBODY, ClusterView
from headway.jit import inlined, part
from headway.network.messages import cost_ns_per_byte, largest_k
from headway.network.traffic import Traffic, rate


@inlined
def busiest_ns_per_byte(cluster: ClusterView, message: int) -> float:
    """Return the cost of a message's bytes on the slowest of its links, each shared equally."""
    system, record = cluster.system[0], cluster.messages[message]
    if record.links == record.servers:
        k = largest_k(cluster, message)
        cost = cost_ns_per_byte(k, system.b_ns_per_byte, system.eta_ns_per_byte)
        return float(record.byte_weight * cost)
    slowest = 0.0
    for link in range(record.first_link, record.first_link + record.links):
        port = cluster.ports[cluster.links[link].port]
        k = max(1, port.messages)
        cost = port.factor * cost_ns_per_byte(k, system.b_ns_per_byte, system.eta_ns_per_byte)
        if len(cluster.shares) > 0:
            cost *= cluster.shares[link]
        slowest = max(slowest, cost)
    return float(record.byte_weight * slowest)


@part
def alone_ns_per_byte(cluster: ClusterView, message: int) -> float:
    """Return the cost of a message's bytes where no other message is."""
    system, record = cluster.system[0], cluster.messages[message]
    slowest = 0.0
    for link in range(record.first_link, record.first_link + record.links):
        factor = cluster.ports[cluster.links[link].port].factor
        if len(cluster.shares) > 0:
            factor *= cluster.shares[link]
        cost = cost_ns_per_byte(1, system.b_ns_per_byte, system.eta_ns_per_byte)
        slowest = max(slowest, factor * cost)
    return float(record.byte_weight * slowest)


@inlined
def update_costs(cluster: ClusterView, traffic: Traffic) -> int:
    """Update the costs of the messages on touched ports; no others can have changed."""
    counts = traffic.counts
    counts[0].searches += 1
    changed = 0
    for i in range(counts[0].touched):
        link = cluster.ports[traffic.touched[i]].first_in_flight
        while link != NOBODY:
            message = cluster.links[link].message
            if traffic.seen[message] != counts[0].searches:
                traffic.seen[message] = counts[0].searches
                if rate(cluster, message, busiest_ns_per_byte(cluster, message)):
                    traffic.found[changed] = message
                    changed += 1
            link = cluster.links[link].next
    return changed
