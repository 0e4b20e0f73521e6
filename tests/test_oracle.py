"""The oracle on clusters of several types and racks, against results worked out by hand.

The network has a = 1000 ns, b = 2 and eta = 1 ns per byte: cost(1) = 2, cost(2) = 5.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings

import oracle
from headway.domain.cluster import Cluster
from strategies import Case, cases, run_oracle


def job(**changes: Any) -> oracle.OracleJob:
    fields = {
        "arrival_ns": 0,
        "gpus": 2,
        "iterations": 1,
        "forward_ns": 100,
        "backward_ns": 200,
        "gradient_bytes": 3000,
        "memory_bytes": 1,
    }
    return oracle.OracleJob(**(fields | changes))


def run(*jobs: oracle.OracleJob, **changes: Any) -> oracle.OracleOutcome:
    given: dict[str, Any] = {
        "server_gpus": [1, 1],
        "memory_bytes": [1],
        "a_ns": 1000,
        "b": 2.0,
        "eta": 1.0,
        "placement": "ff",
    }
    return oracle.run(jobs, **(given | changes))


def test_the_barrier_waits_for_the_slower_type() -> None:
    """GPU 0 computes until 300, GPU 1 until 110; then 1000 of latency and 10 bytes at 2."""
    outcome = run(
        job(gradient_bytes=10),
        memory_bytes=[1, 1],
        server_type=[0, 1],
        times_ns=[[(100, 200), (50, 60)]],
    )
    assert [(task.kind, task.gpu, task.start_ns, task.end_ns) for task in outcome.tasks] == [
        ("forward", 1, 0, 50),
        ("forward", 0, 0, 100),
        ("backward", 1, 50, 110),
        ("backward", 0, 100, 300),
        ("message", -1, 300, 1320),
    ]


def test_a_queued_job_counts_with_its_fastest_type() -> None:
    """L of the first is 20, of the second 100: the first takes GPU 0, where it needs 200."""
    outcome = run(
        job(gpus=1),
        job(gpus=1),
        memory_bytes=[1, 1],
        server_type=[0, 1],
        times_ns=[[(100, 100), (10, 10)], [(50, 50), (50, 50)]],
    )
    assert outcome.gpus == [(0,), (1,)]
    assert outcome.finish_ns == [200, 100]


def test_a_placed_job_counts_with_its_slowest_type() -> None:
    """Placed, L of the first grows from 40 to 400 and the second, with 150, passes it on GPU 0."""
    outcome = run(
        job(gradient_bytes=0),
        job(gpus=1),
        memory_bytes=[2, 2],
        server_type=[0, 1],
        times_ns=[[(100, 100), (10, 10)], [(75, 75), (75, 75)]],
        a_ns=0,
    )
    assert outcome.gpus == [(0, 1), (0,)]
    assert outcome.finish_ns == [351, 150]


def test_a_job_goes_where_the_type_has_memory_for_it() -> None:
    outcome = run(
        job(gpus=2, memory_bytes=5, gradient_bytes=0),
        server_gpus=[2, 1, 3],
        memory_bytes=[4, 5],
        server_type=[0, 1, 1],
    )
    assert outcome.gpus == [(2, 3)]


# Servers 0 and 2 are in rack 0, servers 1 and 3 in rack 1. With oversubscription 4 an uplink
# carries half a server's worth: w = 4 / 2 = 2. Both jobs cross racks and share uplinks, but no
# server. The second is ready at 291, the first at 300.
RACKS: dict[str, Any] = {
    "server_gpus": [1, 1, 1, 1],
    "tiers": [([0, 1, 0, 1], 4.0)],
}
LATE = job(arrival_ns=150, forward_ns=60, backward_ns=81, gradient_bytes=600)


def test_messages_that_cross_racks_meet_on_the_uplinks() -> None:
    """A byte costs 2 * 2 alone and 2 * 5 among two.

    The second's message would end at 1291 + 600 * 4; from 300 on it is 1291 + 600 * 10 = 7291. The
    first has then sent (7291 - 1300) / 10 bytes and needs ceil(2400.9 * 4) = 9604 more.
    """
    outcome = run(job(), LATE, **RACKS, admission="srsf:2")
    assert outcome.gpus == [(0, 1), (2, 3)]
    assert outcome.finish_ns == [7291 + 9604, 7291]


def test_an_uplink_counts_for_admission() -> None:
    """The first waits for the second, until 3691, and then takes 1000 + 3000 * 4."""
    assert run(job(), LATE, **RACKS, admission="srsf:1").finish_ns == [16691, 3691]
    assert run(job(), LATE, **RACKS, admission="ada-dual").finish_ns == [16691, 3691]
    assert run(job(), LATE, **RACKS, admission="k-way").finish_ns == [16691, 3691]


@pytest.mark.parametrize("admission", ["ada-dual", "k-way"])
def test_a_small_message_joins_on_an_uplink(admission: str) -> None:
    """150 < 600 / 3: it ends at 1300 + 150 * 10; 449.1 bytes of the other are left then."""
    outcome = run(job(gradient_bytes=150), LATE, **RACKS, admission=admission)
    assert outcome.finish_ns == [2800, 2800 + 1797]


def test_without_contention_uplinks_do_not_slow() -> None:
    outcome = run(job(), LATE, **RACKS, contends=False)
    assert outcome.finish_ns == [300 + 1000 + 6000, 291 + 1000 + 1200]


def test_a_job_in_one_rack_is_on_no_uplink() -> None:
    racks = RACKS | {"tiers": [([0, 0, 1, 1], 4.0)]}
    outcome = run(job(), LATE, **racks, admission="srsf:1")
    assert outcome.finish_ns == [7300, 2491]


def test_a_wide_uplink_leaves_the_servers_as_the_bottleneck() -> None:
    racks = RACKS | {"tiers": [([0, 1, 0, 1], 0.5)]}
    assert run(job(), LATE, **racks, admission="srsf:2").finish_ns == [7300, 2491]


# Eight servers, two under each leaf and four under each pod. Leaves are oversubscribed by 2, pods
# by 3: an uplink of a leaf has w = 2 / 2, one of a pod w = 2 * 3 / 4 = 1.5.
TIERS: dict[str, Any] = {
    "server_gpus": [1] * 8,
    "tiers": [([0, 0, 1, 1, 2, 2, 3, 3], 2.0), ([0, 0, 0, 0, 1, 1, 1, 1], 3.0)],
}


@pytest.mark.parametrize(
    ("gpus", "factor"),
    [
        (2, 1.0),  # under one leaf
        (4, 1.0),  # under two leaves of a pod: their uplinks are as wide as a server's link
        (5, 1.5),  # under two pods
    ],
)
def test_a_message_uses_the_uplinks_of_every_tier_that_it_crosses(gpus: int, factor: float) -> None:
    outcome = run(job(gpus=gpus), **TIERS)
    assert outcome.finish_ns == [300 + 1000 + 3000 * 2 * factor]


def test_messages_that_share_no_leaf_meet_on_the_uplinks_of_pods() -> None:
    """The first job is on servers 0 and 1, the second on 2 and 3, each under a leaf of its own.

    Servers 0 and 2 are in one pod, 1 and 3 in another: w = 1 for a leaf, 3 / 2 for a pod, where a
    byte costs 1.5 * 5 among two.
    """
    outcome = run(
        job(gpus=2),
        job(gpus=2),
        server_gpus=[1, 1, 1, 1],
        tiers=[([0, 1, 2, 3], 1.0), ([0, 1, 0, 1], 3.0)],
        admission="srsf:2",
    )
    assert outcome.gpus == [(0, 1), (2, 3)]
    assert outcome.finish_ns == [300 + 1000 + 3000 * 7.5] * 2


@pytest.mark.parametrize(
    ("gpus", "rails", "part"),
    [
        (8, 4, 1 / 4),  # one GPU on each rail of each server
        (8, 2, 1 / 2),
        (8, 1, 1.0),
        (5, 4, 1.0),  # four rails of the first server, one of the second
        (7, 2, 2 / 3),  # on the second server two GPUs on a rail, one on the other
    ],
)
def test_a_message_is_spread_over_the_rails_of_its_ranks(
    gpus: int, rails: int, part: float
) -> None:
    """Two servers of four GPUs each: it goes at the pace of the rail that carries most."""
    outcome = run(job(gpus=gpus), server_gpus=[4, 4], rails=[rails, rails])
    assert outcome.finish_ns == [300 + 1000 + math.ceil(3000 * (part * 2))]
    free = run(job(gpus=gpus), server_gpus=[4, 4], rails=[rails, rails], contends=False)
    assert free.finish_ns == outcome.finish_ns


def test_messages_on_different_rails_do_not_meet() -> None:
    """Two jobs each have a GPU on both servers: GPUs 0 and 2, on rail 0, and GPUs 1 and 3."""
    jobs = [job(gpus=2), job(gpus=2)]
    place = {"server_gpus": [2, 2], "placement": "spread"}
    one = run(*jobs, **place, admission="srsf:2")
    two = run(*jobs, **place, rails=[2, 2], admission="srsf:1")
    assert one.gpus == two.gpus == [(0, 2), (1, 3)]
    assert one.finish_ns == [300 + 1000 + 3000 * 5] * 2
    assert two.finish_ns == [300 + 1000 + 3000 * 2] * 2


def test_the_rails_of_servers_add_up_below_an_uplink() -> None:
    """Two servers of two rails under each leaf: w = 8 / 4; alone on its rails a byte costs 1."""
    outcome = run(
        job(gpus=8),
        server_gpus=[2] * 4,
        rails=[2] * 4,
        tiers=[([0, 0, 1, 1], 8.0)],
    )
    assert outcome.finish_ns == [300 + 1000 + 3000 * 2 * 2]


@pytest.mark.parametrize(
    ("gpus", "memory", "where"),
    [
        (3, 1, (1, 2, 3)),  # server 1 alone has enough: no message
        (5, 1, (0, 1, 2, 3, 4)),  # servers 0 and 1
        (6, 1, (0, 1, 2, 3, 4, 5)),  # three servers, from 0
        (6, 5, (1, 2, 3, 4, 5, 6)),  # of which only 1 and 2 have the memory
    ],
)
def test_least_delay_takes_the_smallest_block_that_could_hold_the_job(
    gpus: int, memory: int, where: tuple[int, ...]
) -> None:
    outcome = run(
        job(gpus=gpus, memory_bytes=memory),
        server_gpus=[1, 4, 2, 1],
        memory_bytes=[4, 9],
        server_type=[0, 1, 1, 0],
        placement="least-delay",
    )
    assert outcome.gpus == [where]


@given(case=cases(general=True))
def test_every_general_case_runs_to_its_end(case: Case) -> None:
    outcome = run_oracle(case)
    for spec, start, finish, gpus in zip(
        case.workload, outcome.start_ns, outcome.finish_ns, outcome.gpus, strict=True
    ):
        assert spec.arrival_ns <= start < finish
        assert len(set(gpus)) == spec.gpus


def slower_by_an_uplink(case: Case) -> bool:
    """Whether an uplink changes when some job ends."""
    if not case.cluster.uplinks or not case.network.messages_meet:
        return False
    groups = [replace(group, rack="") for group in case.cluster.all_groups]
    flat = replace(case, cluster=Cluster.of(groups))
    return run_oracle(case).finish_ns != run_oracle(flat).finish_ns


def mixes_types(case: Case) -> bool:
    """Whether a job computes on GPUs of different speed."""
    types = [{case.cluster.type_of_gpu[gpu] for gpu in gpus} for gpus in run_oracle(case).gpus]
    return any(len({case.cluster.gpu_types[t].performance for t in some}) > 1 for some in types)


@pytest.mark.parametrize("reaches", [slower_by_an_uplink, mixes_types])
def test_general_cases_reach_what_is_new(reaches: Any) -> None:
    enough = settings(phases=[Phase.generate], max_examples=5_000)
    assert find(cases(general=True), reaches, settings=enough)
