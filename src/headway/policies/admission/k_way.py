"""AdaDUAL's question for any number of running messages."""

from __future__ import annotations

from headway.policies import (
    NOBODY,
    ClusterView,
    admission_policy,
    bytes_left,
    messages_in_the_way,
)


@admission_policy("k-way")
def k_way(cluster: ClusterView, message: int, parameter: float) -> bool:
    """k-way: join any number of messages if no later start lowers the average more.

    With M the message's bytes, r_i what the messages on a server have left and theta as in AdaDUAL,
    start if on every server, for every message j there,

        min(M, r_j) + sum over i != j of
            (min(M, r_i) - min(M, max(0, r_i - r_j)) - min(r_i, r_j) / 2)  <  theta * r_j

    added from the message that started last to the one that started first. It says that starting
    now ends all of them sooner, on average, than starting when j ends. No other start can be best
    (docs/policies/k-way.md). With one message on a server it is AdaDUAL's rule. An uplink where no
    message is in the way does not count.

    Not steady: of two messages on a server one may be slowed down by a third on another server, and
    as what they have left changes unequally a refusal may turn.
    """
    b, eta = cluster.system[0].b_ns_per_byte, cluster.system[0].eta_ns_per_byte
    theta = b / (2 * (b + eta))
    size = float(cluster.messages[message].bytes)
    first = cluster.messages[message].first_link
    for own_link in range(first, first + cluster.messages[message].links):
        port = cluster.links[own_link].port
        if messages_in_the_way(cluster, port) == 0:
            continue
        first_link = cluster.ports[port].first_in_flight
        link = first_link
        while link != NOBODY:
            left = bytes_left(cluster, cluster.links[link].message)
            balance = min(size, left)
            other_link = first_link
            while other_link != NOBODY:
                if other_link != link:
                    other = bytes_left(cluster, cluster.links[other_link].message)
                    shared_later = min(size, max(0.0, other - left))
                    balance += min(size, other) - shared_later - min(other, left) / 2
                other_link = cluster.links[other_link].next
            if not balance < theta * left:
                return False
            link = cluster.links[link].next
    return True
