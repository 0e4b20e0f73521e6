"""The contention model."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.errors import InputError
from headway.network.contention import NetworkModel

NETWORK = NetworkModel()


@pytest.mark.parametrize(("k", "cost"), [(1, 0.853), (2, 1.941), (3, 3.029), (8, 8.469)])
def test_a_byte_costs_k_b_plus_k_minus_1_eta(k: int, cost: float) -> None:
    assert NETWORK.cost_ns_per_byte(k) == pytest.approx(cost, rel=1e-12)


def test_an_all_reduce_takes_its_latency_and_its_bytes() -> None:
    size = 100 * 2**20
    assert NETWORK.all_reduce_ns(size) == 669_000 + math.ceil(size * 0.853)
    assert NETWORK.all_reduce_ns(size, 2) == 669_000 + math.ceil(size * (2 * 0.853 + 0.235))
    assert NETWORK.all_reduce_ns(0) == 669_000
    assert NetworkModel(a_ns=0).all_reduce_ns(0) == 1


@given(k=st.integers(1, 100), size=st.integers(0, 2**40))
def test_more_messages_never_make_one_faster(k: int, size: int) -> None:
    assert NETWORK.all_reduce_ns(size, k + 1) >= NETWORK.all_reduce_ns(size, k)


def test_without_contention_every_k_costs_as_one() -> None:
    free = NETWORK.without_contention()
    assert [free.cost_ns_per_byte(k) for k in (1, 2, 9)] == [0.853] * 3
    assert free.a_ns == NETWORK.a_ns


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a_ns": -1}, "a_ns: must be at least 0, not -1."),
        ({"a_ns": 0.5}, "a_ns: must be a whole number, not 0.5."),
        (
            {"b_ns_per_byte": 0.0},
            "b_ns_per_byte: must be at least 1e-9 nanoseconds a byte (8e18 bit/s), not 0.",
        ),
        (
            {"b_ns_per_byte": math.nan},
            "b_ns_per_byte: must be from 0 to 1e9 nanoseconds a byte, not nan.",
        ),
        (
            {"eta_ns_per_byte": -0.1},
            "eta_ns_per_byte: must be from 0 to 1e9 nanoseconds a byte, not -0.1.",
        ),
        ({"eta_ns_per_byte": "much"}, "eta_ns_per_byte: must be a number, not 'much'."),
        ({"law": "max_min"}, "law: unknown law 'max_min'. Did you mean 'max-min'?"),
        ({"law": None}, "law: unknown law None. Known: busiest, max-min, no-contention."),
        ({"ring_size": 1}, "ring_size: must be at least 2, not 1."),
        ({"ring_size": True}, "ring_size: must be a whole number, not True."),
    ],
)
def test_an_impossible_network_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InputError) as caught:
        NetworkModel(**changes)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_a_network_tells_what_it_is() -> None:
    assert str(NETWORK) == "a 669,000 ns, b 0.853 ns/byte, eta 0.235 ns/byte"
    assert str(NetworkModel(law="no-contention")) == "a 669,000 ns, b 0.853 ns/byte, no contention"
    assert str(NetworkModel(a_ns=0, law="max-min", ring_size=4)) == (
        "a 0 ns, b 0.853 ns/byte, in a ring of 4 servers, eta 0.235 ns/byte, max-min sharing"
    )
