"""How models are trained in parallel, as workloads write it."""

from __future__ import annotations

import pytest

from headway.domain.errors import InputError
from headway.graphs import Layer, MoeLayer, ddp, fsdp, moe, pipeline, split_layers
from headway.graphs.parallel import Ddp, Fsdp, Moe, Parallel, Pipeline, parse_parallel

MB = 2**20
KNOWN = "must be ddp, fsdp, moe:8 or a pipeline such as pp4x1f1b:8 or tp2-pp4x1f1b:8"
LAYERS = [Layer(1000 + at, 2000 + at, at * MB, at * 100) for at in range(1, 13)]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("ddp", Ddp()),
        ("ddp:50", Ddp(50 * MB)),
        ("ddp:bucket=0.5:first=0.25", Ddp(MB // 2, MB // 4)),
        ("fsdp", Fsdp()),
        ("fsdp:12", Fsdp(12)),
        ("fsdp:reshard=no:prefetch=0", Fsdp(None, 0, False)),
        ("fsdp:4:reshard=yes", Fsdp(4)),
        ("pp4x1f1b:8", Pipeline(4, "1f1b", 8)),
        ("pp2xgpipe:3:overlap=no", Pipeline(2, "gpipe", 3, overlap=False)),
        ("pp2xinterleaved:4:chunks=3", Pipeline(2, "interleaved", 4, 3)),
        ("pp2x1f1b:4:bucket=10", Pipeline(2, "1f1b", 4, bucket_bytes=10 * MB)),
        ("tp4-pp2x1f1b:8", Pipeline(2, "1f1b", 8, split=4)),
        ("moe:8", Moe(8)),
        ("moe:experts=16:top=2", Moe(16, 2)),
    ],
)
def test_a_text_says_how_a_model_is_trained(text: str, meaning: Parallel) -> None:
    assert parse_parallel(text) == meaning


def test_graphs_are_those_of_the_builders() -> None:
    assert parse_parallel("ddp:20:first=2").graph(LAYERS, 4, 9) == ddp(
        LAYERS, 4, bucket_bytes=20 * MB, first_bucket_bytes=2 * MB, optimizer_ns=9
    )
    assert parse_parallel("fsdp:prefetch=2:reshard=no").graph(LAYERS, 4, 0) == fsdp(
        LAYERS, 4, prefetch=2, reshard=False
    )
    assert parse_parallel("pp2xinterleaved:4:overlap=no").graph(LAYERS, 6, 0) == pipeline(
        split_layers(LAYERS, 4),
        4,
        schedule="interleaved",
        devices=2,
        data_parallel=3,
        overlap=False,
    )


def test_units_of_fsdp_are_layers_together() -> None:
    graph = parse_parallel("fsdp:3").graph(LAYERS, 2, 0)
    assert len(graph.tasks) == 6
    assert graph.unit_ns() == sum(layer.forward_ns + layer.backward_ns for layer in LAYERS)


@pytest.mark.parametrize(("text", "ns"), [("ddp", 600), ("fsdp", 100), ("pp2x1f1b:1", 300)])
def test_each_gpu_updates_the_parameters_that_it_has(text: str, ns: int) -> None:
    graph = parse_parallel(text).graph(LAYERS, 6, 600)
    assert {task.duration_ns for task in graph.tasks if task.name.startswith("optimizer")} == {ns}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dpp", f"{KNOWN}, not 'dpp'. Did you mean 'ddp'?"),
        ("pp4", f"{KNOWN}, not 'pp4'."),
        ("DDP", f"{KNOWN}, not 'DDP'. Did you mean 'ddp'?"),
        ("zero", f"{KNOWN}, not 'zero'."),
        ("", f"{KNOWN}, not ''."),
        ("tp2", f"{KNOWN}, not 'tp2'."),
        ("tp0-pp4x1f1b:8", "tp must be at least 1, not 0."),
        ("pp0x1f1b:8", "pp must be at least 1, not 0."),
        ("moe", "the experts are missing, as in moe:8."),
        ("moe:0", "experts must be at least 1, not 0."),
        ("moe:2:top=3", "top must be at most the 2 experts, not 3."),
        ("pp4x1f2b:8", "unknown schedule '1f2b'. Did you mean '1f1b'?"),
        ("pp4x1f1b", "the microbatches are missing, as in pp4x1f1b:8."),
        ("pp4x1f1b:8:chunks=2", "chunks applies to the schedule interleaved only."),
        ("pp4x1f1b:zero", "microbatches must be a whole number, not 'zero'."),
        ("pp4x1f1b:0", "microbatches must be at least 1, not 0."),
        ("ddp:", "bucket must be a number of MB, not ''."),
        ("ddp:0", "bucket must be at least"),
        ("ddp:25:1", "must be KEY=VALUE after the first colon, not '1'."),
        ("ddp:25:bucket=3", "the option bucket is repeated; give it once."),
        ("fsdp:prefech=2", "unknown option 'prefech' of fsdp. Did you mean 'prefetch'?"),
        ("fsdp:prefetch=-1", "prefetch must be at least 0, not -1."),
        ("fsdp:reshard=false", "reshard must be yes or no, not 'false'."),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_parallel(text)
    assert caught.value.field == "parallel"
    assert caught.value.problem.startswith(problem)
    assert "Known" not in caught.value.problem


@pytest.mark.parametrize(
    ("text", "gpus", "problem"),
    [
        ("pp4x1f1b:8", 6, "gpus: must be a multiple of the 4 GPUs of a pipeline, not 6."),
        ("tp2-pp4x1f1b:8", 4, "gpus: must be a multiple of the 8 GPUs of a pipeline, not 4."),
        ("pp13x1f1b:8", 13, "parallel: the model has 12 layers, too few for 13 stages."),
        ("pp4xinterleaved:8:chunks=4", 4, "parallel: the model has 12 layers, too few for 16 st"),
        ("moe:8", 8, "parallel: the model has no two equal layers in a row, of which one could"),
    ],
)
def test_some_ways_to_train_do_not_suit_a_model_or_its_gpus(
    text: str, gpus: int, problem: str
) -> None:
    assert str(parse_parallel(text).misfit(LAYERS, gpus)).startswith(problem)


def test_tensor_parallelism_divides_layers_and_sends_what_they_pass_on_twice() -> None:
    layers = [Layer(100, 201, 10 * MB, 7), Layer(1, 3, MB, 5, tensor_bytes=2)]
    graph = parse_parallel("tp2-pp2x1f1b:1").graph(layers, 8, 40)
    times = {task.name: task.duration_ns for task in graph.tasks}
    assert (times["forward-0.0"], times["forward-1.0"], times["optimizer-0"]) == (50, 1, 10)
    tensor = {one.name: one for one in graph.messages if one.channel == "tensor"}
    assert tensor["tensor-forward-0.0"].groups == ((0, 1), (2, 3))
    assert tensor["tensor-forward-0.0"].buffer_bytes == 14
    assert tensor["tensor-backward-1.0"].buffer_bytes == 2
    gradients = [one for one in graph.messages if one.channel == "gradients"]
    assert [one.buffer_bytes for one in gradients if one.groups == ((0, 2), (1, 3))] == [5 * MB]


def test_experts_replace_every_other_one_of_equal_layers() -> None:
    first, block, last = Layer(5, 6, MB, 9), Layer(10, 20, 3 * MB, 8), Layer(1, 2, 2 * MB)
    graph = parse_parallel("moe:8:top=2").graph([first, *[block] * 3, last], 12, 60)
    experts = MoeLayer(10, 20, 20, 40, 16, 3 * MB, 6 * MB)
    # The optimizer took 60 ns for 12 MB; a rank has 9 MB of dense layers and 6 MB of experts.
    assert graph == moe([first, experts, block, last], 12, expert_parallel=4, optimizer_ns=75)
    sent = [one.name for one in graph.messages if one.kind == "all-to-all"]
    assert sent == ["dispatch-2", "combine-2", "combine-backward-2", "dispatch-backward-2"]


def test_units_are_at_most_as_many_as_layers() -> None:
    assert parse_parallel("fsdp:40").graph(LAYERS, 2, 0) == parse_parallel("fsdp").graph(
        LAYERS, 2, 0
    )
