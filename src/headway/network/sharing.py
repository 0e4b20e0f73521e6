"""Max-min sharing: who is held back on one link leaves the rest of its share there to others.

Compiled; docs/model.md ("Fair shares") defines it. A port with k messages has k shares, and a
message whose byte costs c takes F / c of them, where F is what a byte costs if all have one share.
Costs rather than speeds are computed, so that F itself comes out where nothing is left over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.domain.records import NOBODY, ClusterView, Records
from headway.jit import inlined, part
from headway.network.messages import cost_ns_per_byte

SHARE = np.dtype(
    [
        ("equal_ns_per_byte", np.float64),  # F: what a byte costs if all messages share equally
        ("open_ns_per_byte", np.float64),  # … and if the open ones share equally what is left
        ("left", np.float64),  # shares
        ("open", np.int64),  # messages without a cost
    ],
    align=True,
)
"""A port while costs are being found."""


@part
def share_fairly(
    cluster: ClusterView,
    ports: NDArray[np.int64],
    count: int,
    shares: Records,
    costs: NDArray[np.float64],
) -> None:
    """Find what a byte of each message on ports[:count] costs, in ns, but for its weight.

    These must be all ports of their messages, whose `costs` must be 0; the list is used up.
    """
    for turn in range(count):
        _open(cluster, ports[turn], shares)
    while True:
        dearest, kept = NOBODY, 0
        for turn in range(count):
            port = ports[turn]
            if shares[port].open > 0:
                ports[kept] = port
                kept += 1
                if dearest == NOBODY or _is_dearer(shares, port, dearest):
                    dearest = port
        if dearest == NOBODY:
            return
        count = kept
        _fill(cluster, dearest, shares, costs)


@inlined
def _open(cluster: ClusterView, port: int, shares: Records) -> None:
    """Let no message on a port have a cost yet."""
    system, messages = cluster.system[0], cluster.ports[port].messages
    cost = cost_ns_per_byte(messages, system.b_ns_per_byte, system.eta_ns_per_byte)
    shares[port].equal_ns_per_byte = cluster.ports[port].factor * cost
    shares[port].open_ns_per_byte = shares[port].equal_ns_per_byte
    shares[port].left = messages
    shares[port].open = messages


@inlined
def _is_dearer(shares: Records, port: int, other: int) -> bool:
    """Whether a byte costs more on one port than on another, or as much and it comes first."""
    cost, other_cost = shares[port].open_ns_per_byte, shares[other].open_ns_per_byte
    return bool(cost > other_cost or (cost == other_cost and port < other))


@inlined
def _fill(cluster: ClusterView, port: int, shares: Records, costs: NDArray[np.float64]) -> None:
    """Give the open messages on a port their cost; on all their ports they take their shares."""
    jobs, links = cluster.jobs, cluster.links
    cost = shares[port].open_ns_per_byte
    link = cluster.ports[port].first_message
    while link != NOBODY:
        job = links[link].job
        if costs[job] == 0.0:
            costs[job] = cost
            first = jobs[job].first_link
            for own in range(first, first + jobs[job].links):
                used = links[own].port
                equal = shares[used].equal_ns_per_byte
                shares[used].left -= equal / cost
                shares[used].open -= 1
                if shares[used].open > 0:
                    open_share = shares[used].open / shares[used].left
                    shares[used].open_ns_per_byte = equal * open_share
        link = links[link].next
