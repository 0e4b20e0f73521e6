"""`headway timeline`: recorded timelines in other formats."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from headway.cli.console import StagesLine, messages, reading_s, report_written
from headway.domain.errors import InputError
from headway.files import STANDARD, check_outputs

PERFETTO_SUFFIX = ".pftrace"

app = typer.Typer(help="Convert recorded timelines.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Make `export` a subcommand although it is the only one."""


@app.command("export")
def export_command(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A timeline recorded by `headway simulate --timeline`."),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.pftrace",
            help="The trace to write, or - for stdout.  [default: RUN with the suffix .pftrace]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Export a timeline as a Perfetto trace, for ui.perfetto.dev."""
    if run.endswith(PERFETTO_SUFFIX):
        raise InputError("is already a Perfetto trace.", source=run)
    if output is None:
        if run == STANDARD:
            raise InputError("give --output for a timeline on standard input.")
        output = os.path.splitext(run)[0] + PERFETTO_SUFFIX
    check_outputs([output], [run])

    stages = {f"reading {run}": reading_s(run), f"writing {output}": 3 * reading_s(run)}
    with StagesLine(messages(), stages) as line:
        from headway.reports.perfetto import export_perfetto
        from headway.results.timeline.file import read_timeline

        timeline = read_timeline(run)
        line.next_stage()
        export_perfetto(timeline, output)
    report_written(output)
