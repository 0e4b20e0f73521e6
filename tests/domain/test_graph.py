"""Graphs of iterations: what is refused, how entries expand, and the kinds of messages."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from builders import make_workload
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.compute_times import compute_times, estimated_pairs
from headway.domain.errors import InputError
from headway.domain.gpus import V100, GpuType
from headway.domain.graph import MAX_NODES, Graph, Message, Task
from headway.domain.job import Job
from headway.domain.message_kinds import KINDS, message_latency_ns, message_size_bytes

ALL = (0, 1, 2, 3)


def overlapped() -> Graph:
    """Forward, and backward in two parts whose gradients are sent in two groups."""
    return Graph(
        4,
        (Task("forward", ALL, 10), Task("late", (3, 2, 1, 0), 5), Task("early", ALL, 7)),
        [
            Message("m1", "all-reduce", (ALL,), 100, after=("late",)),
            Message("m2", "reduce-scatter", ((1, 0), (2, 3)), 51, after=("early",)),
        ],
    )


def edges(graph: Graph) -> set[tuple[int, int]]:
    start, successors = graph.expanded.successor_start, graph.expanded.successors
    return {
        (node, int(other))
        for node in range(graph.expanded.nodes)
        for other in successors[start[node] : start[node + 1]]
    }


def test_entries_expand_to_one_task_a_rank_and_one_message_a_group() -> None:
    found = overlapped().expanded
    assert found.task_rank.tolist() == [*ALL, *ALL, *ALL]
    assert found.task_ns.tolist() == [10] * 4 + [5] * 4 + [7] * 4
    assert found.task_entry.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert found.message_entry.tolist() == [0, 1, 1]
    assert found.message_kind.tolist() == [0, 1, 1]
    assert found.message_bytes.tolist() == [100, 51, 51]
    assert found.group_start.tolist() == [0, 4, 6, 8]
    assert found.group_ranks.tolist() == [*ALL, *ALL]
    assert found.rank_start.tolist() == [0, 3, 6, 9, 12]
    assert found.rank_tasks.tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]


def test_nodes_wait_by_the_streams_by_after_and_by_channels() -> None:
    stream = {(rank + at, rank + at + 4) for rank in ALL for at in (0, 4)}
    after = {(4 + rank, 12) for rank in ALL} | {(8, 13), (9, 13), (10, 14), (11, 14)}
    graph = overlapped()
    assert edges(graph) == stream | after | {(12, 13), (12, 14)}
    assert graph.expanded.predecessors.tolist() == [0] * 4 + [1] * 8 + [4, 3, 3]
    place = {node: at for at, node in enumerate(graph.expanded.topological_order.tolist())}
    assert sorted(place) == list(range(15))
    assert all(place[before] < place[after] for before, after in edges(graph))


def test_messages_of_two_channels_or_without_a_common_rank_have_no_order() -> None:
    tasks = [Task("t", ALL, 1)]
    messages = [
        Message("a", "send", ((0, 1),), 1),
        Message("b", "send", ((2, 3),), 1),
        Message("c", "send", ((1, 2),), 1),
        Message("d", "send", ((1, 2),), 1, channel="other"),
    ]
    assert edges(Graph(4, tasks, messages)) == {(4, 6), (5, 6)}


def test_a_task_waits_for_the_message_of_its_own_group() -> None:
    graph = Graph(
        4,
        [Task("one", ALL, 1), Task("two", (1, 2), 1, after=("m",))],
        [Message("m", "all-gather", ((0, 1), (2, 3)), 1, after=("one",))],
    )
    assert {(6, 4), (7, 5)} <= edges(graph)
    assert (6, 5) not in edges(graph)


def test_the_unit_is_the_longest_path_with_free_messages() -> None:
    assert overlapped().unit_ns() == 22
    assert overlapped().unit_ns([1] * 11 + [9]) == 11
    pipeline = Graph(
        2,
        [Task(f"{s}.{m}", (s,), 10, after=[f"m{m}"] if s else []) for s in (0, 1) for m in (0, 1)],
        [Message(f"m{m}", "send", ((0, 1),), 1, after=[f"0.{m}"]) for m in (0, 1)],
    )
    assert pipeline.unit_ns() == 30


def test_a_graph_can_be_a_key_and_be_pickled() -> None:
    assert hash(overlapped()) == hash(overlapped())
    again = pickle.loads(pickle.dumps(overlapped()))
    assert again == overlapped()
    assert edges(again) == edges(overlapped())


def changed(
    ranks: Any = 4,
    task: dict[str, Any] | None = None,
    message: dict[str, Any] | None = None,
    more: Sequence[Task | Message] = (),
) -> Graph:
    """Return a graph of one task and one message, with changes to either."""
    first: dict[str, Any] = {"name": "t", "ranks": ALL, "duration_ns": 1} | (task or {})
    second: dict[str, Any] = {
        "name": "m",
        "kind": "all-reduce",
        "groups": (ALL,),
        "buffer_bytes": 1,
        "after": ["t"],
    }
    return Graph(
        ranks,
        [Task(**first), *(entry for entry in more if isinstance(entry, Task))],
        [
            Message(**(second | (message or {}))),
            *(entry for entry in more if isinstance(entry, Message)),
        ],
    )


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ranks": 0}, "ranks: must be at least 1, not 0."),
    ({"ranks": True}, "ranks: must be a whole number, not True."),
    ({"ranks": 2**24 + 1}, "ranks: must be at most 16,777,216, not 16777217."),
    ({"ranks": 5}, "tasks: rank 4 has no task; each rank needs at least one."),
    ({"ranks": 3}, "task 't', ranks: there is no rank 3; ranks are 0 to 2."),
    ({"task": {"name": ""}}, "task '', name: must be a non-empty string."),
    ({"task": {"name": 7}}, "task 7, name: must be a non-empty string."),
    (
        {"task": {"ranks": ()}},
        "task 't', ranks: must not be empty; a task is for at least one rank.",
    ),
    ({"task": {"ranks": "all"}}, "task 't', ranks: must be a list, not 'all'."),
    ({"task": {"ranks": 4}}, "task 't', ranks: must be a list, not 4."),
    (
        {"task": {"ranks": (0, 1, 1)}},
        "task 't', ranks: rank 1 is there twice; give each rank once.",
    ),
    ({"task": {"ranks": (0, -1)}}, "task 't', ranks: there is no rank -1; ranks are 0 to 3."),
    ({"task": {"ranks": (0, 1.0)}}, "task 't', ranks: a rank must be a whole number, not 1.0."),
    ({"task": {"duration_ns": 0}}, "task 't', duration_ns: must be at least 1, not 0."),
    (
        {"task": {"duration_ns": 2**61 + 1}},
        "task 't', duration_ns: must be at most 2,305,843,009,213,693,952, not "
        "2305843009213693953.",
    ),
    (
        {"task": {"after": ["t"]}},
        "task 't', after: an entry cannot wait for itself; leave its own name out.",
    ),
    ({"task": {"after": ["tt"]}}, "task 't', after: unknown name 'tt'. Known: m."),
    ({"task": {"after": "m"}}, "task 't', after: must be a list, not 'm'."),
    (
        {"task": {"after": ["u"]}, "more": [Task("u", ALL, 1)]},
        "task 't', after: the task 'u' stands later in the list; a task can only wait for tasks "
        "before it.",
    ),
    (
        {"more": [Message("t", "send", ((0, 1),), 1)]},
        "message 't': the name is used twice; names of tasks and messages must all differ.",
    ),
    (
        {"message": {"kind": "allreduce"}},
        "message 'm', kind: unknown kind 'allreduce'. Did you mean 'all-reduce'?",
    ),
    ({"message": {"channel": ""}}, "message 'm', channel: must be a non-empty string, not ''."),
    ({"message": {"channel": None}}, "message 'm', channel: must be a non-empty string, not None."),
    ({"message": {"buffer_bytes": -1}}, "message 'm', buffer_bytes: must be at least 0, not -1."),
    (
        {"message": {"buffer_bytes": 2**53 + 1}},
        "message 'm', buffer_bytes: must be at most 9,007,199,254,740,992, not 9007199254740993.",
    ),
    (
        {"message": {"kind": "all-to-all", "buffer_bytes": 2**53}},
        "message 'm', buffer_bytes: must be at most 6,004,799,503,160,661 bytes in a group of 4 "
        "ranks, not 9,007,199,254,740,992.",
    ),
    (
        {"message": {"groups": []}},
        "message 'm', groups: must not be empty; a message has at least one group.",
    ),
    (
        {"message": {"groups": [ALL, (1,)]}},
        "message 'm', groups: a group needs at least two ranks, not [1].",
    ),
    ({"message": {"groups": [0, 1]}}, "message 'm', groups: must be a list, not 0."),
    (
        {"message": {"groups": [(0, 1), (1, 2)]}},
        "message 'm', groups: rank 1 is there twice; give each rank once.",
    ),
    (
        {"message": {"groups": [(0, 9)]}},
        "message 'm', groups: there is no rank 9; ranks are 0 to 3.",
    ),
    (
        {"message": {"kind": "send"}},
        "message 'm', groups: each group of a send has exactly two ranks, not 4: [0, 1, 2, 3].",
    ),
    (
        {"ranks": 1, "task": {"ranks": (0,)}},
        "message 'm': a graph of one rank has no messages; leave it out.",
    ),
    (
        {"more": [Task("u", (0,), 1), Message("n", "send", ((1, 2),), 1, after=("u",))]},
        "message 'n', after: has no rank in common with 'u', so nothing would wait; leave 'u' out "
        "or correct the ranks.",
    ),
    (
        {"task": {"after": ["m"]}},
        "a cycle: 't' on rank 3 -> 'm' among ranks 0, 1, 2, 3 -> 't' on rank 3, each before the "
        "next by `after`, by the order of a rank's tasks or by that of a channel's messages.",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_graph_that_breaks_a_rule_is_refused(changes: dict[str, Any], message: str) -> None:
    assert changed().message_count == 1
    with pytest.raises(InputError) as caught:
        changed(**changes)
    assert str(caught.value) == message


def test_a_cycle_through_a_stream_and_a_channel_is_refused() -> None:
    tasks = [Task("a", (0, 1), 5, after=("n",)), Task("b", (0, 1), 5)]
    messages = [
        Message("m", "send", ((0, 1),), 5, after=("b",)),
        Message("n", "send", ((0, 1),), 5),
    ]
    with pytest.raises(InputError, match=r"'a' on rank 1 -> 'b' on rank 1 -> 'm' .* -> 'n' "):
        Graph(2, tasks, messages)


def test_only_some_nodes_of_a_long_cycle_are_named() -> None:
    tasks = [Task(f"t{at}", (0, 1), 5, after=("m",) * (at == 0)) for at in range(100)]
    with pytest.raises(InputError, match=r"'t6' on rank 1 -> … \(94 more\) -> 't0' on rank 1, "):
        Graph(2, tasks, [Message("m", "send", ((0, 1),), 5, after=("t99",))])


def test_a_graph_with_too_many_nodes_is_refused_before_it_is_expanded() -> None:
    everyone = tuple(range(2**20))
    with pytest.raises(InputError) as caught:
        Graph(2**20, [Task(str(at), everyone, 1) for at in range(5)])
    assert str(caught.value) == (
        f"tasks: 5 entries with 5,242,880 ranks in all; at most {MAX_NODES:,} are allowed."
    )


@pytest.mark.parametrize(
    ("kind", "ranks", "ring", "size", "latency"),
    [
        ("all-reduce", 3, False, 7, 669_001),
        ("all-reduce", 3, True, 7, 669_001),
        ("reduce-scatter", 3, False, 4, 334_500),
        ("all-gather", 3, True, 4, 334_500),
        ("all-to-all", 1, False, 4, 334_500),
        ("all-to-all", 3, True, 10, 334_500),
        ("send", 1, False, 4, 334_500),
        ("send", 1, True, 7, 334_500),
    ],
)
def test_the_table_of_kinds(kind: str, ranks: int, ring: bool, size: int, latency: int) -> None:
    """Halves are rounded to even: 3.5 to 4, 10.5 to 10 and 334,500.5 to 334,500."""
    number = KINDS.index(kind)
    assert message_size_bytes(number, 7, ranks, ring) == size
    assert message_latency_ns(number, 669_001) == latency


def test_the_bytes_of_all_messages_count_one_rank_a_server() -> None:
    graph = Graph(
        4,
        [Task("t", ALL, 1)],
        [
            Message("a", "all-to-all", (ALL,), 9),
            Message("b", "send", ((0, 1), (2, 3)), 7),
            Message("c", "all-reduce", (ALL,), 100),
        ],
    )
    assert graph.total_size_bytes(ring=False) == 4 + 2 * 4 + 100
    assert graph.total_size_bytes(ring=True) == 4 + 2 * 7 + 100
    assert graph.message_count == 4


def graph_job(**changes: Any) -> Job:
    fields: dict[str, Any] = {"arrival_ns": 0, "gpus": 4, "iterations": 3, "graph": overlapped()}
    return Job(job_id="j", **(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 3}, "gpus: must be 4, the ranks of the job's graph, not 3."),
        ({"forward_ns": 1}, "forward_ns: a job with a graph has none."),
        ({"gradient_bytes": 1}, "gradient_bytes: a job with a graph has none."),
        ({"model": "vgg16"}, "model: a job with a graph has none."),
        ({"batch_size": 16}, "batch_size: a job with a graph has none."),
        ({"estimated": True}, "estimated: the times of a graph are not estimated."),
        (
            {"arrival_ns": 2**62 - 65},
            "iterations: too many: computation alone would end after the simulator's last instant "
            "(4,611,686,018,427,387,904 ns, 146 years).",
        ),
    ],
)
def test_a_job_with_a_graph_is_nothing_else(changes: dict[str, Any], message: str) -> None:
    assert graph_job(arrival_ns=2**62 - 66).compute_ns == 22
    with pytest.raises(InputError) as caught:
        graph_job(**changes)
    assert str(caught.value) == message


def test_computing_counts_a_graphs_longest_path_and_all_its_tasks() -> None:
    plain = Job("p", 0, 4, 1, forward_ns=10, backward_ns=12)
    assert (plain.compute_ns, plain.gpu_compute_ns) == (22, 88)
    assert (graph_job().compute_ns, graph_job().gpu_compute_ns) == (22, 88)


def test_times_of_a_graph_scale_by_performance_alone() -> None:
    odd = GpuType("odd", 2**34, V100.performance * 2 / 3, 10.0, 100.0)
    cluster = Cluster.of([ServerGroup(1, 4, V100), ServerGroup(1, 4, odd)])
    plain = Job("p", 0, 4, 1, forward_ns=10, backward_ns=12)
    workload = make_workload(graph_job(), plain, graph_job(measured_on="odd"))
    found = compute_times(workload, cluster)
    assert found.times_ns.tolist() == [[[0, 0]] * 2, [[10, 12], [15, 18]], [[0, 0]] * 2]
    entries = [None if times is None else times.tolist() for times in found.graph_times_ns]
    assert entries == [[[10, 5, 7], [15, 8, 10]], None, [[7, 3, 5], [10, 5, 7]]]
    assert found.unit_ns.tolist() == [[22, 33], [22, 33], [15, 22]]
    assert found.estimated.tolist() == [[False, True], [False, True], [True, False]]
    assert estimated_pairs(workload, cluster) == [("", "odd"), ("", "v100-sxm2")]


def test_a_graph_that_a_slow_type_would_compute_beyond_the_last_instant_is_refused() -> None:
    slow = GpuType("slow", 2**34, V100.performance / 1e9, 10.0, 100.0)
    cluster = Cluster.of([ServerGroup(1, 4, V100), ServerGroup(1, 4, slow)])
    with pytest.raises(InputError, match="on slow computation alone would end after"):
        compute_times(make_workload(graph_job(iterations=10**12)), cluster)
