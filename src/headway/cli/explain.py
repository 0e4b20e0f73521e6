"""`headway explain`."""

from __future__ import annotations

import json as jsons
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import print_table, results
from headway.files import STANDARD, check_different, check_output, open_output
from headway.text_table import TextTable

if TYPE_CHECKING:
    from headway.reports.explain import Explanation

_MAX_SHOWN = 3


def explain_command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="The timeline of a whole run, recorded by `headway simulate --timeline`.",
        ),
    ],
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The id of the job.")],
    json: Annotated[
        str | None, typer.Option(help="Write the explanation to this file, or - for stdout.")
    ] = None,
) -> None:
    """Show where one job's time went, and which jobs it waited for."""
    if json is not None:
        check_output(json)
        check_different([run], [json], "the timeline and the output")

    from headway.reports.explain import explain
    from headway.results.timeline.file import read_timeline

    found = explain(read_timeline(run), job_id)
    if json is not None:
        with open_output(json) as stream:
            stream.write(
                jsons.dumps(found.to_dict(), indent=2, ensure_ascii=False).encode() + b"\n"
            )
    _print(found, to_stderr=json == STANDARD)


def _print(found: Explanation, to_stderr: bool) -> None:
    from headway.reports.explain import PARTS

    console = results(to_stderr)
    gpus, servers = len(found.gpus), len(found.servers)
    console.print(
        f"job {found.job_id}: {gpus:,} GPU{'s' * (gpus > 1)} on {servers:,} "
        f"server{'s' * (servers > 1)}, {found.iterations:,} iterations\n"
        f"arrived at {found.arrival_ns / 1e9:,.3f} s, placed at {found.start_ns / 1e9:,.3f} s, "
        f"finished at {found.finish_ns / 1e9:,.3f} s\n",
        markup=False,
    )
    table = TextTable([""], ["seconds", "share"], ["other jobs (seconds)"])
    for part in PARTS:
        ns = found.parts_ns[part]
        others = found.others.get(part, ())[:_MAX_SHOWN] if ns else ()
        table.add_row(
            part.replace("_", " ").replace("gpu", "its GPU"),
            f"{ns / 1e9:,.3f}",
            f"{ns / found.jct_ns:.1%}",
            ", ".join(f"{other.job_id} ({other.ns / 1e9:,.1f})" for other in others),
        )
    table.add_row("completion time", f"{found.jct_ns / 1e9:,.3f}", f"{1:.1%}", "")
    print_table(console, table)
    if found.parts_ns["queued"]:
        console.print("\nQueued: the jobs that held GPUs meanwhile, in GPU seconds.")
