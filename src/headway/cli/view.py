"""`headway view`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.console import StagesLine, messages, print_lines, reading_s, report_written
from headway.domain.errors import InputError
from headway.files import STANDARD, check_outputs

if TYPE_CHECKING:
    from headway.results.timeline.recorded import RecordedRun


def view_command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULT...",
            help="Timelines recorded by `headway simulate --timeline`, state folders of `headway "
            "serve`, or its event logs; several are compared.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.html",
            help="Write one file that needs neither a server nor the network, or - for stdout, "
            "instead of serving the page.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The page's port; 0 picks a free one.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Look at runs in a browser: the cluster at any moment, jobs, time, and how runs compare.

    The page is served to this machine only, until Ctrl-C.
    """
    for run in runs:
        if runs.count(run) > 1:
            raise InputError("is given twice.", source=run)
    if output is not None:
        if output != STANDARD and Path(output).suffix.lower() not in (".html", ".htm"):
            raise InputError("must end in .html.", source=output)
        check_outputs([output], runs)
    else:
        try:
            from headway.web.server import serve_runs
        except ImportError:
            raise InputError(
                "this requires the extra 'serve': pip install '.[serve]' in Headway's checkout. "
                "With -o FILE.html it does not."
            ) from None
    stages = {f"reading {run}": 2 * reading_s(run) for run in runs}
    with StagesLine(messages(), {**stages, "packing": 0.5}) as line:
        from headway.web.run_data import RunData

        data = []
        for run, name in zip(runs, _names(runs), strict=True):
            recorded = _recorded(run)
            explained = _explained if recorded.live is None else None
            data.append(RunData(recorded, name, explained))
            _ = data[-1].overview
            line.next_stage()
        if output is not None:
            from headway.web.files import write_page

            write_page(data, output)
    if output is not None:
        report_written(output)
        return

    def announce(link: str) -> None:
        print_lines(messages(), f"Open {link}", "Ctrl-C stops the page.", soft_wrap=True)

    serve_runs(data, port, announce, browser)


def _recorded(path: str) -> RecordedRun:
    """Read a timeline, or the event log of a live cluster."""
    # A look at the beginning of a pipe would take it away from the reader.
    if path != STANDARD and (os.path.isfile(path) or os.path.isdir(path)):
        from headway.live.past.recording import is_log, read_recording

        if is_log(path):
            return read_recording(path)
    from headway.results.timeline.file import read_timeline

    return read_timeline(path)


def _explained(run: RecordedRun, job_id: str) -> dict[str, Any]:
    from headway.reports.explain import explain

    return explain(run, job_id).to_dict()


def _names(runs: list[str]) -> list[str]:
    """Return a name for each run: that of its file, or the whole path if several have it."""
    names = ["run" if run == STANDARD else Path(run).stem for run in runs]
    return names if len(set(names)) == len(names) else runs
