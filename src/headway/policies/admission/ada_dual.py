"""AdaDUAL."""

from __future__ import annotations

from headway.policies import (
    ADMIT,
    NOBODY,
    ClusterView,
    admission_policy,
    bytes_left,
    full,
    too_large,
)


@admission_policy("ada-dual", steady=True, timeless=True)
def ada_dual(cluster: ClusterView, message: int, parameter: float) -> int:
    """AdaDUAL: join one other message only if that lowers the average (Algorithm 2).

    No message there: start. At most one on each server: start if, for each of them,
    M_new < theta * M_old with theta = b / (2 * (b + eta)) and M_old what it has left (Theorem 2).
    More: wait.
    """
    b, eta = cluster.system[0].b_ns_per_byte, cluster.system[0].eta_ns_per_byte
    theta = b / (2 * (b + eta))
    first = cluster.messages[message].first_link
    for own_link in range(first, first + cluster.messages[message].links):
        port = cluster.links[own_link].port
        if cluster.ports[port].messages > 1:
            return full(port)
        link = cluster.ports[port].first_in_flight
        if link != NOBODY:
            left = bytes_left(cluster, cluster.links[link].message)
            if not cluster.messages[message].bytes < theta * left:
                return too_large(port)
    return ADMIT
