"""The built-in admissions by port as functions of a message that promise nothing, for tests."""

from __future__ import annotations

from headway.policies import (
    NO_LIMIT,
    NOBODY,
    ClusterView,
    Parameter,
    admission_policy,
    bytes_left,
    messages_in_the_way,
    most_messages,
)


@admission_policy("at-most", parameter=Parameter("n", least=1, integer=True))
def at_most(cluster: ClusterView, message: int, most_allowed: float) -> bool:
    """As `srsf:N`."""
    return bool(most_messages(cluster, message) < most_allowed)


@admission_policy("ada")
def ada(cluster: ClusterView, message: int, parameter: float) -> bool:
    """As `ada-dual`."""
    if most_messages(cluster, message) > 1:
        return False
    b, eta = cluster.system[0].b_ns_per_byte, cluster.system[0].eta_ns_per_byte
    theta = b / (2 * (b + eta))
    first = cluster.messages[message].first_link
    for own_link in range(first, first + cluster.messages[message].links):
        port = cluster.links[own_link].port
        link = cluster.ports[port].first_in_flight
        while messages_in_the_way(cluster, port) > 0 and link != NOBODY:
            left = bytes_left(cluster, cluster.links[link].message)
            if not cluster.messages[message].bytes < theta * left:
                return False
            link = cluster.links[link].next
    return True


@admission_policy("patient-by-message", parameter=Parameter("share", least=0))
def patient(cluster: ClusterView, message: int, share: float) -> bool:
    """Join messages that have, each, at least `share` times as much left."""
    first = cluster.messages[message].first_link
    for own_link in range(first, first + cluster.messages[message].links):
        link = cluster.ports[cluster.links[own_link].port].first_in_flight
        while link != NOBODY:
            left = bytes_left(cluster, cluster.links[link].message)
            if cluster.messages[message].bytes >= int(left / share):
                return False
            link = cluster.links[link].next
    return True


@admission_policy(
    "patient-by-port", parameter=Parameter("share", least=0), by_port=True, timeless=True
)
def patient_by_port(cluster: ClusterView, port: int, share: float) -> int:
    """As `patient`."""
    limit = NO_LIMIT
    link = cluster.ports[port].first_in_flight
    while link != NOBODY:
        left = bytes_left(cluster, cluster.links[link].message)
        limit = min(limit, int(left / share))
        link = cluster.links[link].next
    return limit
