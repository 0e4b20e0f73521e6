"""`headway simulate`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from headway.cli.console import (
    AccuracyHint,
    ProgressBar,
    messages,
    print_lines,
    print_table,
    report_written,
    results,
    working,
)
from headway.cli.options import (
    AccuracyOption,
    AdmissionOption,
    BucketOption,
    ClusterOption,
    ExclusiveOption,
    GpuMemoryOption,
    GpuOption,
    NetworkOption,
    PlacementOption,
    PolicyOption,
    PriorityOption,
    ProfilesOption,
    SchedulerOption,
    files_among,
    policy_set,
)
from headway.cli.timeline import PERFETTO_SUFFIX
from headway.configuration import cluster_from, network_from
from headway.domain.accuracy import accuracy_from
from headway.domain.errors import InputError
from headway.figure_style import save_figure
from headway.files import STANDARD, check_outputs, inputs_read
from headway.reports.page import check_page_or_picture, is_page
from headway.results.display import describe_accuracy, describe_settings, summary_table
from headway.results.timeline.window import Window
from headway.text_table import TextTable

if TYPE_CHECKING:
    from polars import DataFrame

    from headway.engine.setup import Acceleration
    from headway.results.schema import Result
    from headway.results.timeline.sinks import TimelineSink


def simulate_command(
    workload: Annotated[
        str,
        typer.Argument(
            help="The jobs: a .csv or .parquet file, `paper` for jobs drawn as in the paper with "
            "--seed, a packaged workload (`headway workload list`), or - for CSV on stdin."
        ),
    ],
    cluster: ClusterOption = "16x4",
    gpu_memory_gb: GpuMemoryOption = None,
    gpu: GpuOption = None,
    exclusive: ExclusiveOption = False,
    profiles: ProfilesOption = None,
    network: NetworkOption = "10gbe",
    a_ns: Annotated[
        int | None, typer.Option(help="Latency a of an all-reduce, instead of the network's.")
    ] = None,
    b_ns_per_byte: Annotated[
        float | None, typer.Option(help="Time b of a byte, instead of the network's.")
    ] = None,
    eta_ns_per_byte: Annotated[
        float | None, typer.Option(help="Contention penalty eta, instead of the network's.")
    ] = None,
    policy: PolicyOption = "paper",
    placement: PlacementOption = None,
    scheduler: SchedulerOption = None,
    priority: PriorityOption = None,
    admission: AdmissionOption = None,
    seed: Annotated[
        int,
        typer.Option(help="Seed of the workload `paper` and of random policies."),
    ] = 0,
    bucket_mb: BucketOption = None,
    acceleration: Annotated[
        str,
        typer.Option(
            help="Which stretches without decisions to skip: none, fused, solo, full. The "
            "results are the same."
        ),
    ] = "full",
    accuracy: AccuracyOption = None,
    json: Annotated[
        str | None, typer.Option(help="Write the result as JSON to this file, or - for stdout.")
    ] = None,
    parquet: Annotated[
        str | None,
        typer.Option(
            help="Write the result as Parquet, one row per job, to this file, or - for stdout."
        ),
    ] = None,
    timeline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.parquet",
            help="Record every task in this file, or - for stdout, for `headway explain`, `report` "
            "and `timeline export`; a FILE.pftrace is written for ui.perfetto.dev instead.",
        ),
    ] = None,
    from_s: Annotated[
        float | None,
        typer.Option(
            "--from", metavar="SECONDS", help="Record only tasks that end after this time."
        ),
    ] = None,
    to_s: Annotated[
        float | None,
        typer.Option(
            "--to", metavar="SECONDS", help="Record only tasks that start before this time."
        ),
    ] = None,
    links: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write what each link carried and how long it was busy to this .csv or .parquet "
            "file, or - for CSV on stdout, and show it by tier.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Show the run in figures: a .html page, or a .svg, .pdf or .png picture.",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no summary and no progress.")
    ] = False,
) -> None:
    """Simulate a workload on a cluster and print a summary."""
    from headway.engine.run import can_be_sampled, simulate
    from headway.results.links import SentMessages, check_links_file, link_table, write_links
    from headway.results.store import write_json, write_parquet
    from headway.results.timeline.sinks import SeveralSinks
    from headway.workload.sources import workload_from

    if timeline is None and not (from_s is None and to_s is None):
        raise InputError("--from and --to select a part of the timeline; give --timeline too.")
    if accuracy is not None:
        accuracy_from(accuracy)
        for option, path in (("--timeline", timeline), ("--links", links)):
            if path is not None:
                raise InputError(
                    f"--accuracy leaves tasks out, and {option} needs all; choose one."
                )
    window = Window.of_seconds(from_s, to_s)
    outputs = [path for path in (json, parquet, timeline, links, output) if path is not None]
    if output is not None:
        check_page_or_picture(output)
    named = (cluster, network, policy, placement, scheduler, priority, admission)
    check_outputs(outputs, [workload, *files_among(*named, *(profiles or ()))])
    if timeline is not None:
        _check_timeline(timeline)
    if links is not None:
        check_links_file(links)
    policies = policy_set(policy, placement, scheduler, priority, admission, bucket_mb)
    with inputs_read() as read:
        jobs = workload_from(workload, seed=seed, profiles=profiles or ())
    check_outputs(outputs, read)
    chosen_cluster = cluster_from(cluster, gpu_memory_gb, gpu, exclusive)
    overrides = {"a_ns": a_ns, "b_ns_per_byte": b_ns_per_byte, "eta_ns_per_byte": eta_ns_per_byte}
    chosen_network = replace(
        network_from(network),
        **{name: value for name, value in overrides.items() if value is not None},  # type: ignore[arg-type]
    )
    with ExitStack() as stack:
        sink = None
        if timeline is not None:
            if timeline.endswith(PERFETTO_SUFFIX):
                from headway.reports.perfetto import perfetto_timeline as record
            else:
                from headway.results.timeline.file import (  # type: ignore[assignment]
                    record_timeline as record,
                )

            sink = stack.enter_context(record(timeline, jobs, chosen_cluster, window))
        sent = SentMessages()
        sinks: list[TimelineSink] = [] if sink is None else [sink]
        if links is not None:
            sinks.append(sent)
        is_exact_by_default = accuracy is None and not sinks and acceleration == "full"
        hint = is_exact_by_default and can_be_sampled(jobs, policies)
        bar = stack.enter_context(ProgressBar(messages(), AccuracyHint() if hint else None))
        result = simulate(
            jobs,
            chosen_cluster,
            network=chosen_network,
            policy=policies,
            seed=seed,
            acceleration=cast("Acceleration", acceleration),
            accuracy=accuracy,
            timeline=SeveralSinks(*sinks) if sinks else None,
            progress=None if quiet else bar,
        )
        if sink is not None:
            sink.finish(result)
    if json is not None:
        write_json(result, json)
    if parquet is not None:
        write_parquet(result, parquet)
    loads = None
    if links is not None:
        loads = link_table(result, sent.tasks())
        write_links(loads, links)
    if output is not None:
        with working(f"Drawing {output}"):
            _write_figures(result, output)
    if not quiet:
        _print_summary(result, loads, to_stderr=STANDARD in outputs)
        report_written(json, parquet, timeline, links, output)


def _write_figures(result: Result, path: str) -> None:
    if is_page(path):
        from headway.reports.run_page import write_run_page

        write_run_page(result, path)
    else:
        save_figure(result.plot(), path)


def _check_timeline(path: str) -> None:
    """Refuse a file name whose suffix promises another format."""
    suffix = Path(path).suffix
    if suffix not in ("", ".parquet", PERFETTO_SUFFIX):
        raise InputError(
            f"must end in .parquet, or in {PERFETTO_SUFFIX} for Perfetto, not in {suffix}.",
            source=path,
        )


def _print_summary(result: Result, loads: DataFrame | None, to_stderr: bool) -> None:
    console = results(to_stderr)
    print_lines(console, *describe_settings(result), "")
    print_table(console, summary_table(result))
    for line in describe_accuracy(result):
        console.print(f"\n{line}", markup=False)
    if len(result.use_by_type) > 1:
        console.print()
        print_table(console, _types_table(result))
    if loads is not None:
        console.print()
        print_table(console, _links_table(loads))


def _types_table(result: Result) -> TextTable:
    """Return a table of the use of each GPU type."""
    table = TextTable(["type"], ["GPUs", "utilization", "energy"])
    for use in result.use_by_type:
        energy = f"{use.energy_j / 3.6e6:,.2f} kWh"
        table.add_row(str(use.gpu), f"{use.gpus:,}", f"{use.utilization:.2%}", energy)
    return table


def _links_table(loads: DataFrame) -> TextTable:
    """Return a table of the links of each tier, with the one that was busy longest."""
    table = TextTable(["tier"], ["links", "sent", "busy on average", "at most"], ["busiest link"])
    for (tier,), own in loads.group_by("tier", maintain_order=True):
        busy = own["busy_share"].to_numpy()
        table.add_row(
            str(tier),
            f"{len(own):,}",
            _size(float(own["bytes"].to_numpy().sum())),
            f"{busy.mean():.2%}",
            f"{busy.max():.2%}",
            own["link"][int(busy.argmax())] if busy.any() else "none",
        )
    return table


def _size(count: float) -> str:
    """Return a number of bytes in MB, GB, … (powers of 1000)."""
    size, units = count / 1e6, ["MB", "GB", "TB", "PB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:,.2f} {units[0]}"
