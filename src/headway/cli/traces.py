"""`headway workload import`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import ReadingBar, messages, print_lines, print_table
from headway.files import STANDARD, check_outputs
from headway.text_table import TextTable
from headway.workload.traces.registry import FORMATS

if TYPE_CHECKING:
    from collections import Counter

    from headway.workload.traces.importing import TraceImport


def import_command(
    form: Annotated[
        str, typer.Argument(metavar="FORMAT", help=f"Format of the trace: {', '.join(FORMATS)}.")
    ],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES", help="Files of the trace, plain or gzip; - is standard input."
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .csv or .parquet file, or - for stdout.")
    ] = STANDARD,
    seed: Annotated[
        int, typer.Option(help="The same seed assigns the same models to jobs without one.")
    ] = 0,
    memory_gb: Annotated[
        float | None,
        typer.Option(
            help="Memory that every job needs on each GPU (1 GB = 1024 MB); jobs then share GPUs "
            "whose memory holds them.  [default: that of the model, or of the job's GPU share]",
            show_default=False,
        ),
    ] = None,
    gpu_memory_gb: Annotated[
        float, typer.Option(help="Memory of a GPU, of which openb and pai give shares.")
    ] = 16,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Let jobs share GPUs whose memory holds them, as --memory-gb does. Otherwise each "
            "has its GPUs to itself, unless the trace gives it a part of a GPU.",
        ),
    ] = False,
    max_gpus: Annotated[int | None, typer.Option(help="Leave out jobs with more GPUs.")] = None,
    from_s: Annotated[
        float | None,
        typer.Option(
            "--from",
            metavar="SECONDS",
            help="Leave out jobs that arrive fewer seconds after the first.",
        ),
    ] = None,
    to_s: Annotated[
        float | None,
        typer.Option(
            "--to",
            metavar="SECONDS",
            help="Leave out jobs that arrive this many seconds after the first, or later.",
        ),
    ] = None,
    first: Annotated[
        int | None, typer.Option(help="Keep only this many jobs, the first to arrive.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on the first unusable job.")
    ] = False,
) -> None:
    """Convert a trace of a real cluster to a workload.

    What the trace lacks is assigned from the seed so that each job keeps its duration and its GPUs.
    Unusable jobs are left out and counted by reason.
    """
    from headway.workload.files import write_workload
    from headway.workload.traces.importing import Choice, import_trace

    check_outputs([output], files)
    choice = Choice(
        seed=seed,
        memory_gb=memory_gb,
        gpu_memory_gb=gpu_memory_gb,
        max_gpus=max_gpus,
        from_s=from_s,
        to_s=to_s,
        first=first,
        exclusive=not shared and memory_gb is None,
    )
    with ReadingBar(messages()) as bar:
        found = import_trace(form, files, choice, strict=strict, progress=bar)
    write_workload(found.workload, output)
    _print_summary(found, output)


def _print_summary(found: TraceImport, output: str) -> None:
    console = messages()
    where = "standard output" if output == STANDARD else output
    print_lines(console, f"{_jobs(len(found.workload))} written to {where}", soft_wrap=True)
    for what, counts in (
        ("dropped because they cannot be simulated", found.unusable),
        ("left out by the options", found.not_chosen),
    ):
        if counts:
            _print_counts(what, counts)
    if found.out_of_order:
        console.print(
            f"{_jobs(found.out_of_order)} came after a job that arrives later; the workload is "
            "sorted by arrival.",
        )


def _print_counts(what: str, counts: Counter[str]) -> None:
    console = messages()
    console.print(f"{_jobs(counts.total())} {what}:")
    table = TextTable([""], [""])
    for reason, count in counts.most_common():
        table.add_row(f"  {reason}", f"{count:,}")
    print_table(console, table)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
