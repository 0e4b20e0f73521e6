"""Least delay puts a job where it is delayed, and delays others, least."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import MB, make_job, make_workload
from graph_strategies import iteration_graphs
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.compute_times import compute_times
from headway.domain.gpus import GpuType
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.engine.run import simulate
from headway.engine.setup import prepare
from headway.graphs import Layer, MoeLayer, ddp, fsdp, moe, pipeline
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.results.schema import Result

SECOND = 10**9


def run(*jobs: Job, cluster: str | Cluster = "4x2") -> Result:
    return simulate(make_workload(*jobs), cluster, policy="headway")


def servers(result: Result, job: int) -> set[int]:
    return set(result.settings.cluster.servers_of(result.gpus[job]))


def test_a_job_that_fits_a_server_gets_one() -> None:
    result = run(make_job(gpus=1, iterations=9), make_job(gpus=2), make_job(gpus=2))
    assert [len(servers(result, job)) for job in range(3)] == [1, 1, 1]
    assert not set(result.gpus[1]) & set(result.gpus[2])


@pytest.mark.parametrize("gpus", [3, 4, 5, 7, 8, 9])
def test_a_larger_job_gets_a_block_of_servers(gpus: int) -> None:
    """On five servers of two GPUs; the last block may overlap the one before it."""
    result = run(*[make_job(gpus=gpus, iterations=5) for _ in range(4)], cluster="5x2")
    size = -(-gpus // 2)
    blocks = [set(range(s, s + size)) for s in {*range(0, 6 - size, size), 5 - size}]
    assert all(servers(result, job) in blocks for job in range(4))


def test_jobs_that_send_go_to_different_blocks() -> None:
    result = run(*[make_job(gpus=4, iterations=5) for _ in range(2)])
    assert not servers(result, 0) & servers(result, 1)


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_a_job_goes_where_nobody_is_even_if_the_delay_of_others_would_be_hidden(gpus: int) -> None:
    """A job that mostly sends would hide the short computing of the new one on its GPUs."""
    long = make_job(gpus=4, iterations=900, gradient_bytes=100 * MB)
    new = make_job(gpus=gpus, iterations=100, gradient_bytes=100 * MB, arrival_ns=1)
    result = run(long, new)
    assert servers(result, 0) == {0, 1}
    assert servers(result, 1) <= {2, 3}


def test_a_job_had_rather_wait_a_little_than_delay_another_a_lot() -> None:
    """Behind 15 ms of a short job it waits 15 ms; before a long one it would cost that 30 ms."""
    short, long = make_job(iterations=5), make_job(iterations=500)
    new = make_job(iterations=10, arrival_ns=1)
    result = simulate(make_workload(short, long, new), "2x1", policy="headway")
    assert result.gpus[2] == result.gpus[0]


def test_a_gang_that_already_waits_on_one_gpu_is_where_small_jobs_go() -> None:
    """A second small job on another GPU of the same wide job delays that job no further."""
    wide = [make_job(gpus=2, iterations=400) for _ in range(2)]
    small = [make_job(gpus=1, iterations=50, arrival_ns=1) for _ in range(2)]
    result = simulate(make_workload(*wide, *small), "2x2", policy="headway")
    assert servers(result, 2) == servers(result, 3)
    assert result.gpus[2] != result.gpus[3]


def test_a_job_that_must_send_waits_rather_than_queue_behind_more_than_itself() -> None:
    long = [make_job(gpus=4, iterations=100) for _ in range(2)]
    longer = make_job(gpus=4, iterations=150)
    result = simulate(make_workload(*long, longer), "2x2", policy="headway")
    assert result.start_ns.tolist()[0] == 0
    assert result.start_ns[2] > 0
    short = make_job(gpus=4, iterations=10)
    result = simulate(make_workload(*long, short), "2x2", policy="headway")
    assert result.start_ns[2] == 0


WHOLE_GPU = Cluster().gpu_memory_bytes


@pytest.mark.parametrize(("longest", "expected"), [(900, {1, 3}), (1, {2, 3})])
def test_without_a_block_a_job_that_must_send_gets_empty_servers(
    longest: int, expected: set[int]
) -> None:
    """Servers 0 and 1 and servers 2 and 3 are blocks; the job on server 1 ends first."""
    small = [
        make_job(memory_bytes=WHOLE_GPU, iterations=n, arrival_ns=at)
        for at, n in enumerate((900, 5, longest))
    ]
    large = make_job(gpus=2, memory_bytes=WHOLE_GPU, arrival_ns=SECOND)
    result = run(*small, large, cluster="4x1")
    assert [servers(result, job) for job in range(3)] == [{0}, {1}, {2}]
    assert (servers(result, 3), result.start_ns[3]) == (expected, SECOND)


def test_jobs_wait_where_too_few_servers_are_empty() -> None:
    """Three GPUs are free, but only two of them on an empty server."""
    small = [make_job(gpus=n, memory_bytes=WHOLE_GPU, iterations=900) for n in (1, 2, 2)]
    result = run(
        *small,
        make_job(gpus=3, memory_bytes=WHOLE_GPU, arrival_ns=1),
        make_job(gpus=4, memory_bytes=WHOLE_GPU, arrival_ns=2),
        cluster="4x2",
    )
    assert result.start_ns[3] >= result.finish_ns[:3].min()
    assert result.start_ns[4] >= result.finish_ns[:3].min()


def test_every_job_finishes_even_when_all_are_as_large_as_the_cluster() -> None:
    jobs = [make_job(gpus=6, iterations=3, gradient_bytes=900 * MB) for _ in range(5)]
    result = run(*jobs, cluster="3x2")
    assert (result.finish_ns > 0).all()


def test_a_block_is_as_small_as_the_largest_servers_allow() -> None:
    """Four GPUs are on one server, if it is one of the large ones; six are on two of these."""
    cluster = Cluster.of([ServerGroup(2, 1), ServerGroup(2, 4)])
    result = run(*[make_job(gpus=4)] * 2, make_job(gpus=6), cluster=cluster)
    assert {*map(frozenset, (servers(result, 0), servers(result, 1)))} == {
        frozenset({2}),
        frozenset({3}),
    }
    assert servers(result, 2) == {2, 3}


def test_only_gpus_with_enough_memory_make_a_block() -> None:
    """Also while others hold their memory: then a job that fits a server waits for one."""
    small, large = (
        GpuType(name, gb * 1024 * MB, 15.7, 40, 300) for name, gb in (("s", 8), ("l", 32))
    )
    cluster = Cluster.of([ServerGroup(1, 4, small), ServerGroup(3, 2, large)])
    whole = [make_job(gpus=1, memory_bytes=large.memory_bytes, iterations=9) for _ in range(3)]
    result = run(
        *whole,
        make_job(gpus=2, memory_bytes=20 * 1024 * MB, arrival_ns=1),
        make_job(gpus=3, memory_bytes=20 * 1024 * MB, arrival_ns=2),
        cluster=cluster,
    )
    assert len(servers(result, 3)) == 1
    assert len(servers(result, 4)) == 2
    assert not (servers(result, 3) | servers(result, 4)) & {0}


A_BYTE_A_NS = NetworkModel(a_ns=0, b_ns_per_byte=1.0, eta_ns_per_byte=0.0)


def test_messages_that_overlap_with_computing_keep_the_network_busy_all_the_same() -> None:
    """The long jobs have T = 1,000. The short one, of C = 10 and N = 300, may delay either.

    The plain one has N = 750, so it would end 50 later. The one with a graph, whose iterations of
    100 take no longer for its messages of 99, would end 290 later, at 990 + 300, and not just 10.
    """
    ranks = range(4)
    graph = Graph(
        4,
        [Task("first", ranks, 1), Task("rest", ranks, 99)],
        [Message("gradients", "all-reduce", [ranks], 99, after=["first"])],
    )
    plain = make_job(gpus=4, iterations=10, forward_ns=10, backward_ns=15, gradient_bytes=75)
    long = Job("1", 1, 4, 10, graph=graph)
    short = make_job(
        gpus=4, iterations=1, arrival_ns=2, forward_ns=5, backward_ns=5, gradient_bytes=300
    )
    workload = make_workload(plain, long, short)
    result = simulate(workload, "4x2", network=A_BYTE_A_NS, policy="least-delay+srtf+srsf:1")
    assert list(result.gpus) == [(0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 2, 3)]


@pytest.mark.parametrize(
    ("server_of", "sending_ns"),
    [
        ([0, 0, 0, 0], [0]),
        # The send from rank 1 to rank 2 is half its bytes, the others are on one server each.
        ([0, 0, 1, 1], [50, 50]),
        # The all-reduce of ranks 2 and 3, of 30 bytes.
        ([0, 0, 0, 1], [30, 30]),
        # All of them; rank 1 has a part in two.
        ([0, 1, 2, 2], [30, 80, 50]),
    ],
)
def test_what_a_server_sends_follows_from_the_ranks_on_it(
    server_of: list[int], sending_ns: list[int]
) -> None:
    graph = Graph(
        4,
        [Task("first", range(4), 1)],
        [
            Message("send", "send", [(1, 2)], 100),
            Message("gradients", "all-reduce", [(0, 1), (2, 3)], 30, "gradients"),
        ],
    )
    workload, cluster = make_workload(Job("0", 0, 4, 1, graph=graph)), Cluster(4, 4)
    times, choices = compute_times(workload, cluster), PolicySet.parse("headway").choices
    state = prepare(workload, cluster, A_BYTE_A_NS, choices, times, 0, None, "full", 0)
    found = np.zeros(len(sending_ns), np.int64)
    state.cluster.sending_by_server(state.cluster, 0, np.array(server_of), found)
    assert found.tolist() == sending_ns


def a_gpu_taken(new: Graph, cluster: str) -> Result:
    """Run ten iterations of a job with a graph where GPU 0 has no memory left."""
    memory_bytes = 16 * 1024 * MB
    taken = make_job(gpus=1, iterations=10**6, memory_bytes=memory_bytes)
    job = Job("graph", 1, new.ranks, 10, memory_bytes=memory_bytes, graph=new)
    return run(taken, job, cluster=cluster)


PAIRS = Graph(
    6,
    [Task("task", range(6), SECOND // 10)],
    [Message("gradients", "all-reduce", [(0, 1), (2, 3), (4, 5)], 500 * MB, after=["task"])],
)
STAGE = [Layer(2_000_000, 4_000_000, 100 * MB, 8 * MB)] * 4
REPLICAS = pipeline([STAGE] * 3, 6, data_parallel=2)


@pytest.mark.parametrize(("graph", "seconds"), [(PAIRS, 1.0), (REPLICAS, 2.28)])
def test_a_block_where_ranks_that_talk_stay_together_is_preferred(
    graph: Graph, seconds: float
) -> None:
    """In the first block, GPUs 1 to 6 are the cheapest, but would part ranks 2 and 3."""
    result = a_gpu_taken(graph, "4x4")
    assert result.gpus[1] == (8, 9, 10, 11, 12, 13)
    assert result.jct_s[1] <= seconds


@pytest.mark.parametrize(("graph", "seconds"), [(PAIRS, 1.0), (REPLICAS, 2.28)])
def test_a_block_offers_gpus_that_keep_ranks_that_talk_together(
    graph: Graph, seconds: float
) -> None:
    """There is one block, with three GPUs left in its first server: it gives two of them."""
    result = a_gpu_taken(graph, "2x4")
    assert result.gpus[1] == (1, 2, 4, 5, 6, 7)
    assert result.jct_s[1] <= seconds


def test_ranks_that_talk_stay_together_in_units_of_three() -> None:
    """Two stages of three replicas: three and three GPUs, not four and two."""
    graph = pipeline([STAGE] * 2, 4, data_parallel=3)
    result = run(Job("graph", 0, 6, 10, graph=graph), cluster="2x4")
    assert result.gpus[0] == (0, 1, 2, 4, 5, 6)


@pytest.mark.parametrize(
    ("sent_bytes", "gpus"), [(MB, (2, 3, 4, 5, 6, 7)), (500 * MB, (1, 2, 3, 4, 5, 6))]
)
def test_a_job_waits_for_a_gpu_only_to_save_longer_messages(
    sent_bytes: int, gpus: tuple[int, ...]
) -> None:
    """GPU 0 has no memory left and GPU 1 is busy for 1 s; ranks 1 and 2 talk."""
    full = make_job(gpus=1, iterations=10**6, memory_bytes=16 * 1024 * MB)
    busy = make_job(
        gpus=1, iterations=10, arrival_ns=1, forward_ns=SECOND // 20, backward_ns=SECOND // 20
    )
    graph = Graph(
        6,
        [Task("task", range(6), SECOND // 10)],
        [Message("send", "send", [(1, 2)], sent_bytes, after=["task"])],
    )
    result = run(full, busy, Job("graph", 2, 6, 100, graph=graph), cluster="2x4")
    assert result.gpus[1] == (1,)
    assert result.gpus[2] == gpus


@st.composite
def empty_clusters(draw: st.DrawFn) -> Cluster:
    return Cluster(draw(st.integers(2, 5)), draw(st.integers(2, 6)))


def service_ns(graph: Graph, cluster: Cluster, placement: str) -> int:
    """Return s_J: every message starts as soon as it is ready."""
    workload = make_workload(Job("0", 0, graph.ranks, 1, graph=graph))
    return int(simulate(workload, cluster, policy=f"{placement}+srtf+srsf:1000").finish_ns[0])


@st.composite
def training_graphs(draw: st.DrawFn, most_ranks: int) -> Graph:
    """Draw a graph of any builder, whose gradients are far larger than its activations."""
    forward_ns = draw(st.integers(1_000_000, 10_000_000))
    parameters = draw(st.integers(100, 400)) * MB
    kind = draw(st.sampled_from(["ddp", "fsdp", "moe", "pipeline", "pipeline"]))
    layer = Layer(forward_ns, 2 * forward_ns, parameters, MB)
    if kind == "pipeline":
        replicas = draw(st.integers(1, min(4, most_ranks // 2)))
        stages = draw(st.integers(2, most_ranks // replicas))
        return pipeline([[layer]] * stages, draw(st.integers(1, 4)), data_parallel=replicas)
    ranks = draw(st.integers(2, most_ranks))
    if kind == "ddp":
        return ddp([layer] * 3, ranks)
    if kind == "fsdp":
        return fsdp([layer] * 3, ranks)
    spread = draw(st.sampled_from([size for size in range(1, ranks + 1) if ranks % size == 0]))
    expert = MoeLayer(forward_ns, forward_ns, forward_ns, forward_ns, MB, parameters, parameters)
    return moe([expert] * 2, ranks, expert_parallel=spread)


@settings(max_examples=min(settings().max_examples, 40))
@given(cluster=empty_clusters(), data=st.data())
def test_alone_on_an_empty_cluster_no_iteration_is_longer_than_with_lwf_or_consolidate(
    cluster: Cluster, data: st.DataObject
) -> None:
    graph = data.draw(training_graphs(cluster.gpus))
    others = [service_ns(graph, cluster, placement) for placement in ("lwf:1", "consolidate")]
    assert service_ns(graph, cluster, "least-delay") <= min(others)


@settings(max_examples=min(settings().max_examples, 40))
@given(cluster=empty_clusters(), data=st.data())
def test_alone_on_an_empty_cluster_no_server_sends_more_than_with_lwf_or_consolidate(
    cluster: Cluster, data: st.DataObject
) -> None:
    """Whatever the graph is."""
    ranks = data.draw(st.integers(2, min(8, cluster.gpus)))
    graph = data.draw(iteration_graphs(ranks))

    def most_sent_ns(placement: str) -> int:
        workload = make_workload(Job("0", 0, ranks, 1, graph=graph))
        result = simulate(workload, cluster, policy=f"{placement}+srtf+srsf:1")
        times, choices = compute_times(workload, cluster), PolicySet.parse("headway").choices
        state = prepare(workload, cluster, NetworkModel(), choices, times, 0, None, "full", 0)
        used, cut = np.unique(cluster.server_of_gpu[list(result.gpus[0])], return_inverse=True)
        sent = np.zeros(len(used), np.int64)
        state.cluster.sending_by_server(state.cluster, 0, cut, sent)
        return int(sent.max())

    others = [most_sent_ns(placement) for placement in ("lwf:1", "consolidate")]
    assert most_sent_ns("least-delay") <= min(others)
