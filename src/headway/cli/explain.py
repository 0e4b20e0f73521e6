"""`headway explain`."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import (
    ProgressBar,
    messages,
    print_lines,
    print_table,
    report_written,
    results,
    working,
)
from headway.cli.options import (
    ClusterOption,
    ExclusiveOption,
    NetworkOption,
    PlacementOption,
    PolicyOption,
    ProfilesOption,
    SchedulerOption,
    files_among,
    policy_set,
)
from headway.configuration import cluster_from
from headway.domain.errors import InputError
from headway.files import STANDARD, check_outputs, inputs_read, open_output
from headway.text_table import TextTable

if TYPE_CHECKING:
    from rich.console import Console

    from headway.domain.cluster import Cluster
    from headway.policies.policy_set import PolicySet
    from headway.reports.explain import Explanation
    from headway.results.timeline.recorded import RecordedRun

_MAX_SHOWN = 3
_MAX_ENTRIES = 12
_MAX_TASKS = 100_000_000
"""The most tasks to keep in memory, at about 100 bytes each."""


def explain_command(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="The timeline of a whole run (.parquet, from `headway simulate --timeline`), or a "
            "workload to simulate with the options below: a .csv file or a name such as paper.",
        ),
    ],
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="The id of the job.", show_default=False),
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option(
            min=1, help="Instead of one job, explain this many of those that took longest."
        ),
    ] = None,
    cluster: ClusterOption = "16x4",
    exclusive: ExclusiveOption = False,
    network: NetworkOption = "10gbe",
    policy: PolicyOption = "paper",
    placement: PlacementOption = None,
    scheduler: SchedulerOption = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the workload `paper` and of random policies.")
    ] = 0,
    profiles: ProfilesOption = None,
    json: Annotated[
        str | None, typer.Option(help="Write the explanation to this file, or - for stdout.")
    ] = None,
) -> None:
    """Show where a job's time went, and which jobs it waited for."""
    if (job_id is None) == (worst is None):
        raise InputError("give the id of a job, or --worst N.")
    named = (cluster, network, policy, placement, scheduler)
    check_outputs([json], [run, *files_among(*named, *(profiles or ()))])
    from headway.reports.explain import explain

    if run == STANDARD or Path(run).suffix == ".parquet":
        _refuse_settings(context)
        from headway.results.timeline.file import read_timeline

        with working(f"Reading {run}"):
            recorded = read_timeline(run)
    elif Path(run).suffix == ".json" and Path(run).exists():
        raise InputError(
            "is a result, without its tasks; explain the workload, or a timeline from `headway "
            "simulate --timeline FILE.parquet`.",
            source=run,
        )
    else:
        policies = policy_set(policy, placement, scheduler, None, None, None)
        chosen = cluster_from(cluster, exclusive=exclusive)
        with inputs_read() as read:
            recorded = _simulated(run, chosen, network, policies, seed, profiles or ())
        check_outputs([json], read)
    jobs = [job_id] if job_id is not None else _slowest(recorded, worst or 1)
    with working("Explaining"):
        found = [explain(recorded, job) for job in jobs]
    if json is not None:
        values = [one.to_dict() for one in found]
        data = values if job_id is None else values[0]
        with open_output(json) as stream:
            stream.write(jsons.dumps(data, indent=2, ensure_ascii=False).encode() + b"\n")
    console = results(to_stderr=json == STANDARD)
    for index, one in enumerate(found):
        if index:
            console.print()
        _print(console, one)
    report_written(json)


def _refuse_settings(context: typer.Context) -> None:
    """Refuse options that only a run that is yet to be simulated can have."""
    for name in (
        *("cluster", "exclusive", "network", "policy", "placement", "scheduler"),
        *("seed", "profiles"),
    ):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"--{name} applies to a workload; the timeline has its own.")


def _simulated(
    workload: str,
    cluster: Cluster,
    network: str,
    policies: PolicySet,
    seed: int,
    profiles: list[str] | tuple[()],
) -> RecordedRun:
    """Simulate a workload and keep its timeline in memory."""
    from headway.engine.run import simulate
    from headway.results.timeline.recorded import RecordedRun
    from headway.results.timeline.sinks import Timeline
    from headway.workload.sources import workload_from

    jobs = workload_from(workload, seed=seed, profiles=profiles)
    tasks = sum(job.iterations * (job.task_count + job.message_count) for job in jobs)
    if tasks > _MAX_TASKS:
        raise InputError(
            f"has {tasks:,} tasks, too many to keep in memory; record it with headway simulate "
            "--timeline FILE.parquet and explain that file.",
            source=workload,
        )
    with ProgressBar(messages()) as bar:
        result = simulate(
            jobs,
            cluster,
            network=network,
            policy=policies,
            seed=seed,
            timeline=Timeline(),
            progress=bar,
        )
    return RecordedRun.of(result)


def _slowest(run: RecordedRun, count: int) -> list[str]:
    return run.jobs.sort("jct_s", descending=True, maintain_order=True)["job_id"].to_list()[:count]


def _print(console: Console, found: Explanation) -> None:
    from headway.reports.explain import PARTS

    gpus, servers = len(found.gpus), len(found.servers)
    print_lines(
        console,
        f"job {found.job_id}: {gpus:,} GPU{'s' * (gpus > 1)} on {servers:,} "
        f"server{'s' * (servers > 1)}, {found.iterations:,} "
        f"iteration{'s' * (found.iterations != 1)}",
        *([f"trains {found.model} with {found.parallel}"] if found.parallel else []),
        f"arrived at {found.arrival_ns / 1e9:,.3f} s, placed at {found.start_ns / 1e9:,.3f} s, "
        f"finished at {found.finish_ns / 1e9:,.3f} s",
        "",
    )
    table = TextTable([""], ["seconds", "share"], ["other jobs (seconds)"])
    for part in PARTS:
        ns = found.parts_ns[part]
        others = found.others.get(part, ())[:_MAX_SHOWN] if ns else ()
        table.add_row(
            part.replace("_", " ").replace("gpu", "its GPU"),
            f"{ns / 1e9:,.3f}",
            f"{ns / found.jct_ns:.1%}",
            ", ".join(
                f"{'itself' if other.job_id == found.job_id else other.job_id} "
                f"({other.ns / 1e9:,.1f})"
                for other in others
            ),
        )
        if own_ns := found.own_ns.get(part):
            share = f"{own_ns / found.jct_ns:.1%}"
            table.add_row("  own messages only", f"{own_ns / 1e9:,.3f}", share, "")
    table.add_row("completion time", f"{found.jct_ns / 1e9:,.3f}", f"{1:.1%}", "")
    print_table(console, table)
    if found.entries:
        console.print()
        print_table(console, _path_table(found))
    if found.parts_ns["queued"]:
        console.print("\nQueued: the jobs that held GPUs meanwhile, in GPU seconds.")


def _path_table(found: Explanation) -> TextTable:
    """Return the entries of a graph on the critical paths, in seconds."""
    table = TextTable(
        ["on the critical path"], ["iterations", "waiting", "running", "contention", "share"]
    )
    for entry in found.entries[:_MAX_ENTRIES]:
        table.add_row(
            entry.name,
            f"{entry.iterations:,}",
            *(
                f"{ns / 1e9:,.3f}"
                for ns in (entry.waiting_ns, entry.running_ns, entry.contention_ns)
            ),
            f"{entry.total_ns / found.jct_ns:.1%}",
        )
    if len(found.entries) > _MAX_ENTRIES:
        table.add_row(f"… ({len(found.entries) - _MAX_ENTRIES:,} more)", *[""] * 5)
    return table
