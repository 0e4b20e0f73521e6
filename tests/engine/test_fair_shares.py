"""Fair shares and costs by the number of servers, in whole runs worked out by hand.

The network has b = 1 and eta = 0.5 ns per byte: cost(1) = 1, cost(2) = 2.5, cost(3) = 4. Jobs
compute from 0 to 20.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from builders import DATA, make_job, make_workload, paper_with
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.engine.run import simulate
from headway.network.contention import NetworkModel
from headway.network.laws.registry import LAWS
from strategies import Case, cases, run_engine, run_oracle

PAPERS = NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.5)
FAIR = replace(PAPERS, law="max-min")


def job(size: int, **changes: Any) -> Any:
    fields = {"gpus": 2, "forward_ns": 10, "backward_ns": 10, "memory_bytes": 1}
    return make_job(gradient_bytes=size, **(fields | changes))


def finish_ns(network: NetworkModel, *jobs: Any, servers: str, placement: str) -> list[int]:
    count, gpus = map(int, servers.split("x"))
    cluster = Cluster(count, gpus, gpu_memory_bytes=1)
    result = simulate(make_workload(*jobs), cluster, network=network, policy=f"{placement}+srsf:3")
    return [int(end) for end in result.finish_ns]


def test_a_star_takes_up_what_a_message_leaves_that_is_held_back_elsewhere() -> None:
    """Three messages meet on server 0 at 4 ns a byte, the third and the fourth on server 1.

    The fourth has 1.375 of two shares there until it ends. The first ends at 20 + 50 * 4, when the
    next two have 50 bytes left, at 2.5 from then on. In the paper's model the fourth has 2.5.
    """
    jobs = [job(50), job(100), job(100), job(100)]
    place = {"servers": "5x3", "placement": f"{DATA}/table.py:star"}
    alone = math.ceil(100 * (2.5 * (1 / 1.375)))
    assert finish_ns(FAIR, *jobs, **place) == [220, 345, 345, 20 + alone]
    assert finish_ns(PAPERS, *jobs, **place) == [220, 345, 345, 20 + 250]


def test_a_message_speeds_up_when_others_come_on_a_link_that_is_not_its_own() -> None:
    """The fourth is at 2.5 until 120, when the second job joins the first and third on server 0."""
    jobs = [job(1000), job(1000, arrival_ns=100), job(1000), job(100)]
    place = {"servers": "5x3", "placement": f"{DATA}/table.py:star"}
    left = 100 - (120 - 20) / 2.5
    end_ns = 120 + math.ceil(left * (2.5 * (1 / 1.375)))
    assert finish_ns(FAIR, *jobs, **place)[3] == end_ns
    assert finish_ns(PAPERS, *jobs, **place)[3] == 20 + 250


def test_a_chain_is_as_in_the_paper_where_all_links_are_equally_full() -> None:
    """A job of one GPU moves the others by one: they are on servers 0-1, 1-2 and 2-3."""
    jobs = [job(0, gpus=1), job(40), job(100), job(200)]
    place = {"servers": "4x2", "placement": "ff"}
    assert finish_ns(FAIR, *jobs, **place)[1:] == [120, 270, 370]
    assert finish_ns(PAPERS, *jobs, **place)[1:] == [120, 270, 370]


@pytest.mark.parametrize("law", LAWS)
def test_a_job_on_more_servers_has_the_latency_and_the_bytes_of_a_longer_ring(law: str) -> None:
    """Measured among two; on four a byte weighs 1.5 and there are three times the steps."""
    network = replace(PAPERS, a_ns=10, ring_size=2, law=law)
    for servers, message_ns in ((2, 10 + 100), (4, 30 + 150)):
        result = simulate(
            make_workload(job(100, gpus=servers, iterations=7)), f"{servers}x1", network=network
        )
        assert result.finish_ns.tolist() == [7 * (20 + message_ns)]


def test_buckets_each_pay_the_latency_of_the_ring() -> None:
    network = replace(PAPERS, a_ns=10, ring_size=2)
    workload = make_workload(job(100, gpus=4, iterations=3))
    result = simulate(workload, "4x1", network=network, policy=paper_with(bucket_mb=40 / 2**20))
    assert result.finish_ns.tolist() == [3 * (20 + 3 * 30 + 60 + 60 + 30)]


def test_the_remaining_service_of_a_placed_job_counts_its_servers() -> None:
    """L of the wide job is 4 * (20 + 30 + 150) among four servers, and 4 * (20 + 10 + 100) by a, b.

    L of the narrow one, 600, lies between: on GPU 0, where both are ready at 0, it goes first with
    the one and second with the other.
    """
    jobs = [job(100, gpus=4), job(0, gpus=1, forward_ns=300, backward_ns=300)]
    cluster = Cluster(4, 1, gpu_memory_bytes=2)
    for servers, end_ns in ((2, 600), (None, 620)):
        network = replace(PAPERS, a_ns=10, ring_size=servers)
        result = simulate(make_workload(*jobs), cluster, network=network, policy="ff+ada-srsf")
        assert result.gpus == ((0, 1, 2, 3), (0,))
        assert result.finish_ns[1] == end_ns


@pytest.mark.parametrize(("ring", "servers"), [(2, 4), (2**24, 2)])
def test_a_ring_whose_messages_could_take_too_long_is_refused(ring: int, servers: int) -> None:
    """Among four servers there are three times the steps of two; among two, far fewer than N."""
    network = replace(PAPERS, a_ns=2**60, ring_size=ring)
    workload = make_workload(job(100, gpus=4))
    if servers == 4:
        with pytest.raises(InputError, match="could take over 73 years"):
            simulate(workload, f"{servers}x1", network=network)
    else:
        assert simulate(workload, f"{servers}x2", network=network).finish_ns[0] < 2**40


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("ring_size", [None, 2, 5])
@settings(max_examples=min(settings().max_examples, 60))
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_where_many_messages_share_links(
    ring_size: int | None, law: str, data: st.DataObject
) -> None:
    """Half of the cases have racks with uplinks."""
    case = data.draw(cases(general=data.draw(st.booleans())))
    network = replace(case.network, law=law, ring_size=ring_size)
    placement = data.draw(st.sampled_from(["rand", "spread"]))
    admission = data.draw(st.sampled_from(["srsf:2", "srsf:3", "srsf:9", "k-way"]))
    case = replace(case, network=network, placement=placement, admission=admission)
    expected = run_oracle(case)
    for acceleration in ("none", "full"):
        result = run_engine(case, acceleration=acceleration)
        assert result.start_ns.tolist() == expected.start_ns
        assert result.finish_ns.tolist() == expected.finish_ns


@pytest.mark.parametrize("admission", ["ada-dual", "srsf:2"])
@settings(max_examples=min(settings().max_examples, 60))
@given(data=st.data())
def test_where_at_most_two_messages_meet_fair_shares_are_the_papers_model(
    admission: str, data: st.DataObject
) -> None:
    case = replace(data.draw(cases()), admission=admission)
    papers, fair = (
        run_engine(replace(case, network=replace(case.network, law=law)))
        for law in ("busiest", "max-min")
    )
    assert fair.finish_ns.tolist() == papers.finish_ns.tolist()


def differs(case: Case) -> bool:
    """Whether some job ends at another time than in the paper's model."""
    papers, fair = (replace(case.network, law=law) for law in ("busiest", "max-min"))
    return (
        run_oracle(replace(case, network=fair)).finish_ns
        != run_oracle(replace(case, network=papers)).finish_ns
    )


def crosses(case: Case) -> bool:
    return bool(case.cluster.uplinks) and differs(case)


@pytest.mark.slow
@pytest.mark.parametrize("reaches", [differs, crosses])
def test_random_cases_reach_shares_that_are_left_to_others(reaches: Any) -> None:
    enough = settings(phases=[Phase.generate], max_examples=5_000)
    assert find(cases(general=True), reaches, settings=enough)
