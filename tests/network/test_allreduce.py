"""The paper's table "Cost of Different All-Reduce Algorithms"."""

from __future__ import annotations

import pytest

from headway.domain.errors import InputError
from headway.network.allreduce import ALGORITHMS, Link, network_from_link

LINK = Link(alpha_ns=1000.0, beta_ns_per_byte=0.8, gamma_ns_per_byte=0.1)


@pytest.mark.parametrize(
    ("algorithm", "nodes", "a_ns", "b_ns_per_byte"),
    [
        ("binary-tree", 16, 2 * 1000 * 4, (2 * 0.8 + 0.1) * 4),
        ("recursive-doubling", 16, 1000 * 4, (0.8 + 0.1) * 4),
        ("halving-doubling", 16, 2 * 1000 * 4, 2 * 0.8 - (2 * 0.8 + 0.1) / 16 + 0.1),
        ("ring", 16, 2 * 15 * 1000, 2 * 15 / 16 * 0.8 + 15 / 16 * 0.1),
        ("ring", 2, 2 * 1000, 0.8 + 0.05),
        ("recursive-doubling", 2, 1000, 0.9),
    ],
)
def test_each_algorithm_costs_what_the_table_says(
    algorithm: str, nodes: int, a_ns: int, b_ns_per_byte: float
) -> None:
    network = network_from_link(algorithm, nodes, LINK, eta_ns_per_byte=0.2)
    assert network.a_ns == a_ns
    assert network.b_ns_per_byte == pytest.approx(b_ns_per_byte, rel=1e-12)
    assert network.eta_ns_per_byte == 0.2


def test_ring_and_halving_doubling_send_the_same_bytes() -> None:
    ring, halving = (network_from_link(n, 64, LINK) for n in ("ring", "halving-doubling"))
    assert ring.b_ns_per_byte == pytest.approx(halving.b_ns_per_byte)
    assert ring.a_ns > halving.a_ns


def test_all_four_of_the_paper_are_there() -> None:
    assert list(ALGORITHMS) == ["binary-tree", "recursive-doubling", "halving-doubling", "ring"]


def test_an_unknown_algorithm_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="Did you mean 'ring'"):
        network_from_link("rings", 4, LINK)


def test_one_node_cannot_all_reduce() -> None:
    with pytest.raises(InputError, match="nodes: must be at least 2, not 1"):
        network_from_link("ring", 1, LINK)


def test_a_negative_latency_is_refused() -> None:
    with pytest.raises(InputError, match="alpha_ns: must be 0 or more"):
        Link(-1, 0.8)
