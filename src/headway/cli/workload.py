"""`headway workload`: generate, import, describe, graph, profiles."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headway.cli.console import messages, print_lines, print_table, results
from headway.cli.options import ProfilesOption, files_among
from headway.cli.traces import import_command
from headway.configuration import cluster_from, profiles_from
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import number_from, whole_from
from headway.files import STANDARD, check_outputs
from headway.results.display import describe_estimates, describe_sharing
from headway.text_table import TextTable

if TYPE_CHECKING:
    from headway.domain.job import Job
    from headway.domain.models import ProfileSet
    from headway.domain.workload import Workload

app = typer.Typer(
    help="Generate, import and inspect workloads.", no_args_is_help=True, rich_markup_mode=None
)

app.command("import")(import_command)

_BAR = 30
_LLM = "llm"
Number = TypeVar("Number", int, float)
_WORKLOAD = (
    "A .csv or .parquet file, `paper`, a packaged workload such as muri-1, or - for CSV on stdin."
)


class GraphFormat(StrEnum):
    """Output format of a graph."""

    TEXT = "text"
    DOT = "dot"


@app.command()
def generate(
    preset: Annotated[
        str,
        typer.Option(
            help="The recipe to start from: paper, or llm (pretraining, fine-tuning and small jobs "
            "with graphs, which are written beside the table; takes --jobs and --span only)."
        ),
    ] = "paper",
    seed: Annotated[int, typer.Option(help="The same seed gives the same jobs.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Number of jobs.")] = None,
    span: Annotated[
        int | None, typer.Option(help="Period in which jobs arrive, in seconds.")
    ] = None,
    mix: Annotated[
        str | None, typer.Option(help="GPUS:SHARE,… such as 1:80,8:30 (shares of the jobs).")
    ] = None,
    iterations: Annotated[
        str | None, typer.Option(help="LOW:HIGH, inclusive, such as 1000:6000.")
    ] = None,
    models: Annotated[str | None, typer.Option(help="Models to draw from: NAME,…")] = None,
    parallel: Annotated[
        str | None,
        typer.Option(
            help="How models are trained: ddp, fsdp:12, moe:8, pp4x1f1b:8 or tp2-pp4x1f1b:8; or "
            "several with shares, such as ddp@3,fsdp:12. Where it does not suit a job: ddp."
        ),
    ] = None,
    profiles: ProfilesOption = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .csv or .parquet file, or - for stdout.")
    ] = STANDARD,
) -> None:
    """Generate a workload from a recipe and a seed."""
    from headway.workload.generate import PRESETS, generate_workload
    from headway.workload.llm import generate_llm_workload

    check_outputs([output], files_among(*(profiles or ())))
    if preset == _LLM:
        _refuse_for_llm(
            mix=mix, iterations=iterations, models=models, profiles=profiles, parallel=parallel
        )
        _write(generate_llm_workload(seed, jobs=jobs, span_s=span), output)
        return
    if preset not in PRESETS:
        guess = did_you_mean(preset, [*PRESETS, _LLM])
        raise InputError(f"unknown preset {shown(preset)}.{guess}", field="preset")
    recipe = PRESETS[preset]
    chosen = recipe.models if models is None else [name.strip() for name in models.split(",")]
    recipe = replace(recipe, profiles=profiles_from(profiles or ()), models=chosen)
    workload = generate_workload(
        recipe,
        seed,
        jobs=jobs,
        span_s=span,
        mix=None if mix is None else _mix(mix),
        iterations=None if iterations is None else _pair(iterations, "iterations", whole_from),
        parallel=parallel,
    )
    _write(workload, output)


def _refuse_for_llm(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"does not apply to the preset {_LLM}.", field=name)


def _write(workload: Workload, output: str) -> None:
    from headway.workload.files import write_workload

    write_workload(workload, output)
    if output != STANDARD:
        print_lines(messages(), f"{len(workload):,} jobs written to {output}")


def _mix(text: str) -> dict[int, float]:
    pairs = [_pair(part, "mix", number_from) for part in text.split(",")]
    if len(dict(pairs)) < len(pairs):
        raise InputError("has a duplicate number of GPUs.", field="mix")
    return dict(pairs)


def _pair(text: str, field: str, second: Callable[[str], Number]) -> tuple[int, Number]:
    left, colon, right = text.partition(":")
    try:
        if not colon:
            raise ValueError(text)
        return whole_from(left.strip()), second(right.strip())
    except ValueError:
        raise InputError(
            f"must be two numbers separated by a colon, not {shown(text)}.", field=field
        ) from None


@app.command()
def describe(
    file: Annotated[str, typer.Argument(help=_WORKLOAD)],
    cluster: Annotated[
        str, typer.Option(help="Cluster to compute the load of: SERVERSxGPUS or a .toml file.")
    ] = "16x4",
    profiles: ProfilesOption = None,
) -> None:
    """Summarize a workload: job counts, GPU hours, load and compute times."""
    from headway.domain.compute_times import estimated_pairs
    from headway.workload.sources import workload_from

    workload = workload_from(file, profiles=profiles or ())
    chosen = cluster_from(cluster)
    estimated = estimated_pairs(workload, chosen)
    gpus = chosen.gpus
    console = results()
    arrivals = [job.arrival_ns for job in workload]
    span_s = (max(arrivals) - min(arrivals)) / 1e9
    hours = sum(map(_gpu_hours, workload))
    print_lines(
        console,
        f"{len(workload):,} jobs arrive from {min(arrivals) / 1e9:,.0f} s to "
        f"{max(arrivals) / 1e9:,.0f} s and compute for {hours:,.1f} GPU hours.",
    )
    if span_s > 0:
        load = hours * 3600 / (span_s * gpus)
        console.print(
            f"Load on {gpus:,} GPUs while they arrive: {load:.2f} (1 means every GPU is busy)."
        )
    measured = {job.measured_on for job in workload}
    if chosen.groups and {gpu.name for gpu in chosen.gpu_types} != measured:
        names = ", ".join(sorted(measured))
        print_lines(console, f"GPU hours and load are for {names}, not for the cluster's types.")
    sharing = describe_sharing(workload.exclusive_jobs(chosen), len(workload))
    print_lines(console, f"On this cluster {sharing}.")
    print_lines(console, *describe_estimates(estimated), "")
    print_table(console, _counts(workload, "GPUs", lambda job: job.gpus))
    console.print()
    print_table(console, _counts(workload, "model", _model))
    console.print()
    print_table(console, _histogram(workload))


def _model(job: Job) -> str:
    if job.parallel:
        return f"{job.model} {job.parallel}"
    return job.model or ("(none)" if job.graph is None else "(graph)")


def _gpu_hours(job: Job) -> float:
    return job.iterations * job.gpu_compute_ns / 1e9 / 3600


def _compute_s(job: Job) -> float:
    return job.iterations * job.compute_ns / 1e9


def _counts(workload: Workload, name: str, key: Callable[[Job], Hashable]) -> TextTable:
    groups: dict[Hashable, list[Job]] = {}
    for job in workload:
        groups.setdefault(key(job), []).append(job)
    table = TextTable([name], ["jobs", "share", "GPU hours", "share"])
    total = sum(map(_gpu_hours, workload))
    for value in sorted(groups, key=lambda value: (isinstance(value, str), value)):
        hours = sum(map(_gpu_hours, groups[value]))
        table.add_row(
            str(value),
            f"{len(groups[value]):,}",
            f"{len(groups[value]) / len(workload):.1%}",
            f"{hours:,.1f}",
            f"{hours / total:.1%}",
        )
    return table


def _histogram(workload: Workload) -> TextTable:
    """Count jobs by compute time, in bins that about double."""
    bins = Counter(bisect_right(_EDGES_S, _compute_s(job)) for job in workload)
    largest = max(bins.values())
    table = TextTable(["computes for"], ["jobs"], [""])
    for index in range(min(bins), max(bins) + 1):
        count = bins[index]
        bar = "█" * max(round(_BAR * count / largest), count > 0)
        table.add_row(_bin_text(index), f"{count:,}", bar)
    return table


_EDGES_S = (
    *(2.0**power for power in range(-10, 4)),
    *(size_s * count for size_s in (1, 60) for count in (15, 30, 60, 120, 240, 480)),
    57_600,
    *(86_400 * 2**power for power in range(12)),
)


def _bin_text(index: int) -> str:
    if index == 0:
        return f"less than {_edge_text(_EDGES_S[0])}"
    if index == len(_EDGES_S):
        return f"{_edge_text(_EDGES_S[-1])} or more"
    return f"{_edge_text(_EDGES_S[index - 1])} to {_edge_text(_EDGES_S[index])}"


def _edge_text(time_s: float) -> str:
    unit, size_s = next(
        (unit for unit in (("d", 86_400), ("h", 3_600), ("min", 60)) if time_s >= unit[1]),
        ("s", 1),
    )
    return f"{time_s / size_s:,.3g} {unit}"


@app.command("list")
def list_command() -> None:
    """List the workloads that come with Headway, and the recipes to draw workloads from."""
    from headway.workload.files import read_workload
    from headway.workload.generate import PRESETS
    from headway.workload.llm import JOBS
    from headway.workload.packaged import packaged_names

    table = TextTable(["name"], ["jobs", "GPUs each"], [""])
    for name, recipe in PRESETS.items():
        sizes = f"{min(recipe.mix)} to {max(recipe.mix)}"
        table.add_row(name, f"{recipe.jobs:,}", sizes, "drawn from a seed, as in the paper")
    table.add_row(
        _LLM, f"{JOBS:,}", "1 to 256", "drawn from a seed; for workload generate --preset"
    )
    for name in packaged_names():
        workload = read_workload(name)
        counts = {job.gpus for job in workload}
        sizes = f"{min(counts)} to {max(counts)}"
        table.add_row(name, f"{len(workload):,}", sizes, "comes with Headway")
    console = results()
    print_table(console, table)
    console.print("\nGive a name where a command takes a workload: headway simulate paper")


@app.command()
def graph(
    file: Annotated[str, typer.Argument(help=_WORKLOAD)],
    job_id: Annotated[str, typer.Argument(help="Id of the job.")],
    iterations: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of iterations to show.")
    ] = 2,
    form: Annotated[
        GraphFormat, typer.Option("--format", help="text, or dot for Graphviz.")
    ] = GraphFormat.TEXT,
    profiles: ProfilesOption = None,
) -> None:
    """Show a job's tasks and their dependencies; of a job with a graph, one iteration."""
    from headway.domain.unrolled import UnrolledJob
    from headway.reports.graph_text import entries_table, to_dot
    from headway.workload.sources import workload_from

    job = workload_from(file, profiles=profiles or ()).find(job_id)
    if job.graph is not None:
        if form is GraphFormat.DOT:
            typer.echo(to_dot(job.graph), nl=False)
        else:
            print_table(results(), entries_table(job.graph))
        return
    picture = UnrolledJob(job, min(iterations, job.iterations))
    typer.echo(picture.to_dot() if form is GraphFormat.DOT else picture.to_text(), nl=False)


@app.command("profiles")
def profiles_command(
    sets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME|FILE.toml]...",
            help="Sets to list; by default all that ship with Headway.",
        ),
    ] = None,
) -> None:
    """List sets of model profiles: what an iteration of each model costs on one GPU."""
    from headway.configuration.profiles import shipped_names

    console = results()
    for index, one in enumerate(profiles_from(sets or shipped_names())):
        types = {profile.gpu for profile in one.profiles}
        on = f" on {types.pop()}" if len(types) == 1 else ""
        print_lines(console, *([""] if index else []), f"{one.name}{on}: times in ms, sizes in MB")
        print_table(console, _profiles_table(one, with_gpu=not on))


def _profiles_table(profiles: ProfileSet, with_gpu: bool) -> TextTable:
    table = TextTable(
        ["model", *(["GPU"] if with_gpu else [])],
        ["batch", "forward", "backward", "gradient", "memory", "layers"],
    )
    for profile in profiles.profiles:
        table.add_row(
            profile.name,
            *([profile.gpu] if with_gpu else []),
            f"{profile.batch_size:,}",
            f"{profile.forward_ns / 1e6:,.2f}",
            f"{profile.backward_ns / 1e6:,.2f}",
            f"{profile.gradient_bytes / 2**20:,.1f}",
            f"{profile.memory_bytes / 2**20:,.0f}",
            f"{len(profile.layers)}" if profile.layers else "-",
        )
    return table
