"""Jobs with graphs: engine and oracle agree on every task and message, to the nanosecond."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from agreement import check
from builders import DATA
from headway.domain.cluster import Cluster
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.engine.setup import Acceleration
from headway.network.contention import NetworkModel
from headway.results.time_parts import parts_ns
from repetitive_cases import repetitive
from strategies import (
    ADMISSIONS,
    OPTIONS,
    PLACEMENTS,
    PRIORITIES,
    Case,
    cases,
    run_engine,
    run_oracle,
    run_state,
)


@pytest.mark.parametrize("placement", PLACEMENTS)
@settings(max_examples=min(settings().max_examples, 60))
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_under_every_placement(
    placement: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases(graphs=True)), placement=placement))


@settings(max_examples=2 * settings().max_examples)
@given(case=cases(general=True, graphs=True))
def test_the_engine_agrees_with_the_oracle_on_general_clusters(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("priority", PRIORITIES)
@settings(max_examples=min(settings().max_examples, 60))
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_under_every_priority(
    priority: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases(graphs=True)), priority=priority))


@pytest.mark.parametrize("admission", ADMISSIONS)
@settings(max_examples=min(settings().max_examples, 60))
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_under_every_admission(
    admission: str, data: st.DataObject
) -> None:
    admission += data.draw(st.sampled_from(OPTIONS))
    check(replace(data.draw(cases(general=True, graphs=True)), admission=admission))


@st.composite
def neighbours(draw: st.DrawFn) -> Case:
    """Draw jobs whose neighbouring ranks talk to each other, between others of one GPU."""
    cluster = Cluster(draw(st.integers(2, 4)), draw(st.integers(3, 4)), gpu_memory_bytes=4)
    jobs = []
    for index in range(draw(st.integers(3, 8))):
        arrival_ns, iterations = draw(st.integers(0, 5)), draw(st.integers(1, 6))
        memory, compute_ns = draw(st.integers(1, 4)), draw(st.integers(1, 1_000))
        if draw(st.booleans()):
            job = Job(str(index), arrival_ns, 1, iterations, compute_ns, compute_ns, 0, memory)
        else:
            ranks, together = draw(st.sampled_from([(4, 2), (6, 2), (6, 3)]))
            tasks = [Task("task", range(ranks), compute_ns)]
            groups = [range(at, at + together) for at in range(0, ranks, together)]
            sent = draw(st.integers(0, 1_000))
            messages = [Message("within", "all-reduce", groups, sent, after=["task"])]
            if draw(st.booleans()):
                messages.append(Message("all", "all-to-all", [range(ranks)], 50, after=["task"]))
            graph = Graph(ranks, tasks, messages)
            job = Job(str(index), arrival_ns, ranks, iterations, memory_bytes=memory, graph=graph)
        jobs.append(job)
    network = NetworkModel(a_ns=7, b_ns_per_byte=1.0, eta_ns_per_byte=0.5)
    return Case(Workload(jobs), cluster, network, "least-delay", "srtf", "srsf:1", 0, None)


@given(case=neighbours())
def test_the_engine_agrees_with_the_oracle_on_which_ranks_stay_together(case: Case) -> None:
    check(case)


def outcome(case: Case, acceleration: Acceleration) -> tuple[object, ...]:
    result = run_engine(case, acceleration=acceleration)
    start_ns, finish_ns = result.start_ns.tolist(), result.finish_ns.tolist()
    return (
        start_ns,
        finish_ns,
        list(result.gpus),
        replace(result.summary, wall_s=0, skipped_tasks=0),
    )


@given(case=repetitive((1, 3, 12), graphs=True))
def test_what_repeats_is_as_the_oracle_says(case: Case) -> None:
    expected = run_oracle(case)
    start_ns, finish_ns, gpus, _ = outcome(case, "full")
    assert (start_ns, finish_ns, gpus) == (expected.start_ns, expected.finish_ns, expected.gpus)


@given(case=repetitive((1, 20, 200, 2_000), graphs=True))
def test_long_runs_are_the_same_with_and_without_acceleration(case: Case) -> None:
    plain = outcome(case, "none")
    assert outcome(case, "solo") == plain
    assert outcome(case, "full") == plain


def jobs_alone(case: Case) -> list[Case]:
    """Return a case for each job with a graph."""
    jobs = [job for job in case.workload if job.graph is not None]
    return [replace(case, workload=Workload([job])) for job in jobs]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("admission", ADMISSIONS)
@settings(max_examples=min(settings().max_examples, 30))
@given(data=st.data())
def test_the_time_of_a_job_alone_is_all_its_own_whatever_its_messages_do_to_each_other(
    admission: str, option: str, data: st.DataObject
) -> None:
    case = data.draw(cases(general=True, graphs=True, fabric=True))
    for lone in jobs_alone(replace(case, admission=admission + option)):
        result = run_engine(lone)
        each_ns = result.compute_ns + result.free_sending_ns + result.own_messages_ns
        iterations = lone.workload[0].iterations
        assert result.finish_ns - result.start_ns == iterations * each_ns
        assert parts_ns(result)["contention"] == 0


@pytest.mark.parametrize(
    ("admission", "own_ns"),
    [
        ("srsf:1", 100),  # one after the other
        ("srsf:2", 150),  # a byte takes 2.5 ns for as long as both are sent
        (f"{DATA}/lattice.py:lattice:1000", 100),  # it lets none start at that time, even alone
    ],
)
@pytest.mark.parametrize("bucket_bytes", [None, 50])
def test_own_messages_are_what_two_messages_at_once_do_to_each_other(
    admission: str, own_ns: int, bucket_bytes: int | None
) -> None:
    both = [Message(name, "all-reduce", [[0, 1]], 100, name, ["task"]) for name in "ab"]
    job = Job("0", 0, 2, 4, graph=Graph(2, [Task("task", [0, 1], 10)], both))
    network = NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.5)
    case = Case(Workload([job]), Cluster(2, 1), network, "ff", "srsf", admission, 0, bucket_bytes)
    parts = {name: int(part[0]) for name, part in parts_ns(run_engine(case)).items()}
    assert parts["computing"] == 4 * 10
    assert parts["sending"] == 4 * 100
    assert parts["own_messages"] == 4 * own_ns
    assert (parts["contention"] > 0) == ("lattice" in admission)


@settings(max_examples=min(settings().max_examples, 60))
@given(case=cases(graphs=True))
def test_what_messages_add_if_none_slows_another_is_the_same_where_none_can(case: Case) -> None:
    for lone in jobs_alone(replace(case, placement="ff")):
        network = replace(lone.network, law="no-contention")
        free = run_engine(replace(lone, network=network))
        assert free.own_messages_ns == 0
        assert run_engine(lone).free_sending_ns == free.free_sending_ns


@pytest.mark.slow
def test_random_cases_reach_graphs_that_are_skipped_forward() -> None:
    def reaches(case: Case) -> bool:
        if all(job.graph is None for job in case.workload):
            return False
        full, plain = run_state(case, "full").tally[0], run_state(case, "none").tally[0]
        return bool(full.instants < plain.instants // 2)

    found = find(
        repetitive((200,), graphs=True),
        reaches,
        settings=settings(phases=[Phase.generate], max_examples=2_000),
    )
    assert outcome(found, "full") == outcome(found, "none")


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["backward-1", "scatter-", "send-", "tensor-", "combine-"])
def test_random_cases_reach_every_builder_next_to_a_plain_job(entry: str) -> None:
    def reaches(case: Case) -> bool:
        graphs = [job.graph for job in case.workload]
        return None in graphs and any(
            one.name.startswith(entry) for graph in graphs if graph for one in graph.entries
        )

    enough = settings(phases=[Phase.generate], max_examples=500)
    assert find(cases(graphs=True), reaches, settings=enough)
