"""AdaDUAL."""

from __future__ import annotations

import math

from headway.policies import NO_LIMIT, ClusterView, admission_policy, bytes_left


@admission_policy("ada-dual", by_port=True, timeless=True)
def ada_dual(cluster: ClusterView, port: int, parameter: float) -> int:
    """AdaDUAL: join one other message only if that lowers the average (Algorithm 2).

    No message on a server: start. One: start if M_new < theta * M_old, with theta = b / (2 * (b +
    eta)) and M_old what the other has left (Theorem 2). More: wait.
    """
    if cluster.ports[port].messages == 0:
        return NO_LIMIT
    if cluster.ports[port].messages > 1:
        return 0
    b, eta = cluster.system[0].b_ns_per_byte, cluster.system[0].eta_ns_per_byte
    theta: float = b / (2 * (b + eta))
    other = cluster.links[cluster.ports[port].first_in_flight].message
    return math.ceil(theta * bytes_left(cluster, other))
