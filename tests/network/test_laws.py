"""The laws of contention, and costs by the number of servers, on networks made by hand.

b is 1 and eta 0.5 ns per byte: cost(1) = 1, cost(2) = 2.5, cost(3) = 4.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.records import (
    GPU,
    JOB,
    LINK,
    MESSAGE,
    MESSAGE_GROUP,
    NOBODY,
    PORT,
    SEAT,
    SERVER,
    SYSTEM,
    ClusterView,
    zeros,
)
from headway.network.contention import NetworkModel, cost_ns_per_byte
from headway.network.cuts import sending_by_server
from headway.network.laws.dispatch import alone_ns_per_byte, update_costs
from headway.network.laws.max_min import share_fairly
from headway.network.laws.registry import LAWS, index_of
from headway.network.traffic import SHARE, make_traffic, start_message

B, ETA = 1.0, 0.5


def view_of(
    ports_of: list[list[int]], factors: list[float], b: float = B, eta: float = ETA
) -> ClusterView:
    """Return a network where message j is on the ports ports_of[j]."""
    links = zeros(sum(map(len, ports_of)), LINK)
    ports, messages = zeros(len(factors), PORT), zeros(len(ports_of), MESSAGE)
    system = zeros(1, SYSTEM)
    system.b_ns_per_byte[:], system.eta_ns_per_byte[:], system.messages_meet[:] = b, eta, 1
    ports.factor[:], ports.carries[:] = factors, 1
    ports.first_in_flight[:] = NOBODY
    messages.byte_weight[:] = 1.0
    link = 0
    for message, used in enumerate(ports_of):
        messages[message].first_link, messages[message].links = link, len(used)
        for port in used:
            links[link].message, links[link].port = message, port
            links[link].next = ports[port].first_in_flight
            ports[port].first_in_flight = link
            ports[port].messages += 1
            link += 1
    gpus, servers, seats = zeros(1, GPU), zeros(1, SERVER), zeros(1, SEAT)
    return ClusterView(
        system=system,
        jobs=zeros(1, JOB),
        messages=messages,
        message_groups=zeros(0, MESSAGE_GROUP),
        ranks=np.zeros(0, np.int64),
        gpus=gpus,
        servers=servers,
        seats=seats,
        links=links,
        sending_ns=np.zeros(0, np.int64),
        shares=np.zeros(0),
        ports=ports,
        sending_by_server=sending_by_server,
    )


def costs_in(view: ClusterView, ports: list[int]) -> list[float]:
    """Share these ports; return what a byte of each message costs, 0 where it is on none."""
    costs = np.zeros(len(view.messages))
    listed = np.array(ports, np.int64)
    share_fairly(view, listed, len(ports), zeros(len(view.ports), SHARE), costs)
    return [float(cost) for cost in costs]


def shared(ports_of: list[list[int]], factors: list[float]) -> list[float]:
    return costs_in(view_of(ports_of, factors), list(range(len(factors))))


def test_a_message_alone_costs_b_or_what_its_uplink_does() -> None:
    assert shared([[0, 1]], [1.0, 1.0]) == [1.0]
    assert shared([[0, 1, 2, 3]], [1.0, 1.0, 2.0, 0.25]) == [2.0]


@pytest.mark.parametrize("k", range(1, 9))
def test_messages_that_meet_on_one_link_cost_what_the_paper_says_to_the_bit(k: int) -> None:
    b, eta = 0.853, 0.235
    view = view_of([[0, 1 + job] for job in range(k)], [1.0] * (1 + k), b, eta)
    assert costs_in(view, list(range(1 + k))) == [cost_ns_per_byte(k, b, eta)] * k


def test_in_a_chain_no_message_leaves_anything() -> None:
    """Messages on {0, 1}, {1, 2} and {2, 3}: both middle links are full, the outer ones not."""
    assert shared([[0, 1], [1, 2], [2, 3]], [1.0] * 4) == [2.5, 2.5, 2.5]


def test_a_message_that_is_held_back_leaves_its_share_elsewhere_to_another() -> None:
    """Three on link 0 cost 4 each; the third leaves 2 - 2.5 / 4 shares of link 1 to the fourth."""
    costs = shared([[0, 2], [0, 3], [0, 1], [1, 4]], [1.0] * 5)
    assert costs == [4.0, 4.0, 4.0, 2.5 * (1 / 1.375)]
    assert view_busiest([[0, 2], [0, 3], [0, 1], [1, 4]], 5)[3] == 2.5


def view_busiest(ports_of: list[list[int]], ports: int) -> list[float]:
    """Return the costs in the paper's model, on servers alone."""
    view = view_of(ports_of, [1.0] * ports)
    view.messages.servers[:] = view.messages.links
    return costs_by("busiest", view)


def costs_by(law: str, view: ClusterView) -> list[float]:
    """Return the costs by a law once every port has been touched, 0 for messages on no port."""
    view.system.law[:] = index_of(law)
    traffic = make_traffic(len(view.messages), len(view.ports))
    traffic.touched[:], traffic.is_touched[:] = range(len(view.ports)), 1
    traffic.counts.touched[:] = len(view.ports)
    changed = update_costs(view, traffic)
    assert len(set(traffic.found[:changed].tolist())) == changed
    return [float(cost) for cost in view.messages.cost_ns_per_byte]


@pytest.mark.parametrize("law", LAWS)
def test_by_every_law_a_message_alone_has_the_cost_of_a_message_alone(law: str) -> None:
    """It starts on a network without others; uplinks count wherever messages meet."""
    view = view_of([[0, 1, 2, 3]], [1.0, 1.0, 2.0, 0.25])
    view.ports.first_in_flight[:], view.ports.messages[:] = NOBODY, 0
    view.system.law[:], view.system.messages_meet[:] = index_of(law), LAWS[law].messages_meet
    traffic = make_traffic(1, 4)
    start_message(view, traffic, 0)
    assert update_costs(view, traffic) == 1
    expected = 2.0 if LAWS[law].messages_meet else 1.0
    assert view.messages.cost_ns_per_byte[0] == alone_ns_per_byte(view, 0) == expected


def test_the_laws_are_numbered_in_the_order_of_the_registry() -> None:
    assert [index_of(law) for law in LAWS] == list(range(len(LAWS)))


def test_on_uplinks_the_busiest_link_is_the_slowest() -> None:
    view = view_of([[0, 1], [1, 2], [1, 2]], [1.0, 1.0, 0.75])
    assert costs_by("busiest", view) == [4.0, 4.0, 4.0]
    view.ports.factor[2] = 3.0
    assert costs_by("busiest", view) == [4.0, 7.5, 7.5]
    view.messages.byte_weight[0] = 1.5
    assert costs_by("busiest", view) == [6.0, 7.5, 7.5]
    assert costs_by("max-min", view)[1:] == [7.5, 7.5]


def test_what_is_left_over_goes_round_by_round_from_the_fullest_link_on() -> None:
    """Link 0 has four messages, 1 three, 2 two; each next link has one of the one before.

    cost(4) = 5.5: the message on both leaves link 1 3 - 4 / 5.5 shares for two.
    """
    ports_of = [[0, 3], [0, 4], [0, 5], [0, 1], [1, 6], [1, 2], [2, 7]]
    second = 4.0 * (2 / (3 - 4.0 / 5.5))
    third = 2.5 * (1 / (2 - 2.5 / second))
    assert shared(ports_of, [1.0] * 8) == [5.5] * 4 + [second] * 2 + [third]


def test_an_uplink_that_carries_little_leaves_the_servers_to_others() -> None:
    """One message crosses racks, on an uplink of factor 10; another stays on server 0."""
    crossing, inside = shared([[0, 2, 3, 4], [0, 1]], [1.0, 1.0, 1.0, 10.0, 10.0])
    assert crossing == 10.0
    assert inside == 2.5 * (1 / (2 - 2.5 / 10))


def test_a_wide_uplink_makes_no_message_faster_than_one_alone() -> None:
    assert shared([[0, 1, 4, 5], [2, 3, 4, 5]], [1.0] * 4 + [0.01, 0.01]) == [1.0, 1.0]


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[list[int]], list[float]]:
    """Draw messages on servers, some of them on uplinks as well."""
    servers, uplinks = draw(st.integers(2, 7)), draw(st.integers(0, 3))
    ports_of = []
    for _ in range(draw(st.integers(1, 9))):
        own = draw(st.sets(st.integers(0, servers - 1), min_size=2, max_size=4))
        if uplinks > 1 and draw(st.booleans()):
            own |= draw(st.sets(st.integers(servers, servers + uplinks - 1), min_size=2))
        ports_of.append(sorted(own))
    factors = draw(
        st.lists(st.sampled_from([0.1, 0.5, 1.7, 3.0]), min_size=uplinks, max_size=uplinks)
    )
    return ports_of, [1.0] * servers + factors


def equal_cost(ports_of: list[list[int]], factors: list[float], port: int) -> float:
    """Return what a byte costs if a port is shared equally."""
    return factors[port] * cost_ns_per_byte(sum(port in own for own in ports_of), B, ETA)


@given(network=networks())
def test_no_link_is_overloaded_and_every_message_is_held_back_by_a_full_one(
    network: tuple[list[list[int]], list[float]],
) -> None:
    """Max-min: on some full link of each message no other is faster than it."""
    ports_of, factors = network
    costs = shared(*network)
    bottlenecks: set[int] = set()
    for port in range(len(factors)):
        here = [job for job, own in enumerate(ports_of) if port in own]
        if not here:
            continue
        equal = equal_cost(*network, port)
        used = sum(equal / costs[job] for job in here)
        assert used <= len(here) * (1 + 1e-12)
        if used >= len(here) * (1 - 1e-12):
            least = min(costs[job] for job in here)
            bottlenecks |= {job for job in here if costs[job] <= least * (1 + 1e-12)}
    assert bottlenecks == set(range(len(ports_of)))


@given(network=networks())
def test_no_message_is_slower_than_if_every_link_were_shared_equally(
    network: tuple[list[list[int]], list[float]],
) -> None:
    for own, cost in zip(network[0], shared(*network), strict=True):
        dearest = max(equal_cost(*network, port) for port in own)
        assert B * (1 - 1e-12) <= cost <= dearest * (1 + 1e-12)


@given(network=networks(), data=st.data())
def test_parts_without_a_common_link_do_not_change_each_other_by_a_bit(
    network: tuple[list[list[int]], list[float]], data: st.DataObject
) -> None:
    """The ports of one part alone, in any order, give the costs that all together give."""
    ports_of, factors = network
    part = set(ports_of[0])
    while any(part & set(own) and not part >= set(own) for own in ports_of):
        for own in ports_of:
            part |= set(own) if part & set(own) else set()
    view = view_of(ports_of, factors)
    alone = costs_in(view, data.draw(st.permutations(sorted(part))))
    for own, cost, among_all in zip(ports_of, alone, shared(*network), strict=True):
        assert cost == (among_all if part & set(own) else 0.0)


@given(network=networks(), order=st.randoms())
def test_the_order_of_messages_does_not_matter(
    network: tuple[list[list[int]], list[float]], order: st.DataObject
) -> None:
    ports_of, factors = network
    turns = list(range(len(ports_of)))
    order.shuffle(turns)  # type: ignore[attr-defined]
    mixed = shared([ports_of[turn] for turn in turns], factors)
    assert [mixed[turns.index(job)] for job in range(len(turns))] == shared(*network)


def test_a_ring_of_more_servers_has_more_steps_and_more_bytes_to_carry() -> None:
    """Measured among two: four have three times the latency and 3/4 : 1/2 of the bytes."""
    network = NetworkModel(a_ns=1001, ring_size=2)
    assert [network.latency_ns(n) for n in (2, 3, 4)] == [1001, 2002, 3003]
    assert [network.byte_weight(n) for n in (2, 4)] == [1.0, 1.5]
    among_four = NetworkModel(a_ns=1001, ring_size=4)
    assert [among_four.latency_ns(n) for n in (2, 3, 4)] == [334, 667, 1001]
    assert among_four.byte_weight(2) == 0.5 / 0.75


def test_halves_of_a_nanosecond_of_latency_go_to_the_even_neighbour() -> None:
    assert [NetworkModel(a_ns=a, ring_size=3).latency_ns(2) for a in (1, 3, 5)] == [0, 2, 2]


@given(servers=st.integers(2, 2**24))
def test_without_a_number_of_servers_a_and_b_hold_for_any(servers: int) -> None:
    assert NetworkModel().latency_ns(servers) == 669_000
    assert NetworkModel().byte_weight(servers) == 1.0
    assert NetworkModel(ring_size=servers).byte_weight(servers) == 1.0
