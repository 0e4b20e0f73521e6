"""`/needed-first`: of a job's messages on one port, the one with the most computing behind it."""

from __future__ import annotations

import pytest

from builders import make_workload
from headway.domain.cluster import Cluster
from headway.domain.compute_times import compute_times
from headway.domain.errors import InputError
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.engine.run import simulate
from headway.engine.setup import prepare
from headway.graphs import Layer, MoeLayer, moe, pipeline
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.policies.registry import choose
from headway.results.timeline.sinks import Timeline
from headway.workload.generate import Recipe, generate_workload

BOTH = (0, 1)
NETWORK = NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.0)
"""A byte takes a nanosecond."""


def with_tokens(after: str = "first") -> Graph:
    """Return a graph of gradients, 100 bytes, and tokens, 20 bytes, that `last` waits for."""
    return Graph(
        2,
        [Task("first", BOTH, 10), Task("second", BOTH, 5), Task("last", BOTH, 50, ["tokens"])],
        [
            Message("gradients", "all-reduce", [BOTH], 100, "gradients", ["first"]),
            Message("tokens", "all-reduce", [BOTH], 20, "tokens", [after]),
        ],
    )


def sent(graph: Graph, admission: str, bucket_bytes: int | None = None) -> list[tuple[int, ...]]:
    """Return (number, start, end) of each message of one iteration on two servers."""
    timeline = Timeline()
    simulate(
        make_workload(Job("0", 0, 2, 1, graph=graph)),
        "2x1",
        network=NETWORK,
        policy=PolicySet("spread", "fifo", admission, bucket_bytes),
        timeline=timeline,
    )
    tasks = timeline.tasks()
    rows = tasks[tasks.gpu == -1]
    first = rows.node.min()
    return sorted((int(t.node - first), int(t.start_ns), int(t.end_ns)) for t in rows)


def test_messages_go_by_number_without_the_option_and_by_need_with_it() -> None:
    assert sent(with_tokens(), "srsf:1") == [(0, 10, 110), (1, 110, 130)]
    assert sent(with_tokens(), "srsf:1/needed-first") == [(0, 30, 130), (1, 10, 30)]


def test_a_message_that_is_needed_first_goes_between_the_buckets_of_another() -> None:
    graph = with_tokens(after="second")
    assert sent(graph, "srsf:1", 30)[-1] == (1, 110, 130)
    assert sent(graph, "srsf:1/needed-first", 30) == [
        (0, 10, 40),
        (0, 60, 90),
        (0, 90, 120),
        (0, 120, 130),
        (1, 40, 60),
    ]


def test_a_message_shares_no_port_with_one_of_its_job_that_is_needed_before_it() -> None:
    assert sent(with_tokens(), "srsf:2") == [(0, 10, 130), (1, 10, 50)]
    assert sent(with_tokens(), "srsf:2/needed-first") == [(0, 30, 130), (1, 10, 30)]
    # The other way round it may: the gradients are on their way when the tokens are ready.
    shared = sent(with_tokens(after="second"), "srsf:2/needed-first")
    assert shared == [(0, 10, 130), (1, 15, 55)]


def test_of_messages_with_as_much_behind_them_the_lower_number_goes_first() -> None:
    ends = [Message(name, "all-reduce", [BOTH], 10, name, ["first"]) for name in ("one", "other")]
    graph = Graph(2, [Task("first", BOTH, 10)], ends)
    assert sent(graph, "srsf:2/needed-first") == [(0, 10, 20), (1, 20, 30)]


def test_nothing_waits_on_a_network_without_contention() -> None:
    quiet = NETWORK.without_contention()
    job = make_workload(Job("0", 0, 2, 3, graph=with_tokens()))
    ends = [
        simulate(job, "2x1", network=quiet, policy=f"spread+fifo+srsf:1{option}").finish_ns.tolist()
        for option in ("", "/needed-first")
    ]
    assert ends[0] == ends[1] == [3 * 110]


def behind_ns(graph: Graph) -> list[int]:
    """Return what policies see behind each message of a graph."""
    workload, cluster = make_workload(Job("0", 0, graph.ranks, 1, graph=graph)), Cluster(4, 4)
    times, choices = compute_times(workload, cluster), PolicySet.parse("headway").choices
    state = prepare(workload, cluster, NETWORK, choices, times, 0, None, "full", 0)
    found: list[int] = state.cluster.message_groups.behind_ns.tolist()
    return found


def test_behind_a_message_is_the_longest_path_of_computing_to_the_end() -> None:
    # Behind the gradients comes nothing, behind the tokens the last task.
    assert behind_ns(with_tokens()) == [0, 50]
    # The activations of two stages and two microbatches, and their gradients.
    layer = Layer(2, 5, activation_bytes=8)
    graph = pipeline([[layer], [layer]], 2, schedule="gpipe")
    names = [message.name for message in graph.messages]
    assert dict(zip(names, behind_ns(graph), strict=True)) == {
        "send-forward-0.0": 2 + 2 + 5 + 5 + 5,
        "send-forward-0.1": 2 + 5 + 5 + 5,
        "send-backward-1.0": 5 + 5,
        "send-backward-1.1": 5,
    }


def test_tokens_of_experts_are_needed_before_gradients() -> None:
    layer = MoeLayer(4, 8, 4, 8, 100, 1000, 1000)
    graph = moe([layer, layer], 4)
    behind = dict(zip([one.name for one in graph.messages], behind_ns(graph), strict=True))
    assert behind["gradients-1"] == behind["gradients-2"] == 0
    assert behind["dispatch-backward-2"] == 8 + 8 + 8
    assert behind["combine-backward-1"] == 8 + 8


def test_jobs_without_graphs_are_not_concerned() -> None:
    workload = generate_workload(Recipe(30, 20, {1: 1, 3: 2, 5: 1}, (3, 30), ["resnet50"]), seed=1)
    runs = [
        simulate(workload, "4x4", policy=f"lwf:1+srsf+ada-dual{option}@20")
        for option in ("", "/needed-first")
    ]
    assert runs[0].finish_ns.tolist() == runs[1].finish_ns.tolist()
    assert runs[0].start_ns.tolist() == runs[1].start_ns.tolist()


def test_every_admission_and_scheduler_has_the_option() -> None:
    assert str(PolicySet.parse("ff+ada-srsf/needed-first@25")) == (
        "ff+srsf+ada-dual/needed-first@25"
    )
    assert str(PolicySet.parse("ff+srsf:02/needed-first")) == "ff+srsf+srsf:2/needed-first"
    assert choose("admission", "k-way/needed-first").needed_first
    assert not choose("admission", "k-way").needed_first
    assert PolicySet.parse("headway").override(bucket_mb=0) == PolicySet.parse("headway@0")


@pytest.mark.parametrize("kind", ["placement", "priority"])
def test_other_policies_do_not_have_it(kind: str) -> None:
    with pytest.raises(InputError, match="only admissions have the option /needed-first"):
        choose(kind, "srsf/needed-first")  # type: ignore[arg-type]


def test_the_option_is_given_once() -> None:
    with pytest.raises(InputError, match="'ada-dual/needed-first/needed-first' has the option"):
        choose("admission", "ada-dual/needed-first/needed-first")


def test_an_unknown_option_is_an_unknown_policy() -> None:
    with pytest.raises(InputError, match="unknown admission policy 'ada-dual/needed'"):
        choose("admission", "ada-dual/needed")
