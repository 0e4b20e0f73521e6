"""`headway model`: large language models, their plans, memory and graphs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import (
    PlansBar,
    messages,
    print_lines,
    print_table,
    report_written,
    results,
)
from headway.cli.options import files_among
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import MAX_GPUS, whole
from headway.figure_style import check_picture
from headway.files import STANDARD, check_outputs
from headway.text_table import TextTable

if TYPE_CHECKING:
    from headway.llm.config import ModelConfig
    from headway.llm.gpu import GpuModel
    from headway.llm.memory import Memory
    from headway.llm.plan import Plan
    from headway.network.contention import NetworkModel

app = typer.Typer(
    help="Large language models: sizes, memory, plans and graphs of iterations.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ConfigArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A name (`headway model list`), a config.json of Hugging Face or a folder with one, "
        "or a .toml or .json file with Headway's own keys.",
    ),
]
SequenceOption = Annotated[
    int | None,
    typer.Option(
        help="Tokens of a training sequence, in place of the config's.", show_default=False
    ),
]
_PLAN_HELP = (
    "Such as tp4-pp4-dp32-mb2-gb1536: tpN, ppN, dpN, epN, sp, mbN, gbN, 1f1b, gpipe or "
    "interleavedN, norecompute, selective or recompute, zeroN, nooverlap."
)
ModelGpuOption = Annotated[
    str,
    typer.Option("--gpu", help="Type of GPU: a100, …, or a file of `headway calibrate gpu`."),
]
ModelNetworkOption = Annotated[
    str | None,
    typer.Option(
        "--network",
        help="The network between servers, as for `simulate`.  [default: the usual one of the "
        "GPU: 8 x 400 Gbit/s for h100 and h200, 4 x 100 for v100, else 4 x 200]",
        show_default=False,
    ),
]
ServerOption = Annotated[int, typer.Option(help="GPUs of a server.")]
AttentionOption = Annotated[
    str,
    typer.Option(
        help="fused (one kernel, such as FlashAttention) or unfused (keeps matrices of scores)."
    ),
]

GIGABYTE = 2**30
_MOST_PLANS = 1000


@app.command("list")
def list_command() -> None:
    """List the models that come with Headway."""
    from headway.llm.config_file import config_from, config_names
    from headway.llm.sizes import active_parameters, parameters

    table = TextTable(
        ["name"], ["parameters", "per token", "layers", "hidden", "heads", "experts", "sequence"]
    )
    for name in config_names():
        config = config_from(name)
        table.add_row(
            name,
            _billions(parameters(config)),
            _billions(active_parameters(config)),
            str(config.layers),
            f"{config.hidden:,}",
            str(config.heads),
            str(config.experts or ""),
            f"{config.sequence:,}",
        )
    print_table(results(), table)


@app.command("show")
def show_command(
    config: ConfigArgument,
    plan: Annotated[str | None, typer.Option(help=_PLAN_HELP, show_default=False)] = None,
    sequence: SequenceOption = None,
    gpu: ModelGpuOption = "a100",
    network: ModelNetworkOption = None,
    gpus_per_server: ServerOption = 8,
    attention: AttentionOption = "fused",
) -> None:
    """Show a model's parameters and FLOPs; with a plan also its memory and its iteration's time."""
    from headway.llm.config_file import config_from

    model = config_from(config, sequence=sequence)
    fused = _is_fused(attention)
    console = results()
    if plan is None:
        print_lines(console, *_described(model), "")
        print_table(console, _parts(model))
        return
    from headway.experiments.prediction import predicted_iteration_ns
    from headway.llm.memory import check_memory
    from headway.llm.plans import RankedPlan

    chosen = _checked_plan(plan, model, gpus_per_server)
    kind, link = _gpu_and_network(gpu, network)
    needed = check_memory(
        model,
        chosen,
        kind.memory_bytes,
        kind.name,
        gpus_per_server=gpus_per_server,
        fused_attention=fused,
    )
    time_ns = predicted_iteration_ns(
        model, chosen, kind, link, gpus_per_server=gpus_per_server, fused_attention=fused
    )
    speed = RankedPlan(chosen, time_ns, needed).model_flops_per_s(model)
    print_lines(console, *_described(model), "")
    print_table(console, _parts(model))
    console.print()
    _print_plan(model, chosen, kind, needed)
    print_lines(
        console,
        "",
        f"{time_ns / 1e9:,.4g} s an iteration on {kind.name}, alone: "
        f"{chosen.global_batch * model.sequence * 1e9 / time_ns:,.0f} tokens/s,",
        f"{speed / 1e12:,.1f} TFLOPS/GPU ({speed / kind.peak(model.precision):.0%} of the peak)",
        "",
        *_assumed(chosen, kind, network, fused),
    )


@app.command("graph")
def graph_command(
    config: ConfigArgument,
    plan: Annotated[str, typer.Option(help=_PLAN_HELP)],
    output: Annotated[
        str, typer.Option("--output", "-o", help="The graph's .json file, or - for stdout.")
    ] = STANDARD,
    sequence: SequenceOption = None,
    gpu: ModelGpuOption = "a100",
    gpus_per_server: ServerOption = 8,
    attention: AttentionOption = "fused",
) -> None:
    """Write the graph of an iteration, for the column `graph` of a workload.

    Its memory_mb, for that column of the workload, is printed too.
    """
    from headway.llm.config_file import config_from
    from headway.llm.gpu_file import gpu_from
    from headway.llm.graph import iteration_graph
    from headway.llm.memory import check_memory
    from headway.workload.graphs import write_graph

    check_outputs([output], [*_files(config), *files_among(gpu)])
    model = config_from(config, sequence=sequence)
    fused = _is_fused(attention)
    chosen = _checked_plan(plan, model, gpus_per_server)
    kind = gpu_from(gpu)
    needed = check_memory(
        model,
        chosen,
        kind.memory_bytes,
        kind.name,
        gpus_per_server=gpus_per_server,
        fused_attention=fused,
    )
    graph = iteration_graph(
        model, chosen, kind, gpus_per_server=gpus_per_server, fused_attention=fused
    )
    write_graph(graph, output)
    report_written(output)
    print_lines(
        messages(),
        f"gpus {graph.ranks:,}, memory_mb {needed.total / 2**20:.0f}, measured_on {kind.name}",
    )


@app.command("plans")
def plans_command(
    config: ConfigArgument,
    gpus: Annotated[
        int | None,
        typer.Option(
            help="Number of GPUs, all of which a plan uses.  [required]", show_default=False
        ),
    ] = None,
    global_batch: Annotated[
        int | None,
        typer.Option(
            help="Sequences of a global batch.  [default: 4 million tokens]", show_default=False
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many plans to list.")] = 10,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Draw them: a .svg, .pdf or .png picture."
        ),
    ] = None,
    sequence: SequenceOption = None,
    gpu: ModelGpuOption = "a100",
    network: ModelNetworkOption = None,
    gpus_per_server: ServerOption = 8,
    attention: AttentionOption = "fused",
) -> None:
    """List the plans for a model that fit in memory, fastest first.

    All plans are estimated; those that could be among the fastest are simulated, at most three
    times as many as are listed. Of plans that differ only in recomputation and ZeRO stage, those
    that recompute least are taken.
    """
    from headway.experiments.plan_ranking import estimate_plans, rank_plans
    from headway.llm.config_file import config_from
    from headway.llm.plan import MOST_BATCH
    from headway.llm.plans import candidate_plans, usual_global_batch

    if output is not None:
        check_picture(output)
    check_outputs([output], [*_files(config), *files_among(gpu, network)])
    fused = _is_fused(attention)
    if gpus is None:
        raise InputError("must be given: the number of GPUs that plans use.", field="gpus")
    whole(gpus, "gpus", 1, MAX_GPUS)
    whole(top, "top", 1, _MOST_PLANS)
    whole(gpus_per_server, "gpus_per_server", 1, MAX_GPUS)
    model = config_from(config, sequence=sequence)
    kind, link = _gpu_and_network(gpu, network)
    batch = usual_global_batch(model) if global_batch is None else global_batch
    whole(batch, "global_batch", 1, MOST_BATCH)
    plans = list(
        candidate_plans(
            model,
            gpus,
            kind.memory_bytes,
            global_batch=batch,
            gpus_per_server=gpus_per_server,
            fused_attention=fused,
        )
    )
    if not plans:
        raise InputError(
            f"no plan for {model.name or 'this model'} on {gpus:,} {kind.name} of "
            f"{kind.memory_bytes / GIGABYTE:,.0f} GB with a global batch of {batch:,} both divides "
            "it and fits; try more GPUs, or another global batch."
        )
    estimated = estimate_plans(
        model, plans, kind, link, gpus_per_server=gpus_per_server, fused_attention=fused
    )
    with PlansBar(messages()) as bar:
        ranked = rank_plans(
            model,
            estimated,
            kind,
            link,
            count=top,
            gpus_per_server=gpus_per_server,
            fused_attention=fused,
            done=bar,
        )
    title = (
        f"{model.name or 'Model'} on {gpus:,} {kind.name}, global batch {batch:,} x "
        f"{model.sequence:,} tokens"
    )
    console = results()
    fit = f"{len(plans):,} plans fit" if len(plans) > 1 else "1 plan fits"
    print_lines(console, title, f"{fit}; the fastest {len(ranked)}:", "")
    table = TextTable(["plan"], ["iteration", "tokens/s", "TFLOPS/GPU", "GB"])
    for one in ranked:
        seconds = one.iteration_ns / 1e9
        table.add_row(
            str(one.plan).replace(f"-gb{batch}", ""),
            f"{'' if one.simulated else '~'}{seconds:,.4g} s",
            f"{batch * model.sequence / seconds:,.0f}",
            f"{one.model_flops_per_s(model) / 1e12:,.1f}",
            f"{one.memory.total / GIGABYTE:,.1f}",
        )
    print_table(console, table)
    if not all(one.simulated for one in ranked):
        print_lines(console, "", "~ estimated: too large to be simulated in a list")
    if output is not None:
        from headway.figure_style import save_figure
        from headway.reports.plans import plans_figure

        save_figure(plans_figure(estimated, ranked, kind.memory_bytes, title), output)
        report_written(output)


def _checked_plan(text: str, model: ModelConfig, gpus_per_server: int) -> Plan:
    from headway.llm.plan import Plan

    plan = Plan.parse(text)
    try:
        plan.check(model, whole(gpus_per_server, "gpus_per_server", 1, MAX_GPUS))
    except InputError as error:
        raise InputError(f"{plan}: {error}", field="plan") from None
    return plan


def _gpu_and_network(gpu: str, network: str | None) -> tuple[GpuModel, NetworkModel]:
    from headway.configuration import network_from
    from headway.llm.clusters import usual_network
    from headway.llm.gpu_file import gpu_from

    kind = gpu_from(gpu)
    return kind, network_from(usual_network(kind.name) if network is None else network)


def _is_fused(attention: str) -> bool:
    if attention not in (known := ("fused", "unfused")):
        raise InputError(
            f"unknown attention {shown(attention)}.{did_you_mean(attention, known)}",
            field="attention",
        )
    return attention == "fused"


def _assumed(plan: Plan, gpu: GpuModel, network: str | None, fused: bool) -> list[str]:
    """Return what the time of an iteration rests on."""
    from headway.llm.clusters import usual_network

    lines = [f"attention: {'fused' if fused else 'unfused'}"]
    if plan.expert > 1:
        overlap = "overlap computing" if plan.overlaps_exchanges else "wait"
        lines.append(f"all-to-alls of experts: {overlap}")
    parts = "all constants" if gpu.estimate else ", ".join(gpu.estimates)
    if parts:
        lines.append(f"estimates of {gpu.name}: {parts}")
    if plan.gpus > 1:
        lines.append(f"network: {network or Path(usual_network(gpu.name)).stem}")
    wrapped = [part for line in lines for part in textwrap.wrap(line, 70, subsequent_indent="  ")]
    return [f"Assumed: {wrapped[0]}", *(f"         {line}" for line in wrapped[1:])]


def _files(config: str) -> list[str]:
    """Return the file that a config is read from, if it is none that comes with Headway."""
    path = Path(config)
    if path.is_dir():
        path /= "config.json"
    return [str(path)] if path.suffix in (".json", ".toml") else []


def _described(model: ModelConfig) -> list[str]:
    from headway.llm.sizes import active_parameters, parameters

    size, used = parameters(model), active_parameters(model)
    active = f", of which a token uses {_billions(used)}" if used < size else ""
    heads = f"{model.heads} heads of {model.head_size}"
    if model.kv_heads < model.heads:
        heads += f" ({model.kv_heads} of keys and values)"
    lines = [
        f"{model.name or 'model'}: {_billions(size)} parameters{active}",
        f"{model.layers} layers, hidden {model.hidden:,}, {heads}, FFN {model.ffn:,}"
        f"{' gated' if model.gated_ffn else ''}, vocabulary {model.vocabulary:,}",
        f"sequence {model.sequence:,}, {model.precision}",
    ]
    if model.experts:
        shared = f", shared FFN {model.shared_ffn:,}" if model.shared_ffn else ""
        dense = f", first {model.dense_layers} layers dense" if model.dense_layers else ""
        lines.insert(
            2, f"{model.experts} experts, {model.experts_per_token} per token{shared}{dense}"
        )
    return lines


def _parts(model: ModelConfig) -> TextTable:
    """Return the parameters of a model by part, and the FLOPs of a token's forward pass."""
    from headway.llm import sizes

    layers = range(model.layers)
    attention = model.layers * sizes.attention_parameters(model)
    experts = sum(sizes.expert_parameters(model, layer) for layer in layers)
    every_token = sum(sizes.ffn_parameters(model, model.ffn_of(layer)[0]) for layer in layers)
    used = sum(sizes.ffn_parameters(model, model.ffn_of(layer)[1]) for layer in layers)
    embedding = sizes.embedding_parameters(model)
    head = model.vocabulary * model.hidden
    scores = sizes.attention_flops(model, model.sequence)
    rest = sizes.parameters(model) - attention - experts - every_token - embedding
    rest -= 0 if model.tied_embeddings else head
    routing = sizes.forward_flops_per_token(model) - scores
    routing -= 2 * (attention + every_token + used + head)
    rows = [
        ("attention matrices", attention, 2 * attention),
        ("attention scores", 0, scores),
        ("FFN", every_token, 2 * every_token),
        ("experts", experts, 2 * used),
        ("embeddings", embedding, 0),
        ("head", 0 if model.tied_embeddings else head, 2 * head),
        ("norms and routing", rest, routing),
        ("all", sizes.parameters(model), sizes.forward_flops_per_token(model)),
    ]
    table = TextTable(["part"], ["parameters", "forward GFLOPs per token"])
    for name, count, flops in rows:
        if count or flops:
            table.add_row(name, f"{count:,}" if count else "", f"{flops / 1e9:,.2f}")
    return table


def _print_plan(model: ModelConfig, plan: Plan, gpu: GpuModel, needed: Memory) -> None:
    """Print what a plan takes."""
    from headway.llm.sizes import iteration_flops

    console = results()
    flops = iteration_flops(model, plan.global_batch)
    again = iteration_flops(model, plan.global_batch, plan.recompute) - flops
    print_lines(
        console,
        f"{plan}: {plan.gpus:,} GPU{'s' * (plan.gpus > 1)}, {plan.microbatches:,} "
        f"microbatch{'es' * (plan.microbatches > 1)} each",
        f"iteration: {flops / 1e15:,.4g} PFLOPs, and {again / 1e15:,.3g} of recomputation",
        "",
    )
    table = TextTable([f"memory of stage {needed.stage}, the fullest"], ["GB"])
    for name in ("parameters", "gradients", "optimizer", "activations", "workspace"):
        table.add_row(name, f"{getattr(needed, name) / GIGABYTE:,.1f}")
    table.add_row(f"all, of {gpu.memory_bytes / GIGABYTE:,.0f}", f"{needed.total / GIGABYTE:,.1f}")
    print_table(console, table)


def _billions(count: int) -> str:
    return f"{count / 1e9:,.4g} B"
