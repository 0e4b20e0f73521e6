"""`headway report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.console import StagesLine, messages, reading_s, report_written, working
from headway.cli.options import names_from
from headway.domain.errors import InputError
from headway.figure_style import check_picture
from headway.files import STANDARD, check_outputs
from headway.results.timeline.window import Window

_WINDOW_S = 2.0


def report_command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A timeline recorded by `headway simulate --timeline`, or the folder of a sweep.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PICTURE",
            help="A .svg, .pdf or .png file; for a sweep, a .html page.  "
            "[default: RUN with the suffix .svg; RUN/report.html]",
            show_default=False,
        ),
    ] = None,
    from_s: Annotated[
        float | None,
        typer.Option(
            "--from",
            metavar="SECONDS",
            help="Start of the window.  [default: the moment of highest contention]",
            show_default=False,
        ),
    ] = None,
    to_s: Annotated[
        float | None,
        typer.Option(
            "--to",
            metavar="SECONDS",
            help="End of the window.  [default: 2 s after its start]",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="For a sweep: group rows by these, as `headway sweep --show` does.",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…", help="For a sweep: group columns by these.", show_default=False
        ),
    ] = None,
) -> None:
    """Draw a timeline (the tasks in a window, contention, the queue) or write a sweep's page."""
    if os.path.isdir(run):
        if from_s is not None or to_s is not None:
            raise InputError("--from and --to select a part of a timeline; a sweep has none.")
        _report_sweep(run, output, names_from(rows), names_from(columns))
        return
    if rows is not None or columns is not None:
        raise InputError("--rows and --columns apply to the folder of a sweep.")
    if output is None:
        if run == STANDARD:
            raise InputError("give --output for a timeline on standard input.")
        output = os.path.splitext(run)[0] + ".svg"
    check_picture(output)
    check_outputs([output], [run])
    window = None
    if from_s is not None:
        window = Window.of_seconds(from_s, from_s + _WINDOW_S if to_s is None else to_s)
    elif to_s is not None:
        window = Window.of_seconds(max(0.0, to_s - _WINDOW_S), to_s)

    read_s = reading_s(run)
    stages = {f"reading {run}": read_s, "counting messages": read_s, f"drawing {output}": 2.0}
    with StagesLine(messages(), stages) as line:
        from headway.reports.gantt import write_report
        from headway.results.timeline.file import read_timeline

        timeline = read_timeline(run)
        line.next_stage()
        _ = timeline.steps
        line.next_stage()
        write_report(timeline, output, window)
    report_written(output)


def _report_sweep(
    folder: str, output: str | None, rows: list[str] | None, columns: list[str] | None
) -> None:
    from headway.experiments.sweep.report import write_sweep_report

    with working(f"Drawing the report of {folder}"):
        target = None if output is None else Path(output)
        page = write_sweep_report(Path(folder), target, rows, columns)
    report_written(page)
