"""Max-min fair shares: a message held back on one link leaves the rest of its share to others.

docs/model.md ("Fair shares") defines it. A port with k messages has k shares, and a message whose
byte costs c takes F / c of them, where F is the cost of a byte if each has one share. Costs rather
than speeds are computed, so that F itself comes out where nothing is left over.
"""

from __future__ import annotations

from headway.domain.records import NOBODY, ClusterView, Floats, Integers, Records
from headway.jit import part
from headway.network.laws import busiest
from headway.network.messages import cost_ns_per_byte
from headway.network.traffic import Traffic, rate, touch

alone_ns_per_byte = busiest.alone_ns_per_byte


@part
def update_costs(cluster: ClusterView, traffic: Traffic) -> int:
    """Update the costs of the messages that common ports connect, one by one, with a touched port.

    No others can have another share than before. All ports of those found are touched, too.
    """
    messages, links, counts = cluster.messages, cluster.links, traffic.counts
    counts[0].searches += 1
    found, i = 0, 0
    while i < counts[0].touched:
        link = cluster.ports[traffic.touched[i]].first_in_flight
        i += 1
        while link != NOBODY:
            message = links[link].message
            if traffic.seen[message] != counts[0].searches:
                traffic.seen[message] = counts[0].searches
                traffic.costs[message] = 0.0
                traffic.found[found] = message
                found += 1
                first = messages[message].first_link
                for own in range(first, first + messages[message].links):
                    touch(traffic, links[own].port)
            link = links[link].next
    ports = traffic.scratch
    for i in range(counts[0].touched):
        ports[i] = traffic.touched[i]
    share_fairly(cluster, ports, counts[0].touched, traffic.shares, traffic.costs)
    changed = 0
    for i in range(found):
        message = traffic.found[i]
        if rate(cluster, message, messages[message].byte_weight * traffic.costs[message]):
            traffic.found[changed] = message
            changed += 1
    return changed


@part
def share_fairly(
    cluster: ClusterView, ports: Integers, count: int, shares: Records, costs: Floats
) -> None:
    """Find the cost of a byte of each message on ports[:count], in ns, but for its weight.

    These must be all ports of their messages, whose `costs` must be 0; the list is used up.
    """
    for i in range(count):
        _open(cluster, ports[i], shares)
    while True:
        dearest, kept = NOBODY, 0
        for i in range(count):
            port = ports[i]
            if shares[port].open > 0:
                ports[kept] = port
                kept += 1
                if dearest == NOBODY or _is_dearer(shares, port, dearest):
                    dearest = port
        if dearest == NOBODY:
            return
        count = kept
        _fill(cluster, dearest, shares, costs)


@part
def _open(cluster: ClusterView, port: int, shares: Records) -> None:
    """Prepare a port: none of its messages has a cost yet."""
    system, messages = cluster.system[0], cluster.ports[port].messages
    cost = cost_ns_per_byte(messages, system.b_ns_per_byte, system.eta_ns_per_byte)
    shares[port].equal_ns_per_byte = cluster.ports[port].factor * cost
    shares[port].open_ns_per_byte = shares[port].equal_ns_per_byte
    shares[port].left = messages
    shares[port].open = messages


@part
def _is_dearer(shares: Records, port: int, other: int) -> bool:
    """Whether a byte costs more on one port than on another; the lower port wins ties."""
    cost, other_cost = shares[port].open_ns_per_byte, shares[other].open_ns_per_byte
    return bool(cost > other_cost or (cost == other_cost and port < other))


@part
def _fill(cluster: ClusterView, port: int, shares: Records, costs: Floats) -> None:
    """Give the open messages on a port their cost; on all their ports they take their shares."""
    messages, links = cluster.messages, cluster.links
    cost = shares[port].open_ns_per_byte
    link = cluster.ports[port].first_in_flight
    while link != NOBODY:
        message = links[link].message
        if costs[message] == 0.0:
            costs[message] = cost
            first = messages[message].first_link
            for own in range(first, first + messages[message].links):
                used = links[own].port
                equal = shares[used].equal_ns_per_byte
                shares[used].left -= equal / cost
                shares[used].open -= 1
                if shares[used].open > 0:
                    open_share = shares[used].open / shares[used].left
                    shares[used].open_ns_per_byte = equal * open_share
        link = links[link].next
