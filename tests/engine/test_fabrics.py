"""Tiers and rails: the engine agrees with the oracle, and with racks where they are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from agreement import check
from builders import make_job, make_workload
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.domain.records import COMMUNICATION
from headway.domain.tiers import Tier
from headway.engine.run import simulate
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.policies.registry import NEEDED_FIRST
from headway.results.timeline.sinks import Timeline
from oracle import Simulation
from strategies import ADMISSIONS, OPTIONS, PLACEMENTS, Case, cases, run_engine, run_oracle

FUZZ = settings().max_examples > 1_000
FEW = settings(max_examples=settings().max_examples if FUZZ else 12)
SOME = settings(max_examples=settings().max_examples if FUZZ else 30)


@pytest.mark.parametrize("placement", PLACEMENTS)
@FEW
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_on_fabrics_under_every_placement(
    placement: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases(general=True, fabric=True)), placement=placement))


@pytest.mark.parametrize("admission", ADMISSIONS)
@FEW
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_on_fabrics_under_every_admission(
    admission: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases(general=True, fabric=True)), admission=admission))


@SOME
@given(case=cases(general=True, graphs=True, fabric=True))
def test_the_engine_agrees_with_the_oracle_on_fabrics_with_graphs(case: Case) -> None:
    check(case)


@FEW
@given(case=cases(graphs=True, fabric=True))
def test_the_engine_agrees_with_the_oracle_on_fabrics_with_graphs_under_least_delay(
    case: Case,
) -> None:
    check(replace(case, placement="least-delay"))


@SOME
@given(case=cases(general=True))
def test_one_tier_is_the_same_as_racks(case: Case) -> None:
    cluster = case.cluster
    if cluster.servers_per_rack is not None:
        tier = Tier("leaf", cluster.oversubscription, cluster.servers_per_rack)
        tiered = replace(cluster, servers_per_rack=None, oversubscription=1.0, tiers=(tier,))
    elif cluster.groups and cluster.groups[0].rack:
        groups = [replace(group, rack="", switches=(group.rack,)) for group in cluster.groups]
        tiered = Cluster.of(
            groups,
            tiers=[Tier("leaf", cluster.oversubscription)],
            exclusive=cluster.exclusive,
        )
    else:
        tiered = replace(cluster, tiers=(Tier("leaf", 1, cluster.servers),), oversubscription=1.0)
    _check_same(case, replace(case, cluster=tiered))


@SOME
@given(case=cases(general=True, fabric=True))
def test_a_tier_of_one_switch_changes_nothing(case: Case) -> None:
    cluster, top = case.cluster, Tier("top", 3)
    if cluster.groups:
        groups = [replace(group, switches=(*group.switches, "all")) for group in cluster.groups]
        higher = Cluster.of(groups, tiers=[*cluster.tiers, top], exclusive=cluster.exclusive)
    else:
        most = cluster.tiers[-1].servers_per_switch
        assert most is not None
        top = replace(top, servers_per_switch=most * cluster.servers)
        higher = replace(cluster, tiers=(*cluster.tiers, top))
    _check_same(case, replace(case, cluster=higher))


def _check_same(one: Case, other: Case) -> None:
    first, second = run_engine(one), run_engine(other)
    assert first.start_ns.tolist() == second.start_ns.tolist()
    assert first.finish_ns.tolist() == second.finish_ns.tolist()
    assert first.gpus == second.gpus
    assert replace(first.summary, wall_s=0) == replace(second.summary, wall_s=0)


def test_fair_shares_need_one_rail() -> None:
    cluster = Cluster(2, 2, rails=2)
    with pytest.raises(InputError, match="the law max-min needs servers with one rail"):
        simulate(make_workload(make_job()), cluster, network=NetworkModel(law="max-min"))


def crosses(tiers: int) -> object:
    def reaches(case: Case) -> bool:
        """Whether a job's time depends on that many tiers: without the last it is another."""
        if len(case.cluster.uplinks) < tiers or not case.network.messages_meet:
            return False
        lower = case.cluster.all_tiers[: tiers - 1]
        groups = [replace(g, switches=g.switches[: tiers - 1]) for g in case.cluster.groups]
        flatter = Cluster.of(groups, tiers=lower) if groups else replace(case.cluster, tiers=lower)
        without = run_oracle(replace(case, cluster=flatter))
        return without.finish_ns != run_oracle(case).finish_ns

    return reaches


def rides(case: Case) -> bool:
    """Whether rails change a job's end."""
    groups = [replace(group, rails=1) for group in case.cluster.groups]
    tiers = case.cluster.tiers
    single = Cluster.of(groups, tiers=tiers) if groups else replace(case.cluster, rails=1)
    return run_oracle(replace(case, cluster=single)).finish_ns != run_oracle(case).finish_ns


ENOUGH = settings(phases=[Phase.generate], max_examples=5_000)


@pytest.mark.slow
@pytest.mark.parametrize("reaches", [crosses(1), crosses(2), crosses(3), rides])
def test_random_fabrics_reach_every_tier_and_rails(reaches: object) -> None:
    assert callable(reaches)
    assert find(cases(general=True, fabric=True), reaches, settings=ENOUGH)


@pytest.mark.slow
@pytest.mark.parametrize("admission", [*ADMISSIONS, "srsf:3/needed-first"])
def test_random_fabrics_reach_uplinks_with_room_for_several(admission: str) -> None:
    """Jobs would end at other times if each uplink had room for one message only."""

    def has_room(case: Case) -> bool:
        if not case.network.messages_meet:
            return False
        case = replace(case, admission=admission)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Simulation, "carries", lambda *_: 1)
            narrow = run_oracle(case)
        return narrow.finish_ns != run_oracle(case).finish_ns

    assert find(
        cases(general=True, graphs=NEEDED_FIRST in admission, fabric=True),
        has_room,
        settings=ENOUGH,
    )


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("admission", ADMISSIONS)
def test_an_admission_lets_as_many_messages_start_as_an_uplink_carries(
    admission: str, option: str, oversubscription: int
) -> None:
    """Four groups of a job, each on a rail of its own, meet on the uplink of a leaf."""
    groups = [[rank, rank + 4] for rank in range(4)]
    graph = Graph(
        8,
        [Task("task", range(8), 10)],
        [Message("gradients", "all-reduce", groups, 100, after=["task"])],
    )
    timeline = Timeline()
    result = simulate(
        make_workload(Job("0", 0, 8, 1, graph=graph)),
        Cluster(2, 4, rails=4, tiers=(Tier("leaf", oversubscription, 1),)),
        network=NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.0),
        policy=PolicySet("ff", "srsf", admission + option),
        timeline=timeline,
    )
    tasks = timeline.tasks()
    started = int((tasks[tasks.kind == COMMUNICATION].start_ns == 10).sum())
    carries, allowed = 4 // oversubscription, {"srsf:2": 2, "srsf:3": 3}.get(admission, 1)
    if option == NEEDED_FIRST and carries == 1:
        allowed = 1
    assert started == min(4, carries + allowed - 1)
    assert (result.finish_ns == 10 + 100).tolist() == [oversubscription == 1]
    assert (result.own_messages_ns > 0).tolist() == [oversubscription > 1]


def test_a_group_of_servers_may_have_more_rails_than_another() -> None:
    """A message of all GPUs goes at the pace of the server with one rail."""
    cluster = Cluster.of([ServerGroup(1, 4, rails=4), ServerGroup(1, 4)])
    network = NetworkModel(a_ns=0, b_ns_per_byte=1.0)
    jobs = make_workload(
        make_job(gpus=8, forward_ns=10, backward_ns=10, gradient_bytes=100, memory_bytes=1)
    )
    assert simulate(jobs, cluster, network=network).finish_ns.tolist() == [20 + 100]
    every = replace(cluster.groups[1], rails=4)
    wide = Cluster.of([cluster.groups[0], every])
    assert simulate(jobs, wide, network=network).finish_ns.tolist() == [20 + 25]
