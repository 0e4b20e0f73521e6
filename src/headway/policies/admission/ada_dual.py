"""AdaDUAL."""

from __future__ import annotations

import math

from headway.policies import (
    NO_LIMIT,
    NOBODY,
    ClusterView,
    admission_policy,
    bytes_left,
    messages_in_the_way,
)


@admission_policy("ada-dual", by_port=True, timeless=True)
def ada_dual(cluster: ClusterView, port: int, parameter: float) -> int:
    """AdaDUAL: join one other message only if that lowers the average (Algorithm 2).

    No message in the way on a server: start. One: start if M_new < theta * M_old, with theta = b /
    (2 * (b + eta)) and M_old what the other has left (Theorem 2). More: wait. On an uplink that
    carries several messages, one is in the way when that many are there, and M_old is the least.
    """
    in_the_way = messages_in_the_way(cluster, port)
    if in_the_way == 0:
        return NO_LIMIT
    if in_the_way > 1:
        return 0
    b, eta = cluster.system[0].b_ns_per_byte, cluster.system[0].eta_ns_per_byte
    theta: float = b / (2 * (b + eta))
    link = cluster.ports[port].first_in_flight
    least = bytes_left(cluster, cluster.links[link].message)
    while cluster.links[link].next != NOBODY:
        link = cluster.links[link].next
        least = min(least, bytes_left(cluster, cluster.links[link].message))
    return math.ceil(theta * least)
