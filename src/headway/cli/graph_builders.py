"""`headway graph ddp`, `fsdp`, `pipeline` and `moe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import report_written
from headway.domain.errors import InputError
from headway.domain.limits import LONGEST_NS, MAX_BYTES, scaled, whole
from headway.domain.models import MEBIBYTE
from headway.files import STANDARD, check_outputs

if TYPE_CHECKING:
    from headway.domain.graph import Graph

MOST_CHUNKS = 2**10

_LAYERS_HELP = (
    "CSV file with a row for each layer in the order of the forward pass; - is standard input."
)
LayersArgument = Annotated[str, typer.Argument(metavar="LAYERS", help=_LAYERS_HELP)]
OutputOption = Annotated[
    str, typer.Option("--output", "-o", help="The graph's .json file, or - for stdout.")
]
RanksOption = Annotated[int, typer.Option(help="Number of GPUs.")]
BucketOption = Annotated[
    float, typer.Option(help="A bucket of gradients is sent once it has this many MB.")
]
OptimizerOption = Annotated[
    float, typer.Option(help="Time of the optimizer's step, after all gradients; 0 for none.")
]


def ddp_command(
    layers: LayersArgument,
    ranks: RanksOption,
    output: OutputOption = STANDARD,
    bucket_mb: BucketOption = 25,
    first_bucket_mb: Annotated[float, typer.Option(help="The same for the first bucket.")] = 1,
    optimizer_ms: OptimizerOption = 0,
) -> None:
    """Write the graph of data parallelism with overlapped gradients (PyTorch's DDP).

    Columns of LAYERS: forward_ms, backward_ms and parameter_mb.
    """
    from headway.graphs.ddp import ddp
    from headway.graphs.layers import Layer
    from headway.workload.layers import read_layers

    check_outputs([output], [layers])
    bucket_bytes = _size(bucket_mb, "bucket_mb")
    first_bucket_bytes = _size(first_bucket_mb, "first_bucket_mb")
    optimizer_ns = _optimizer_ns(optimizer_ms)
    graph = ddp(
        read_layers(layers, Layer),
        ranks,
        bucket_bytes=bucket_bytes,
        first_bucket_bytes=first_bucket_bytes,
        optimizer_ns=optimizer_ns,
    )
    _write(graph, output)


def fsdp_command(
    layers: LayersArgument,
    ranks: RanksOption,
    output: OutputOption = STANDARD,
    prefetch: Annotated[
        int, typer.Option(help="How many layers ahead parameters are gathered.")
    ] = 1,
    reshard: Annotated[
        bool,
        typer.Option(
            help="Free parameters after the forward pass, and gather them again for the backward "
            "pass."
        ),
    ] = True,
    optimizer_ms: OptimizerOption = 0,
) -> None:
    """Write the graph of sharded data parallelism (FSDP, ZeRO).

    Columns of LAYERS: forward_ms, backward_ms and parameter_mb. Each layer is a unit, which is
    gathered at once.
    """
    from headway.graphs.fsdp import fsdp
    from headway.graphs.layers import Layer
    from headway.workload.layers import read_layers

    check_outputs([output], [layers])
    optimizer_ns = _optimizer_ns(optimizer_ms)
    units = read_layers(layers, Layer)
    graph = fsdp(units, ranks, prefetch=prefetch, reshard=reshard, optimizer_ns=optimizer_ns)
    _write(graph, output)


def pipeline_command(
    layers: LayersArgument,
    stages: Annotated[
        int, typer.Option(help="Devices that the model is spread over, in parts of similar time.")
    ],
    microbatches: Annotated[int, typer.Option(help="Microbatches of an iteration.")],
    output: OutputOption = STANDARD,
    schedule: Annotated[str, typer.Option(help="gpipe, 1f1b or interleaved.")] = "1f1b",
    chunks: Annotated[
        int | None,
        typer.Option(
            help="Parts of the model on each device, for interleaved.  [default: 2]",
            show_default=False,
        ),
    ] = None,
    data_parallel: Annotated[
        int, typer.Option(help="Pipelines that share the batch and all-reduce gradients.")
    ] = 1,
    tensor_parallel: Annotated[
        int, typer.Option(help="Ranks that each layer is split over; LAYERS has the times of one.")
    ] = 1,
    overlap: Annotated[
        bool,
        typer.Option(help="Send gradients during the last backward pass, or in one message after."),
    ] = True,
    bucket_mb: BucketOption = 25,
    optimizer_ms: OptimizerOption = 0,
) -> None:
    """Write the graph of a pipeline, or of several in data parallelism.

    Columns of LAYERS: forward_ms and backward_ms of one microbatch, parameter_mb, activation_mb
    (what a layer passes on) and tensor_mb (what tensor parallelism all-reduces in each pass).
    """
    from headway.graphs.layers import Layer, split_layers
    from headway.graphs.pipeline import pipeline
    from headway.workload.layers import read_layers

    check_outputs([output], [layers])
    bucket_bytes, optimizer_ns = _size(bucket_mb, "bucket_mb"), _optimizer_ns(optimizer_ms)
    if schedule == "interleaved":
        parts = stages * whole(2 if chunks is None else chunks, "chunks", 1, MOST_CHUNKS)
    elif chunks is None:
        parts = stages
    else:
        raise InputError("applies to the schedule interleaved only.", field="chunks")
    graph = pipeline(
        split_layers(read_layers(layers, Layer), parts),
        microbatches,
        schedule=schedule,
        devices=stages,
        data_parallel=data_parallel,
        tensor_parallel=tensor_parallel,
        overlap=overlap,
        bucket_bytes=bucket_bytes,
        optimizer_ns=optimizer_ns,
    )
    _write(graph, output)


def moe_command(
    layers: LayersArgument,
    ranks: RanksOption,
    output: OutputOption = STANDARD,
    expert_parallel: Annotated[
        int | None,
        typer.Option(
            help="Ranks that the experts of a layer are spread over.  [default: all]",
            show_default=False,
        ),
    ] = None,
    optimizer_ms: OptimizerOption = 0,
) -> None:
    """Write the graph of a mixture of experts.

    Columns of LAYERS: forward_ms, backward_ms and parameter_mb of the dense part of a layer,
    expert_forward_ms, expert_backward_ms and expert_parameter_mb of a rank's experts, and token_mb
    (what each rank sends to the experts of all ranks).
    """
    from headway.graphs.layers import MoeLayer
    from headway.graphs.moe import moe
    from headway.workload.layers import read_layers

    check_outputs([output], [layers])
    optimizer_ns = _optimizer_ns(optimizer_ms)
    model = read_layers(layers, MoeLayer)
    graph = moe(model, ranks, expert_parallel=expert_parallel, optimizer_ns=optimizer_ns)
    _write(graph, output)


def _size(megabytes: float, option: str) -> int:
    return scaled(megabytes, MEBIBYTE, option, 1, MAX_BYTES, "MB")


def _optimizer_ns(milliseconds: float) -> int:
    return scaled(milliseconds, 1e6, "optimizer_ms", 0, LONGEST_NS, "milliseconds")


def _write(graph: Graph, output: str) -> None:
    from headway.workload.graphs import write_graph

    write_graph(graph, output)
    report_written(output)
