"""Graphs of usual ways to train: their closed forms, alone and by the oracle.

The network has a = 1000 ns, b = 2 and eta = 1 ns per byte.
"""

from __future__ import annotations

from typing import Any

import pytest

import oracle
from headway.domain.errors import InputError
from headway.domain.graph import Graph
from headway.graphs import Layer, MoeLayer, ddp, fsdp, moe, pipeline

KB = 1000


def iteration_ns(graph: Graph, servers: int, **changes: Any) -> int:
    """Return what one iteration takes alone on servers that share the ranks equally."""
    job = oracle.OracleJob(0, graph.ranks, 1, 0, 0, 0, 1, graph)
    given: dict[str, Any] = {
        "server_gpus": [graph.ranks // servers] * servers,
        "memory_bytes": [1],
        "a_ns": 1000,
        "b": 2.0,
        "eta": 1.0,
        "placement": "ff",
        "admission": "srsf:99",
    }
    return oracle.run([job], **(given | changes)).finish_ns[0]


def layers(count: int = 6, **changes: int) -> list[Layer]:
    fields: dict[str, Any] = {"forward_ns": 300, "backward_ns": 700, "parameter_bytes": 10 * KB}
    return [Layer(**(fields | changes)) for _ in range(count)]


def test_ddp_cuts_the_backward_pass_where_a_bucket_is_full() -> None:
    """The first bucket is full after one layer, others with two, the rest is in the last."""
    graph = ddp(layers(), 4, bucket_bytes=20 * KB, first_bucket_bytes=5 * KB)
    assert [(task.name, task.duration_ns) for task in graph.tasks] == [
        ("forward", 1800),
        ("backward-1", 700),
        ("backward-2", 1400),
        ("backward-3", 1400),
        ("backward-4", 700),
    ]
    assert [(m.name, m.buffer_bytes, m.after) for m in graph.messages] == [
        ("gradients-1", 10 * KB, ("backward-1",)),
        ("gradients-2", 20 * KB, ("backward-2",)),
        ("gradients-3", 20 * KB, ("backward-3",)),
        ("gradients-4", 10 * KB, ("backward-4",)),
    ]


def test_ddp_has_pytorchs_buckets() -> None:
    sizes = [m.buffer_bytes for m in ddp(layers(39, parameter_bytes=2**21), 2).messages]
    assert sizes == [2**21, 26 * 2**20, 26 * 2**20, 24 * 2**20]


@pytest.mark.parametrize("bucket", [1, 15 * KB, 30 * KB, 10**9])
@pytest.mark.parametrize("size", [10, 300, 5 * KB])
def test_an_overlapped_iteration_is_between_its_longest_part_and_the_sum(
    bucket: int, size: int
) -> None:
    graph = ddp(layers(parameter_bytes=size), 4, bucket_bytes=bucket, first_bucket_bytes=bucket)
    compute = 6 * 1000
    network = sum(1000 + 2 * message.buffer_bytes for message in graph.messages)
    assert max(compute, network) <= iteration_ns(graph, 4) <= compute + network
    assert iteration_ns(graph, 1) == graph.unit_ns() == compute
    if len(graph.messages) == 1:
        assert iteration_ns(graph, 4) == compute + network
    if size == 10 and bucket == 1:
        # Each bucket but the last is hidden behind 700 of the next layer: 320 are left of each.
        assert iteration_ns(graph, 4) == 1800 + 700 + 6 * 1020


def test_one_gpu_sends_nothing() -> None:
    for graph in (ddp(layers(), 1), fsdp(layers(), 1), moe([moe_layer()], 1)):
        assert graph.messages == ()
    assert ddp(layers(), 1).unit_ns() == 6000
    assert pipeline([layers()], 3).unit_ns() == 3 * 6000


@pytest.mark.parametrize("prefetch", [0, 1, 2, 9])
def test_fsdp_sends_half_more_than_ddp(prefetch: int) -> None:
    whole = ddp(layers(), 4).total_size_bytes(ring=False)
    sharded = fsdp(layers(), 4, prefetch=prefetch)
    assert sharded.total_size_bytes(ring=False) * 2 == 3 * whole
    assert fsdp(layers(), 4, reshard=False).total_size_bytes(ring=False) == whole
    kinds = [message.kind for message in sharded.messages]
    assert (kinds.count("all-gather"), kinds.count("reduce-scatter")) == (12, 6)


def test_fsdp_without_prefetch_waits_for_every_all_gather() -> None:
    """Each all-gather takes 500 + 10,000; gradients take as long, before the next all-gather."""
    graph = fsdp(layers(3), 4, prefetch=0)
    forward = 3 * (10_500 + 300)
    backward = 10_500 + 700 + 2 * (10_500 + 10_500 + 700) + 10_500
    assert iteration_ns(graph, 4) == forward + backward


def test_prefetching_hides_all_gathers_behind_computing() -> None:
    """With long computing the first all-gather and the last gradients alone are not hidden."""
    units = layers(4, forward_ns=30_000, backward_ns=60_000)
    graph = fsdp(units, 4, prefetch=1)
    assert iteration_ns(graph, 4) == 10_500 + 4 * 90_000 + 10_500 + 10_500
    times = [iteration_ns(fsdp(units, 4, prefetch=ahead), 4) for ahead in range(4)]
    assert times == sorted(times, reverse=True)


def test_fsdp_issues_messages_in_pytorchs_order() -> None:
    assert [message.name for message in fsdp(layers(3), 2, prefetch=1).messages] == [
        "gather-forward-1",
        "gather-forward-2",
        "gather-forward-3",
        "gather-backward-3",
        "gather-backward-2",
        "scatter-3",
        "gather-backward-1",
        "scatter-2",
        "scatter-1",
    ]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("microbatches", [1, 3, 8])
def test_the_bubble_of_a_pipeline(schedule: str, stages: int, microbatches: int) -> None:
    """(m + p - 1) * (f + b) if messages are free."""
    graph = pipeline([layers(1)] * stages, microbatches, schedule=schedule)
    expected = (microbatches + stages - 1) * 1000
    assert graph.unit_ns() == iteration_ns(graph, 1) == expected


@pytest.mark.parametrize(
    ("devices", "rounds", "microbatches"), [(2, 2, 4), (4, 2, 8), (4, 3, 4), (3, 1, 6), (1, 3, 2)]
)
def test_interleaved_stages_shrink_the_bubble(devices: int, rounds: int, microbatches: int) -> None:
    """m * v * (f + b) of computing and (p - 1) * (f + b) of waiting, with f and b of one stage."""
    graph = pipeline(
        [layers(1)] * (devices * rounds), microbatches, schedule="interleaved", devices=devices
    )
    assert graph.ranks == devices
    assert graph.unit_ns() == (microbatches * rounds + devices - 1) * 1000


def test_1f1b_has_no_more_microbatches_in_flight_than_stages() -> None:
    graph = pipeline([layers(1)] * 4, 9)
    for rank in range(4):
        names = [task.name for task in graph.tasks if rank in task.ranks]
        ahead = [
            sum(1 if name.startswith("forward") else -1 for name in names[: at + 1])
            for at in range(len(names))
        ]
        assert max(ahead) == 4 - rank
        assert ahead[-1] == 0


def test_a_pipeline_sends_activations_forward_and_back() -> None:
    """Two stages on two servers: each pass waits 500 + 2 * 100 / 2 for the other stage."""
    graph = pipeline([layers(1, activation_bytes=100)] * 2, 1)
    assert iteration_ns(graph, 2) == 2000 + 2 * 600
    sizes = {(m.kind, m.buffer_bytes, m.groups) for m in graph.messages}
    assert sizes == {("send", 100, ((0, 1),)), ("send", 100, ((1, 0),))}


def test_replicas_of_a_pipeline_reduce_the_gradients_of_each_stage() -> None:
    stages = [layers(2, backward_ns=70_000)] * 2
    graph = pipeline(stages, 3, data_parallel=2, overlap=False)
    assert graph.ranks == 4
    reduced = [m for m in graph.messages if m.kind == "all-reduce"]
    assert [(m.name, m.buffer_bytes, m.groups) for m in reduced] == [
        ("gradients-0", 20 * KB, ((0, 1),)),
        ("gradients-1", 20 * KB, ((2, 3),)),
    ]
    overlapped = pipeline(stages, 3, data_parallel=2, bucket_bytes=10 * KB)
    reduced = [m for m in overlapped.messages if m.kind == "all-reduce"]
    assert [(m.name, m.after) for m in reduced] == [
        ("gradients-0.1", ("backward-0.2-1",)),
        ("gradients-0.2", ("backward-0.2",)),
        ("gradients-1.1", ("backward-1.2-1",)),
        ("gradients-1.2", ("backward-1.2",)),
    ]
    assert overlapped.unit_ns() == graph.unit_ns() == (3 + 1) * 140_600
    assert overlapped.total_size_bytes(False) == graph.total_size_bytes(False)
    assert iteration_ns(overlapped, 4) < iteration_ns(graph, 4)


def test_tensor_parallel_ranks_exchange_at_the_end_of_each_pass() -> None:
    """On one server that is free; across two each pass takes 1000 + 2 * 50 more."""
    graph = pipeline([layers(1, tensor_bytes=50)], 2, tensor_parallel=2)
    assert graph.ranks == 2
    assert iteration_ns(graph, 1) == 2 * 1000
    assert iteration_ns(graph, 2) == 2 * 1000 + 4 * 1100


def test_the_ranks_of_a_pipeline_are_in_megatrons_order() -> None:
    graph = pipeline([layers(1, tensor_bytes=1)] * 2, 1, data_parallel=2, tensor_parallel=2)
    groups = {m.name: m.groups for m in graph.messages}
    assert groups["tensor-forward-0.0"] == ((0, 1), (2, 3))
    assert groups["gradients-0.1"] == ((0, 2), (1, 3))
    assert groups["send-forward-0.0"] == ((0, 4), (1, 5), (2, 6), (3, 7))


def moe_layer(**changes: int) -> MoeLayer:
    fields: dict[str, Any] = {
        "forward_ns": 100,
        "backward_ns": 200,
        "expert_forward_ns": 300,
        "expert_backward_ns": 600,
        "token_bytes": 500,
        "parameter_bytes": 1000,
        "expert_parameter_bytes": 2000,
    }
    return MoeLayer(**(fields | changes))


def test_experts_are_between_two_all_to_alls_forward_and_back() -> None:
    """Each all-to-all takes 500 + 500; then gradients of 1000 + 2000."""
    graph = moe([moe_layer()], 4)
    assert [(m.name, m.kind) for m in graph.messages] == [
        ("dispatch-1", "all-to-all"),
        ("combine-1", "all-to-all"),
        ("combine-backward-1", "all-to-all"),
        ("dispatch-backward-1", "all-to-all"),
        ("gradients-1", "all-reduce"),
    ]
    assert iteration_ns(graph, 4) == 1200 + 4 * 1000 + 3000
    assert graph.unit_ns() == iteration_ns(graph, 1) == 1200


def test_experts_on_fewer_ranks_have_replicas() -> None:
    graph = moe([moe_layer()], 4, expert_parallel=2)
    groups = {m.name: m.groups for m in graph.messages}
    assert groups["dispatch-1"] == ((0, 1), (2, 3))
    assert groups["expert-gradients-1"] == ((0, 2), (1, 3))
    assert groups["gradients-1"] == ((0, 1, 2, 3),)


def test_the_optimizer_steps_after_all_gradients() -> None:
    """1000 ns more than what the last message ends."""
    for graph, stepped in (
        (ddp(layers(), 4), ddp(layers(), 4, optimizer_ns=1000)),
        (fsdp(layers(), 4), fsdp(layers(), 4, optimizer_ns=1000)),
        (moe([moe_layer()], 4), moe([moe_layer()], 4, optimizer_ns=1000)),
        (
            pipeline([layers()], 2, data_parallel=4),
            pipeline([layers()], 2, data_parallel=4, optimizer_ns=1000),
        ),
    ):
        assert iteration_ns(stepped, 4) == iteration_ns(graph, 4) + 1000


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ddp([], 4), "layers: must not be empty; give at least one of layers."),
        (lambda: ddp(layers(), 0), "ranks: must be at least 1, not 0."),
        (lambda: ddp(layers(), 2, bucket_bytes=0), "bucket_bytes: must be at least 1, not 0."),
        (lambda: layers(forward_ns=0), "forward_ns: must be at least 1, not 0."),
        (lambda: layers(parameter_bytes=-1), "parameter_bytes: must be at least 0, not -1."),
        (lambda: fsdp([], 4), "units: must not be empty; give at least one of units."),
        (lambda: fsdp(layers(), 2, prefetch=-1), "prefetch: must be at least 0, not -1."),
        (
            lambda: pipeline([layers()], 2, schedule="gpip"),
            "schedule: unknown schedule 'gpip'. Did you mean 'gpipe'?",
        ),
        (lambda: pipeline([layers(), []], 2), "layers: must not be empty; give at least one of "
         "layers."),
        (lambda: pipeline([layers()], 0), "microbatches: must be at least 1, not 0."),
        (
            lambda: pipeline([layers()] * 2, 2, devices=3),
            "devices: must be 2, one for each stage of 1f1b, not 3.",
        ),
        (
            lambda: pipeline([layers()] * 4, 2, schedule="interleaved"),
            "devices: must be given for interleaved stages.",
        ),
        (
            lambda: pipeline([layers()] * 4, 2, schedule="interleaved", devices=3),
            "devices: must divide the 4 stages, so that each device has as many; 3 does not.",
        ),
        (
            lambda: pipeline([layers()] * 4, 3, schedule="interleaved", devices=2),
            "microbatches: must be a multiple of the 2 devices for interleaved stages, not 3.",
        ),
        (
            lambda: moe([moe_layer()], 4, expert_parallel=3),
            "expert_parallel: must divide the 4 ranks; 3 does not.",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused(build: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        build()
    assert str(caught.value) == message
