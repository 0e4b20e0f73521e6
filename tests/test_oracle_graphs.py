"""The oracle on jobs with graphs, against results worked out by hand.

The network has a = 1000 ns, b = 2 and eta = 1 ns per byte: cost(1) = 2, cost(2) = 5, cost(3) = 8.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import oracle
from graph_strategies import MOST_RANKS, iteration_graphs, job_graphs
from headway.domain.graph import Graph, Message, Task
from headway.domain.workload import Workload
from strategies import Case, cases, run_oracle, with_graph


def graph_job(graph: Graph, **changes: Any) -> oracle.OracleJob:
    fields = {"arrival_ns": 0, "gpus": graph.ranks, "iterations": 1, "memory_bytes": 1}
    none = {"forward_ns": 0, "backward_ns": 0, "gradient_bytes": 0}
    return oracle.OracleJob(**(fields | none | changes), graph=graph)


def run(*jobs: oracle.OracleJob, **changes: Any) -> oracle.OracleOutcome:
    given: dict[str, Any] = {
        "server_gpus": [1, 1, 1, 1],
        "memory_bytes": [1],
        "a_ns": 1000,
        "b": 2.0,
        "eta": 1.0,
        "placement": "ff",
        "admission": "srsf:9",
    }
    return oracle.run(jobs, **(given | changes))


def finish(graph: Graph, **changes: Any) -> int:
    """Return when a single iteration of a job alone ends."""
    return run(graph_job(graph), **changes).finish_ns[0]


def messages(outcome: oracle.OracleOutcome) -> list[tuple[int, int, int]]:
    """Return number, start and end of each message."""
    return [(m.number, m.start_ns, m.end_ns) for m in outcome.tasks if m.kind == "message"]


def sending(*parts: Message, ranks: int = 4) -> Graph:
    """Return a graph of one task of 100 ns on each rank, and some messages."""
    return Graph(ranks, [Task("t", range(ranks), 100)], parts)


@pytest.mark.parametrize(
    ("kind", "plain", "ring"),
    [
        # 1000 and 2 * 500 bytes; 500 and 2 * 250; with two ranks on a server twice the bytes.
        # Among two servers a ring of three has a / 2 and (1/2) / (2/3) = 3/4 of b.
        ("all-reduce", 1000 + 1000, 500 + 750),
        ("reduce-scatter", 500 + 500, 250 + 375),
        ("all-gather", 500 + 500, 250 + 375),
        ("all-to-all", 500 + 1000, 250 + 750),
    ],
)
def test_each_kind_has_its_size_and_latency(kind: str, plain: int, ring: int) -> None:
    graph = sending(Message("m", kind, [range(4)], 500, after=["t"]))
    assert finish(graph, server_gpus=[2, 2]) == 100 + plain
    assert finish(graph, server_gpus=[2, 2], ring=3) == 100 + ring


def test_a_send_is_half_an_all_reduce_but_whole_on_a_ring() -> None:
    graph = sending(Message("m", "send", [(0, 3)], 500, after=["t"]))
    assert finish(graph) == 100 + 500 + 500
    assert finish(graph, ring=3) == 100 + 250 + 750


def test_the_largest_share_of_a_server_counts_for_an_all_to_all() -> None:
    """Three ranks on one server and one on the other: 3/2 of 500 bytes."""
    graph = sending(Message("m", "all-to-all", [range(4)], 500, after=["t"]))
    assert finish(graph, server_gpus=[3, 1]) == 100 + 500 + 1500


def test_a_message_is_on_the_servers_of_its_ranks_alone() -> None:
    """Two messages that share no server do not meet; one that shares a server with both does."""
    apart = [Message(f"m{at}", "all-reduce", [(at, at + 1)], 500) for at in (0, 2)]
    assert finish(sending(*apart)) == 2000
    meeting = Message("m", "all-reduce", [(1, 2)], 500, "other")
    assert finish(sending(*apart, meeting)) == 1000 + 500 * 5


def test_messages_of_one_channel_follow_each_other_and_those_of_two_may_meet() -> None:
    def both(channel: str) -> list[tuple[int, int, int]]:
        first = Message("m", "all-reduce", [range(4)], 500)
        return messages(run(graph_job(sending(first, replace(first, name="n", channel=channel)))))

    assert both("default") == [(4, 0, 2000), (5, 2000, 4000)]
    assert both("other") == [(4, 0, 3500), (5, 0, 3500)]


def test_a_message_that_waits_holds_back_no_other_but_in_its_channel() -> None:
    """Under srsf:1 the second waits for the first on server 1, the third and fourth go on."""
    graph = sending(
        Message("a", "all-reduce", [(0, 1)], 500, "a"),
        Message("b", "all-reduce", [(1, 2)], 500, "b"),
        Message("c", "all-reduce", [(2, 3)], 500, "c"),
        Message("d", "all-reduce", [(2, 3)], 500, "b"),
    )
    outcome = run(graph_job(graph), admission="srsf:1")
    assert messages(outcome) == [(4, 0, 2000), (6, 0, 2000), (5, 2000, 4000), (7, 4000, 6000)]


def test_messages_on_one_server_take_no_time_and_are_no_tasks() -> None:
    """Two servers of two: what is within a server ends at once, also a chain of it."""
    graph = Graph(
        4,
        [Task("t", range(4), 100), Task("u", range(4), 10, ["last"])],
        [
            Message("first", "all-reduce", [(0, 1), (2, 3)], 500, after=["t"]),
            Message("last", "all-gather", [(0, 1), (2, 3)], 500, after=["first"]),
        ],
    )
    outcome = run(graph_job(graph, iterations=3), server_gpus=[2, 2])
    assert outcome.finish_ns == [330]
    assert messages(outcome) == []
    assert run(graph_job(graph)).finish_ns == [100 + 2000 + 1000 + 10]


def test_a_message_that_waits_for_nothing_is_ready_when_the_iteration_begins() -> None:
    graph = Graph(
        4, [Task("t", range(4), 100, ["m"])], [Message("m", "all-gather", [range(4)], 500)]
    )
    outcome = run(graph_job(graph, iterations=2, arrival_ns=7))
    assert messages(outcome) == [(4, 7, 1007), (4, 1107, 2107)]
    assert outcome.finish_ns == [2207]
    assert run(graph_job(graph, iterations=2, arrival_ns=7), server_gpus=[4]).finish_ns == [207]


def test_an_iteration_ends_with_its_last_task_or_message() -> None:
    """The second backward overlaps with the first message; the rest of it is exposed."""
    tasks = [Task("f", range(4), 100), Task("b1", range(4), 50), Task("b2", range(4), 1500)]
    overlapped = [Message("m1", "all-reduce", [range(4)], 500, after=["b1"])]
    assert finish(Graph(4, tasks, overlapped)) == 150 + 2000
    tasks[2] = replace(tasks[2], duration_ns=2500)
    assert finish(Graph(4, tasks, overlapped)) == 150 + 2500


def test_a_rank_runs_its_tasks_one_at_a_time_in_the_order_of_entries() -> None:
    """On rank 0 the second task waits for the message, and the third for the second."""
    graph = Graph(
        2,
        [Task("a", (0,), 10), Task("b", (0,), 20, ["m"]), Task("c", (0, 1), 30)],
        [Message("m", "send", [(0, 1)], 100, after=["a"])],
    )
    outcome = run(graph_job(graph))
    assert [(t.number, t.gpu, t.start_ns, t.end_ns) for t in outcome.tasks] == [
        (0, 0, 0, 10),
        (3, 1, 0, 30),
        (4, -1, 10, 610),
        (1, 0, 610, 630),
        (2, 0, 630, 660),
    ]


def test_ranks_are_the_jobs_gpus_in_ascending_order() -> None:
    """Whatever order the placement gives, rank 0 is on the first of its GPUs."""
    graph = Graph(2, [Task("a", (0,), 10), Task("b", (1,), 20)])
    for seed in range(4):
        outcome = run(graph_job(graph), placement="rand", seed=seed)
        assert [t.gpu for t in outcome.tasks] == list(outcome.gpus[0])


def test_tasks_take_their_time_on_the_type_of_their_gpu() -> None:
    graph = Graph(
        2, [Task("a", (0, 1), 10), Task("b", (1,), 5)], [Message("m", "send", [(0, 1)], 100)]
    )
    outcome = run(
        graph_job(graph),
        server_gpus=[1, 1],
        memory_bytes=[1, 1],
        server_type=[0, 1],
        times_ns=[[(10, 5), (30, 15)]],
    )
    ends = [(t.number, t.end_ns) for t in outcome.tasks if t.kind == "task"]
    assert ends == [(0, 10), (1, 30), (2, 45)]


def test_buckets_keep_the_number_and_the_channel_of_their_message() -> None:
    """500 bytes in buckets of 200; the other message of the channel waits for the last."""
    first = Message("m", "all-reduce", [range(4)], 500)
    graph = sending(first, replace(first, name="n", buffer_bytes=100))
    outcome = run(graph_job(graph), bucket_bytes=200)
    assert messages(outcome) == [
        (4, 0, 1400),
        (4, 1400, 2800),
        (4, 2800, 4000),
        (5, 4000, 5200),
    ]


def test_messages_are_asked_about_by_priority_then_by_number() -> None:
    """The second job arrives first; of its two messages the first by number goes."""
    pair = [Message("x", "send", [(0, 1)], 100, "x"), Message("y", "send", [(0, 1)], 300, "y")]
    early, late = sending(*pair, ranks=2), sending(*pair, ranks=2)
    outcome = run(
        graph_job(late, arrival_ns=1),
        graph_job(early),
        server_gpus=[1, 1],
        memory_bytes=[2],
        priority="fifo",
        admission="srsf:1",
    )
    starts = [(m.job, m.number) for m in outcome.tasks if m.kind == "message"]
    assert starts == [(1, 2), (1, 3), (0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("server_gpus", "iteration_ns"), [([1, 1], 100 + 1000 + 500 * 5), ([2], 100)]
)
def test_the_service_of_a_placed_graph_is_its_iteration_alone(
    server_gpus: list[int], iteration_ns: int
) -> None:
    """The job's own messages meet. With one iteration left, L = 2 * its length."""
    first = Message("m", "all-reduce", [range(2)], 500, after=["t"])
    graph = sending(first, replace(first, name="n", channel="other"), ranks=2)
    for other_ns, goes_first in ((2 * iteration_ns - 1, 1), (2 * iteration_ns + 1, 0)):
        other = oracle.OracleJob(iteration_ns, 1, 1, other_ns - 1, 1, 0, 1)
        jobs = graph_job(graph, iterations=2), other
        outcome = run(*jobs, memory_bytes=[2], server_gpus=server_gpus)
        started = [t.job for t in outcome.tasks if (t.gpu, t.start_ns) == (0, iteration_ns)]
        assert started == [goes_first]


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("microbatches", [1, 3, 8])
def test_a_pipeline_with_free_messages_takes_m_plus_p_minus_1_stages(
    stages: int, microbatches: int
) -> None:
    tasks = [
        Task(f"f{s}.{m}", (s,), 70, [f"m{s - 1}.{m}"] if s else [])
        for s in range(stages)
        for m in range(microbatches)
    ]
    sends = [
        Message(f"m{s}.{m}", "send", [(s, s + 1)], 500, f"{s}", [f"f{s}.{m}"])
        for s in range(stages - 1)
        for m in range(microbatches)
    ]
    graph = Graph(stages, tasks, sends)
    assert finish(graph, server_gpus=[4]) == (microbatches + stages - 1) * 70
    assert graph.unit_ns() == (microbatches + stages - 1) * 70


def chain(case: Case, index: int) -> Graph:
    """Return the graph of a job that has none: forward, backward and one all-reduce."""
    job = case.workload[index]
    ranks = range(job.gpus)
    return Graph(
        job.gpus,
        [Task("forward", ranks, job.forward_ns), Task("backward", ranks, job.backward_ns)],
        [Message("gradients", "all-reduce", [ranks], job.gradient_bytes, after=["backward"])],
    )


@settings(max_examples=min(settings().max_examples, 15))
@given(data=st.data())
def test_a_chain_is_the_same_job_as_one_without_a_graph(data: st.DataObject) -> None:
    """Under priorities and placements that do not read s_J, with and without buckets."""
    case = replace(
        data.draw(cases(general=True)),
        placement=data.draw(st.sampled_from(["ff", "rand"])),
        priority=data.draw(st.sampled_from(["fifo", "smallest"])),
    )
    jobs = list(case.workload)
    for index, job in enumerate(jobs):
        if job.gpus > 1 and data.draw(st.booleans()):
            jobs[index] = with_graph(job, chain(case, index))
    plain, graphs = run_oracle(case), run_oracle(replace(case, workload=Workload(jobs)))
    assert plain.start_ns == graphs.start_ns
    assert plain.finish_ns == graphs.finish_ns
    assert plain.gpus == graphs.gpus
    assert anonymous(plain.tasks) == anonymous(graphs.tasks)


def anonymous(tasks: Iterable[oracle.OracleTask]) -> list[tuple[int, ...]]:
    """Return what is known of tasks whether or not they come from a graph."""
    found: list[tuple[int, ...]] = [
        (t.start_ns, t.end_ns, t.job, t.iteration, t.gpu) for t in tasks
    ]
    return sorted(found)


@settings(max_examples=min(settings().max_examples, 15))
@given(case=cases(general=True, graphs=True))
def test_what_a_graph_says_holds_of_every_run(case: Case) -> None:
    """Every task and message once, after what it waits for; messages of a channel one by one."""
    outcome = run_oracle(case)
    for index, job in enumerate(case.workload):
        if job.graph is None:
            continue
        expansion = oracle.Expansion(job.graph)
        begin = outcome.start_ns[index]
        for iteration in range(job.iterations):
            own = [t for t in outcome.tasks if (t.job, t.iteration) == (index, iteration)]
            start = {node: [t for t in own if t.number == node.number] for node in expansion.nodes}
            end: dict[oracle.Node, int] = {}
            while len(end) < len(expansion.nodes):
                for node in expansion.nodes:
                    if node not in end and expansion.waits[node] <= end.keys():
                        ready = max([begin, *(end[other] for other in expansion.waits[node])])
                        assert node.is_message or len(start[node]) == 1
                        assert all(task.start_ns >= ready for task in start[node])
                        end[node] = max([ready, *(task.end_ns for task in start[node])])
            begin = max(end.values())
        assert begin == outcome.finish_ns[index]


@given(data=st.data())
def test_the_domain_and_the_oracle_expand_a_graph_alike(data: st.DataObject) -> None:
    graph = data.draw(job_graphs(data.draw(st.integers(1, MOST_RANKS))))
    expansion, found = oracle.Expansion(graph), graph.expanded
    successors = {
        (node, int(other))
        for node in range(found.nodes)
        for other in found.successors[found.successor_start[node] : found.successor_start[node + 1]]
    }
    waits = {(other.number, node.number) for node, own in expansion.waits.items() for other in own}
    assert successors == waits
    assert len(found.successors) == len(waits)
    assert found.predecessors.tolist() == [len(expansion.waits[node]) for node in expansion.nodes]
    place = {node: at for at, node in enumerate(found.topological_order.tolist())}
    assert all(place[before] < place[after] for before, after in successors)
    times = {n: 0 if n.is_message else n.entry.duration_ns for n in expansion.nodes}
    assert graph.unit_ns() == expansion.length_ns(times)


def waits_for_a_later_one(graph: Graph) -> bool:
    """Whether an entry waits for one that was drawn after it."""
    return any(name > entry.name for entry in graph.entries for name in entry.after)


def at_once(case: Case) -> bool:
    """Whether two messages of one job overlap in time."""
    sent = [t for t in run_oracle(case).tasks if t.kind == "message" and t.number >= 0]
    return any(
        a.job == b.job and a.number < b.number and a.start_ns < b.end_ns and b.start_ns < a.end_ns
        for a, b in itertools.permutations(sent, 2)
    )


@pytest.mark.slow
def test_random_graphs_reach_what_is_hard() -> None:
    once = settings(phases=[Phase.generate])
    assert find(iteration_graphs(4), waits_for_a_later_one, settings=once)
    assert find(cases(general=True, graphs=True), at_once, settings=once)
