"""Times of layers, and the graphs of iterations."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headway.domain.errors import InputError
from headway.domain.graph import Graph
from headway.experiments.prediction import alone_ns, predicted_iteration_ns
from headway.llm.config import LatentAttention, ModelConfig
from headway.llm.estimate import estimated_iteration_ns
from headway.llm.gpu_file import gpu_from
from headway.llm.graph import folded_graph, iteration_graph
from headway.llm.layers import Rank, head, transformer_layer
from headway.llm.plan import Plan
from headway.llm.sizes import parameters
from headway.llm.stages import work_out
from headway.network.contention import NetworkModel

A100 = gpu_from("a100")
RING = NetworkModel(200_000, 0.02, 0.0, ring_size=8)
PLAIN = NetworkModel(50_000, 0.02, 0.005)


def make_model(**given: Any) -> ModelConfig:
    values: dict[str, Any] = {
        "layers": 8,
        "hidden": 2048,
        "heads": 16,
        "kv_heads": 16,
        "ffn": 8192,
        "vocabulary": 32_000,
        "sequence": 2048,
    }
    return ModelConfig(**values | given)


def make_plan(**given: Any) -> Plan:
    values: dict[str, Any] = {"recompute": "none", "global_batch": 16}
    return Plan(**values | given)


EXPERTS = make_model(experts=8, experts_per_token=2, gated_ffn=True)
DEEPSEEK_LIKE = make_model(
    experts=16,
    experts_per_token=4,
    ffn=1024,
    shared_ffn=1024,
    dense_layers=2,
    dense_ffn=8192,
    gated_ffn=True,
    latent=LatentAttention(kv_rank=256, query_rank=512, rotary_size=32, value_size=64),
)


def layer_ns(model: ModelConfig, plan: Plan, fused_attention: bool = True) -> tuple[float, float]:
    layer = transformer_layer(Rank(model, plan, A100, fused_attention), bool(model.experts))
    return layer.forward.gpu_ns, layer.backward.gpu_ns


def test_a_layer_takes_longer_than_its_flops_at_the_peak() -> None:
    model, plan = make_model(hidden=8192, ffn=32_768, heads=64, kv_heads=64), make_plan()
    forward, backward = layer_ns(model, plan)
    least_ns = 24 * 2048 * 8192**2 / A100.peak_flops_per_s * 1e9
    assert least_ns < forward < 2 * least_ns
    assert 2 * least_ns < backward < 4 * least_ns


def test_recomputation_adds_the_forward_pass_or_attention_alone() -> None:
    model = make_model()
    none, selective, full = (
        layer_ns(model, make_plan(recompute=one), fused_attention=False)
        for one in ("none", "selective", "full")
    )
    assert none[0] == selective[0] == full[0]
    assert none[1] < selective[1] < full[1]
    assert full[1] == pytest.approx(none[1] + none[0])


def test_fused_attention_is_faster_and_recomputed_in_any_case() -> None:
    model = make_model()
    assert layer_ns(model, make_plan())[0] < layer_ns(model, make_plan(), fused_attention=False)[0]
    assert layer_ns(model, make_plan()) == layer_ns(model, make_plan(recompute="selective"))


def test_tensor_parallelism_splits_a_layer_and_sequence_parallelism_the_rest() -> None:
    model = make_model(hidden=8192, ffn=32_768, heads=64, kv_heads=64)
    alone, split = layer_ns(model, make_plan()), layer_ns(model, make_plan(tensor=8))
    whole = layer_ns(model, make_plan(tensor=8, sequence_parallel=True))
    for one, part, least in zip(alone, split, whole, strict=True):
        assert one / 8 < least < part < one / 4


def test_all_reduces_of_groups_on_one_server_share_its_links() -> None:
    model = make_model(hidden=8192, ffn=32_768, heads=64, kv_heads=64)

    def forward_ns(data: int) -> int:
        plan = make_plan(tensor=4, data=data)
        return work_out(Rank(model, plan, A100), 8).stages[0].forward.time_ns

    (link,) = (one for one in A100.server_links if one.gpus == 4)
    all_reduces = 2 * model.layers + 2
    more_ns = all_reduces * link.b_ns_per_byte * 2 * model.hidden * model.sequence
    assert forward_ns(2) - forward_ns(1) == pytest.approx(more_ns, rel=0.01)
    assert forward_ns(4) == forward_ns(2)


def test_a_small_model_takes_as_long_as_its_launches() -> None:
    model = make_model(hidden=256, heads=4, kv_heads=4, ffn=1024, sequence=128)
    rank = Rank(model, make_plan(), A100)
    slow = Rank(model, make_plan(), replace(A100, launch_ns=2 * A100.launch_ns))
    times = [work_out(one, 8).stages[0].backward.time_ns for one in (rank, slow)]
    assert times[1] == pytest.approx(2 * times[0], rel=1e-6)


@pytest.mark.parametrize("model", [make_model(), EXPERTS, DEEPSEEK_LIKE], ids=str)
@pytest.mark.parametrize("tensor", [1, 4])
def test_stages_hold_all_parameters(model: ModelConfig, tensor: int) -> None:
    plan = make_plan(tensor=tensor, pipeline=2)
    costs = work_out(Rank(model, plan, A100), 8)
    held = tensor * sum(one.parameters + one.expert_parameters for one in costs.stages)
    # A tied embedding is on the first and the last stage; norms are left out, and with tensor
    # parallelism each rank has the matrices that it does not split.
    embedding = model.vocabulary * model.hidden
    expected = parameters(model) + embedding
    assert held == pytest.approx(expected, rel=0.001 if tensor == 1 else 0.05)


def test_a_pipeline_within_a_server_has_the_bubble_of_its_schedule() -> None:
    model, plan = make_model(), make_plan(pipeline=4, micro_batch=1)
    free = replace(
        A100, server_links=tuple(replace(one, a_ns=0, b_ns_per_byte=0) for one in A100.server_links)
    )
    graph = iteration_graph(model, plan, free)
    stages = work_out(Rank(model, plan, free), 8).stages
    times = [one.forward.time_ns + one.backward.time_ns for one in stages]
    # The last stage, with the head, is the slowest.
    steps = [task.duration_ns for task in graph.tasks if task.name.startswith("optimizer")]
    assert graph.unit_ns() == sum(times) + 15 * times[3] + steps[3]


def kinds(graph: Graph) -> Counter[str]:
    return Counter(message.name.partition("-")[0] for message in graph.messages)


def test_messages_between_servers_are_those_of_the_plan() -> None:
    model = make_model(tied_embeddings=False)
    plan = make_plan(tensor=4, pipeline=2, data=4)
    graph = iteration_graph(model, plan, A100)
    assert graph.ranks == 32
    assert kinds(graph) == {"send": 2 * 4, "gradients": 2}
    sharded = iteration_graph(model, replace(plan, zero=1), A100)
    assert kinds(sharded) == {"send": 8, "gradients": 2, "gather": 2}
    assert {one.kind for one in sharded.messages} == {"send", "reduce-scatter", "all-gather"}
    tied = iteration_graph(make_model(), plan, A100)
    assert kinds(tied) == {"send": 8, "gradients": 2, "embedding": 1}


def test_a_device_waits_for_what_it_sends_unless_stages_are_interleaved() -> None:
    for schedule, interleave, waits in (("1f1b", 1, True), ("interleaved", 2, False)):
        given = {"schedule": schedule, "interleave": interleave}
        plan = make_plan(pipeline=4, data=8, global_batch=64, **given)
        tasks = {task.name: task for task in iteration_graph(make_model(), plan, A100).tasks}
        assert ("send-forward-0.0" in tasks["forward-0.1"].after) == waits


def test_experts_on_several_servers_exchange_tokens_after_each_pass() -> None:
    plan = make_plan(data=16, expert=8, global_batch=32)
    assert "experts" not in kinds(iteration_graph(EXPERTS, plan, A100))
    spread = replace(plan, tensor=2, data=8, expert=8, global_batch=16)
    graph = iteration_graph(EXPERTS, spread, A100)
    assert kinds(graph) == {"experts": 2 * 2, "gradients": 1}
    exchanged = [one.buffer_bytes for one in graph.messages if one.kind == "all-to-all"]
    # Dispatch and combine in each of 8 layers, two experts for each token, split by tensor ranks.
    assert exchanged == [2 * 8 * 2048 * 2048 * 2 * 2 // 2] * 4


def exchanged_bytes(model: ModelConfig, plan: Plan) -> set[int]:
    graph = iteration_graph(model, plan, A100 if model.precision != "fp8" else gpu_from("h100"))
    return {one.buffer_bytes for one in graph.messages if one.kind == "all-to-all"}


def test_tokens_go_to_experts_in_8_bits_and_once_to_a_limited_number_of_servers() -> None:
    model, plan = replace(EXPERTS, experts_per_token=4), make_plan(data=16, expert=8, tensor=2)
    (sent,) = exchanged_bytes(model, plan)
    assert exchanged_bytes(replace(model, servers_per_token=2), plan) == {sent // 2}
    assert exchanged_bytes(replace(model, servers_per_token=8), plan) == {sent}
    assert exchanged_bytes(replace(model, precision="fp8"), plan) == {sent * 3 // 4}


def test_overlapped_exchanges_take_as_long_as_computing_or_sending() -> None:
    plan = make_plan(tensor=2, data=8, expert=8, global_batch=32)
    apart = replace(plan, overlap=False)

    def time_ns(chosen: Plan, b_ns_per_byte: float) -> int:
        network = NetworkModel(0, b_ns_per_byte, 0.0)
        return predicted_iteration_ns(EXPERTS, chosen, A100, network)

    computed, sent = time_ns(plan, 1e-6), time_ns(plan, 1.0)
    assert time_ns(apart, 1.0) == pytest.approx(time_ns(apart, 1e-6) + sent, rel=0.05)
    balanced = computed / sent
    assert time_ns(plan, balanced / 3) < 1.1 * computed
    assert time_ns(apart, balanced / 3) > 1.15 * computed


def test_overlapped_exchanges_keep_some_multiprocessors_busy() -> None:
    model = replace(EXPERTS, hidden=8192, heads=64, kv_heads=64, ffn=14_336, experts=16)
    gpu = replace(gpu_from("h100"), collective_ns=0.0, collective_launch_ns=0.0)
    plan = make_plan(data=16, expert=16, global_batch=32)
    beside, alone = (
        work_out(Rank(model, replace(plan, overlap=overlap), gpu), 8).stages[0].forward.time_ns
        for overlap in (True, False)
    )
    assert 1.08 < beside / alone < 132 / 112 + 0.08


def test_overlapped_exchanges_within_a_server_are_hidden() -> None:
    plan = make_plan(data=8, expert=8)
    hidden, waited = (
        predicted_iteration_ns(EXPERTS, replace(plan, overlap=overlap), A100, PLAIN)
        for overlap in (True, False)
    )
    slow = tuple(replace(one, b_ns_per_byte=1.0) for one in A100.server_links)
    gpu = replace(A100, server_links=slow)
    assert predicted_iteration_ns(EXPERTS, plan, gpu, PLAIN) > 2 * max(hidden, waited)


def test_zero_gathers_the_parameters_of_experts_too() -> None:
    plan = make_plan(data=16, expert=2, zero=1)
    graph = iteration_graph(EXPERTS, plan, A100)
    assert kinds(graph) == {"gradients": 1, "gather": 1, "expert": 2}
    sizes = {one.name: one.buffer_bytes for one in graph.messages}
    assert sizes["expert-gather-0"] == sizes["expert-gradients-0"] > sizes["gather-0"]


def test_uneven_stages_take_as_long_as_their_layers() -> None:
    model, plan = make_model(layers=6, hidden=8192, ffn=32_768), make_plan(pipeline=4)
    rank = Rank(model, plan, A100)
    stages = work_out(rank, 8).stages
    layer = transformer_layer(rank, False)
    assert [one.parameters // layer.parameters for one in stages] == [1, 2, 2, 1]
    assert stages[1].forward.time_ns == pytest.approx(2 * layer.forward.gpu_ns, rel=1e-3)


def test_fp8_converts_its_inputs_and_keeps_the_head_in_bf16() -> None:
    h100, plan = gpu_from("h100"), make_plan()
    precise = make_model(hidden=8192, ffn=32_768, heads=64, kv_heads=64)
    model = replace(precise, precision="fp8")
    assert head(Rank(model, plan, h100)) == head(Rank(precise, plan, h100))
    layer, before = (transformer_layer(Rank(one, plan, h100), False) for one in (model, precise))
    assert layer.forward.kernels > before.forward.kernels
    assert 0.5 < layer.forward.gpu_ns / before.forward.gpu_ns < 0.8


def test_a_gpu_without_the_precision_of_a_model_is_refused() -> None:
    with pytest.raises(InputError, match="a100 has no fp8, the precision of the model"):
        iteration_graph(make_model(precision="fp8"), make_plan(), A100)


def test_zero_3_gathers_parameters_during_the_pass_before() -> None:
    plan = make_plan(data=16, zero=3, global_batch=64)
    graph = iteration_graph(make_model(), plan, A100)
    assert kinds(graph) == {"gather": 8, "gradients": 4}
    assert predicted_iteration_ns(make_model(), plan, A100, PLAIN) > graph.unit_ns()


SERVER = 4
SMALL = make_model(layers=4)


def test_zero_3_within_a_server_takes_at_least_the_time_of_gathering() -> None:
    model, plan = make_model(sequence=128), make_plan(data=8, global_batch=8)
    slow = tuple(replace(one, b_ns_per_byte=1.0) for one in A100.server_links)
    gpu = replace(A100, server_links=slow)
    forward = iteration_graph(model, replace(plan, zero=3), gpu).tasks[0].duration_ns
    held = work_out(Rank(model, plan, gpu), 8).stages[0].gradient_bytes
    assert forward > held / 2
    assert iteration_graph(model, replace(plan, zero=1), gpu).tasks[0].duration_ns < held / 2


PLANS = [
    (SMALL, make_plan(tensor=2, data=4, global_batch=8)),
    (SMALL, make_plan(tensor=2, pipeline=2, data=2, global_batch=6)),
    (SMALL, make_plan(tensor=4, pipeline=2, data=2, global_batch=4)),
    (SMALL, make_plan(tensor=2, pipeline=4, global_batch=4)),
    (SMALL, make_plan(tensor=2, pipeline=2, data=4, zero=1, global_batch=8)),
    (
        SMALL,
        make_plan(
            tensor=2, pipeline=2, data=2, schedule="interleaved", interleave=2, global_batch=4
        ),
    ),
    (replace(EXPERTS, layers=2), make_plan(tensor=2, data=4, expert=4, global_batch=4)),
    (DEEPSEEK_LIKE, make_plan(tensor=2, pipeline=2, data=4, expert=4, global_batch=8)),
]
NETWORKS = [RING, PLAIN]


@pytest.mark.parametrize(("model", "plan"), PLANS, ids=lambda one: str(one)[:40])
def test_folding_tensor_ranks_changes_nothing(model: ModelConfig, plan: Plan) -> None:
    graph = iteration_graph(model, plan, A100, gpus_per_server=SERVER)
    folded, fold = folded_graph(model, plan, A100, gpus_per_server=SERVER)
    assert folded.ranks * fold == graph.ranks == plan.gpus
    for network in NETWORKS:
        whole = alone_ns(graph, network, SERVER)
        predicted = predicted_iteration_ns(model, plan, A100, network, gpus_per_server=SERVER)
        # Costs of bytes are products of floats, which may round differently for each message.
        assert abs(predicted - whole) <= len(graph.messages)
        estimated = estimated_iteration_ns(model, plan, A100, network, gpus_per_server=SERVER)
        assert estimated == pytest.approx(predicted, rel=0.15)


def test_without_contention_folded_messages_cost_what_one_costs() -> None:
    model, plan = PLANS[1]
    network = replace(PLAIN, law="no-contention")
    graph = iteration_graph(model, plan, A100, gpus_per_server=SERVER)
    predicted = predicted_iteration_ns(model, plan, A100, network, gpus_per_server=SERVER)
    assert predicted == alone_ns(graph, network, SERVER)


def test_tensor_ranks_on_two_servers_send_what_they_exchange() -> None:
    model, plan = make_model(), make_plan(tensor=16, global_batch=2)
    graph = iteration_graph(model, plan, A100)
    assert kinds(graph) == {"tensor": 4}
    assert folded_graph(model, plan, A100)[1] == 1
    slow, fast = (
        predicted_iteration_ns(model, plan, A100, replace(RING, b_ns_per_byte=b))
        for b in (0.04, 0.02)
    )
    sent = sum(one.buffer_bytes for one in graph.messages)
    weight = RING.byte_weight(2)
    assert slow - fast == pytest.approx(0.02 * weight * sent, rel=1e-6)


def test_overlapped_gradients_of_interleaved_stages_are_sent_earlier() -> None:
    model = make_model()
    plan = make_plan(
        tensor=2, pipeline=2, data=4, schedule="interleaved", interleave=2, global_batch=8
    )
    times = [
        predicted_iteration_ns(model, plan, A100, PLAIN, gpus_per_server=4, overlap=overlap)
        for overlap in (True, False)
    ]
    assert times[0] < times[1]


@pytest.mark.parametrize("plan", ["gb16777216", "dp1048576-gb16777216"])
def test_a_graph_that_is_too_large_is_refused_before_it_is_built(plan: str) -> None:
    with pytest.raises(InputError, match=r"the graph would have [0-9,]+ tasks; at most 4,194,304"):
        iteration_graph(make_model(), Plan.parse(plan), A100)
    with pytest.raises(InputError, match=r"would have 524,296 passes \(2 x 4 stages"):
        iteration_graph(make_model(), Plan.parse("pp4-mb1-gb65537"), A100)
