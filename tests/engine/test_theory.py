"""The paper's two theorems, measured in the simulator.

Problem 1: two messages of M1 <= M2 bytes on the same servers, one started at 0 and the other t
later. Which t gives the least average end? (a = 0, as the theorems neglect it.)
"""

from __future__ import annotations

import pytest

from builders import DATA, make_job, make_workload, paper_with
from headway.domain.cluster import Cluster
from headway.engine.run import simulate
from headway.network.contention import NetworkModel

NETWORK = NetworkModel(a_ns=0)
SPREAD = f"{DATA}/spread.py:spread"
THETA = NETWORK.b_ns_per_byte / (2 * (NETWORK.b_ns_per_byte + NETWORK.eta_ns_per_byte))
LARGE = 100_000_000
READY_NS = 10  # both passes of a job before its message
STEPS = 50


def ends(first_bytes: int, second_bytes: int, delay_ns: int, admission: str) -> tuple[int, int]:
    """Return when two messages end, counted from when the first was ready."""
    jobs = [
        make_job(
            arrival_ns=arrival,
            gpus=2,
            forward_ns=READY_NS // 2,
            backward_ns=READY_NS // 2,
            gradient_bytes=size,
            memory_bytes=1000,
        )
        for arrival, size in ((0, first_bytes), (delay_ns, second_bytes))
    ]
    result = simulate(
        make_workload(*jobs),
        Cluster(servers=2, gpus_per_server=2, gpu_memory_bytes=1000),
        network=NETWORK,
        policy=paper_with(placement=SPREAD, admission=admission),
    )
    assert [len({gpu // 2 for gpu in gpus}) for gpus in result.gpus] == [2, 2]
    first, second = (int(end) - READY_NS for end in result.finish_ns)
    return first, second


def averages(first_bytes: int, second_bytes: int) -> dict[int, float]:
    """Return the average end for every delay of the second, from none to the first's end."""
    alone_ns = NETWORK.all_reduce_ns(first_bytes)
    return {
        delay: sum(ends(first_bytes, second_bytes, delay, "srsf:2")) / 2
        for delay in (alone_ns * step // STEPS for step in range(STEPS + 1))
    }


RATIOS = [0.05, 0.2, 0.35, 0.39, 0.395, 0.45, 0.7, 0.95]


@pytest.mark.parametrize("ratio", RATIOS)
def test_theorem_1_the_larger_message_best_starts_when_the_smaller_has_ended(ratio: float) -> None:
    small = round(ratio * LARGE)
    by_delay = averages(small, LARGE)
    best = min(by_delay, key=by_delay.__getitem__)
    assert best == max(by_delay) == NETWORK.all_reduce_ns(small)
    b = NETWORK.b_ns_per_byte
    assert by_delay[best] == pytest.approx((2 * b * small + b * LARGE) / 2, abs=2)
    # Decreasing all the way.
    values = list(by_delay.values())
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("ratio", RATIOS)
def test_theorem_2_the_smaller_message_joins_at_once_below_theta_or_waits(ratio: float) -> None:
    small = round(ratio * LARGE)
    by_delay = averages(LARGE, small)
    best = min(by_delay, key=by_delay.__getitem__)
    b, eta = NETWORK.b_ns_per_byte, NETWORK.eta_ns_per_byte
    if ratio < THETA:
        assert best == 0
        assert by_delay[best] == pytest.approx(((3 * b + 2 * eta) * small + b * LARGE) / 2, abs=2)
    else:
        assert best == max(by_delay) == NETWORK.all_reduce_ns(LARGE)
        assert by_delay[best] == pytest.approx((b * small + 2 * b * LARGE) / 2, abs=2)


@pytest.mark.parametrize("ratio", RATIOS)
def test_ada_dual_chooses_what_theorem_2_calls_best(ratio: float) -> None:
    small = round(ratio * LARGE)
    by_delay = averages(LARGE, small)
    chosen = sum(ends(LARGE, small, 1, "ada-dual")) / 2
    assert chosen == pytest.approx(min(by_delay.values()), abs=3)


@pytest.mark.parametrize("ratio", RATIOS)
def test_ada_dual_sends_the_smaller_of_two_new_messages_first(ratio: float) -> None:
    small = round(ratio * LARGE)
    for first, second in ((small, LARGE), (LARGE, small)):
        b = NETWORK.b_ns_per_byte
        chosen = sum(ends(first, second, 0, "ada-dual")) / 2
        assert chosen == pytest.approx((2 * b * small + b * LARGE) / 2, abs=3)


def test_ada_dual_counts_what_is_left_of_a_running_message_not_its_size() -> None:
    """A message that could join at once may not join one that has almost ended."""
    small = round(0.2 * LARGE)
    alone_ns = NETWORK.all_reduce_ns(LARGE)
    early, _ = ends(LARGE, small, 1, "ada-dual")
    late, _ = ends(LARGE, small, alone_ns * 9 // 10, "ada-dual")
    assert early > alone_ns
    assert late == alone_ns
