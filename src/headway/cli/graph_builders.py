"""`headway graph ddp`, `fsdp`, `pipeline` and `moe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import report_written
from headway.cli.options import ProfilesOption, files_among
from headway.configuration import profiles_from
from headway.domain.errors import InputError
from headway.domain.limits import LONGEST_NS, MAX_BYTES, MAX_GPUS, scaled, whole
from headway.domain.models import MAX_BATCH, MEBIBYTE
from headway.files import STANDARD, check_outputs

if TYPE_CHECKING:
    from headway.domain.graph import Graph
    from headway.domain.layers import Layer
    from headway.domain.models import ModelProfile

_TABLE_HELP = (
    "CSV file with a row for each layer in the order of the forward pass; - is standard input."
)
LayersArgument = Annotated[
    str,
    typer.Argument(metavar="LAYERS", help=_TABLE_HELP + " Or the name of a model in --profiles."),
]
BatchOption = Annotated[
    int | None,
    typer.Option(
        help="Of a model: the mini-batch of a GPU, in a pipeline a microbatch.  [default: that of "
        "its profile]",
        show_default=False,
    ),
]
OutputOption = Annotated[
    str, typer.Option("--output", "-o", help="The graph's .json file, or - for stdout.")
]
RanksOption = Annotated[int, typer.Option(help="Number of GPUs.")]
BucketOption = Annotated[
    float, typer.Option(help="A bucket of gradients is sent once it has this many MB.")
]
OptimizerOption = Annotated[
    float | None,
    typer.Option(
        help="Time of a GPU's optimizer step, after all gradients; 0 for none.  [default: of a "
        "model its profile's, else 0]",
        show_default=False,
    ),
]


def ddp_command(
    layers: LayersArgument,
    ranks: RanksOption,
    output: OutputOption = STANDARD,
    bucket_mb: BucketOption = 25,
    first_bucket_mb: Annotated[float, typer.Option(help="The same for the first bucket.")] = 1,
    optimizer_ms: OptimizerOption = None,
    profiles: ProfilesOption = None,
    batch_size: BatchOption = None,
) -> None:
    """Write the graph of data parallelism with overlapped gradients (PyTorch's DDP).

    Columns of LAYERS: forward_ms, backward_ms and parameter_mb.
    """
    from headway.graphs.ddp import ddp

    bucket_bytes = _size(bucket_mb, "bucket_mb")
    first_bucket_bytes = _size(first_bucket_mb, "first_bucket_mb")
    model, optimizer_ns = _model(layers, output, optimizer_ms, 1, profiles, batch_size)
    graph = ddp(
        model,
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
    units: Annotated[
        int | None,
        typer.Option(
            help="Parts of similar time that are each gathered at once.  [default: each layer]",
            show_default=False,
        ),
    ] = None,
    prefetch: Annotated[
        int, typer.Option(help="How many units ahead parameters are gathered.")
    ] = 1,
    reshard: Annotated[
        bool,
        typer.Option(
            help="Free parameters after the forward pass, and gather them again for the backward "
            "pass."
        ),
    ] = True,
    optimizer_ms: OptimizerOption = None,
    profiles: ProfilesOption = None,
    batch_size: BatchOption = None,
) -> None:
    """Write the graph of sharded data parallelism (FSDP, ZeRO).

    Columns of LAYERS: forward_ms, backward_ms and parameter_mb.
    """
    from headway.graphs.fsdp import MOST_UNITS, fsdp
    from headway.graphs.parallel import in_units

    model, optimizer_ns = _model(layers, output, optimizer_ms, ranks, profiles, batch_size)
    if units is not None:
        model = in_units(model, whole(units, "units", 1, MOST_UNITS))
    graph = fsdp(model, ranks, prefetch=prefetch, reshard=reshard, optimizer_ns=optimizer_ns)
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
        int,
        typer.Option(
            help="Ranks that each layer is split over. A CSV file has the times of one rank, a "
            "model's are divided."
        ),
    ] = 1,
    overlap: Annotated[
        bool,
        typer.Option(help="Send gradients during the last backward pass, or in one message after."),
    ] = True,
    bucket_mb: BucketOption = 25,
    optimizer_ms: OptimizerOption = None,
    profiles: ProfilesOption = None,
    batch_size: BatchOption = None,
) -> None:
    """Write the graph of a pipeline, or of several in data parallelism.

    Columns of LAYERS: forward_ms and backward_ms of one microbatch, parameter_mb, activation_mb
    (what a layer passes on) and tensor_mb (what tensor parallelism all-reduces in each pass).
    """
    from headway.graphs.layers import split_layers, split_over_ranks
    from headway.graphs.parallel import MOST_CHUNKS
    from headway.graphs.pipeline import pipeline

    bucket_bytes = _size(bucket_mb, "bucket_mb")
    whole(tensor_parallel, "tensor_parallel", 1, MAX_GPUS)
    model, optimizer_ns = _model(
        layers, output, optimizer_ms, stages * tensor_parallel, profiles, batch_size
    )
    if tensor_parallel > 1 and _profile(layers, profiles, batch_size) is not None:
        model = split_over_ranks(model, tensor_parallel)
    if schedule == "interleaved":
        parts = stages * whole(2 if chunks is None else chunks, "chunks", 1, MOST_CHUNKS)
    elif chunks is None:
        parts = stages
    else:
        raise InputError("applies to the schedule interleaved only.", field="chunks")
    graph = pipeline(
        split_layers(model, parts),
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
            help="Ranks that the experts of a layer are spread over.  [default: all; of a model as "
            "many as divide both ranks and experts]",
            show_default=False,
        ),
    ] = None,
    experts: Annotated[
        int | None,
        typer.Option(
            help="Of a model: replace every other one of equal layers by this many experts."
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            help="Of a model: experts that each token is sent to.  [default: 1]",
            show_default=False,
        ),
    ] = None,
    optimizer_ms: OptimizerOption = None,
    profiles: ProfilesOption = None,
    batch_size: BatchOption = None,
) -> None:
    """Write the graph of a mixture of experts.

    Columns of LAYERS: forward_ms, backward_ms and parameter_mb of the dense part of a layer,
    expert_forward_ms, expert_backward_ms and expert_parameter_mb of a rank's experts, and token_mb
    (what each rank sends to the experts of all ranks).
    """
    from headway.graphs.layers import MoeLayer
    from headway.graphs.moe import moe
    from headway.graphs.parallel import MOST_EXPERTS, Moe
    from headway.workload.layers import read_layers

    given_ns = None if optimizer_ms is None else _optimizer_ns(optimizer_ms)
    profile = _profile(layers, profiles, batch_size)
    check_outputs([output], files_among(*(profiles or ())) if profile else [layers])
    if profile is None:
        _refuse_for_table(profiles=profiles, batch_size=batch_size, experts=experts, top=top)
        model = read_layers(layers, MoeLayer)
        graph = moe(model, ranks, expert_parallel=expert_parallel, optimizer_ns=given_ns or 0)
    else:
        if experts is None:
            raise InputError("must be given with a model's name.", field="experts")
        whole(experts, "experts", 1, MOST_EXPERTS)
        plan = Moe(experts, 1 if top is None else whole(top, "top", 1, experts), expert_parallel)
        if (misfit := plan.misfit(profile.layers, ranks)) is not None:
            raise InputError(misfit.problem, source=layers)
        graph = plan.graph(profile.layers, ranks, profile.optimizer_ns, given_ns)
    _write(graph, output)


def _profile(
    layers: str, profiles: list[str] | None, batch_size: int | None
) -> ModelProfile | None:
    """Return the profile of a model's name, or None for a CSV file."""
    from headway.workload.layers import model_profile

    if batch_size is not None:
        whole(batch_size, "batch_size", 1, MAX_BATCH)
    return model_profile(layers, batch_size, profiles_from(profiles or ()))


def _refuse_for_table(**options: object) -> None:
    for option, value in options.items():
        if value is not None:
            raise InputError("applies to a model's name only, not to a CSV file.", field=option)


def _model(
    layers: str,
    output: str,
    optimizer_ms: float | None,
    updated_by: int,
    profiles: list[str] | None,
    batch_size: int | None,
) -> tuple[Sequence[Layer], int]:
    """Return a model's layers and the time of a GPU's optimizer step.

    Args:
        layers: A CSV file or the name of a model.
        output: The file to write.
        optimizer_ms: The time as given, if it was.
        updated_by: How many GPUs share the parameters.
        profiles: Where a model's layers are looked up.
        batch_size: The batch size of a model, if it was given.
    """
    from headway.domain.layers import Layer
    from headway.graphs.parallel import optimizer_share
    from headway.workload.layers import read_layers

    given_ns = None if optimizer_ms is None else _optimizer_ns(optimizer_ms)
    profile = _profile(layers, profiles, batch_size)
    check_outputs([output], files_among(*(profiles or ())) if profile else [layers])
    if profile is not None:
        share_ns = optimizer_share(profile.optimizer_ns, updated_by) if updated_by > 0 else 0
        return profile.layers, share_ns if given_ns is None else given_ns
    _refuse_for_table(profiles=profiles, batch_size=batch_size)
    return read_layers(layers, Layer), given_ns or 0


def _size(megabytes: float, option: str) -> int:
    return scaled(megabytes, MEBIBYTE, option, 1, MAX_BYTES, "MB")


def _optimizer_ns(milliseconds: float) -> int:
    return scaled(milliseconds, 1e6, "optimizer_ms", 0, LONGEST_NS, "milliseconds")


def _write(graph: Graph, output: str) -> None:
    from headway.workload.graphs import write_graph

    write_graph(graph, output)
    report_written(output)
