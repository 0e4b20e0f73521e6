"""`headway workload import`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import ReadingBar, figures_table, messages
from headway.files import STANDARD, check_different, check_output
from headway.workload.traces.registry import FORMATS

if TYPE_CHECKING:
    from collections import Counter

    from headway.workload.traces.importing import TraceImport


def import_command(
    form: Annotated[
        str, typer.Argument(metavar="FORMAT", help=f"Whose trace it is: {', '.join(FORMATS)}.")
    ],
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILES", help="Its files, plain or gzip; - is standard input."),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .csv or .parquet file, or - for stdout.")
    ] = STANDARD,
    seed: Annotated[int, typer.Option(help="Same seed, same models for jobs without one.")] = 0,
    memory_gb: Annotated[
        float | None,
        typer.Option(
            help="Memory that every job needs on each GPU (1 GB = 1024 MB). As much as a GPU has: "
            "no two jobs share one.  [default: what the model or the share needs]",
            show_default=False,
        ),
    ] = None,
    gpu_memory_gb: Annotated[
        float, typer.Option(help="Memory of the GPU of which openb and pai give shares.")
    ] = 16,
    max_gpus: Annotated[
        int | None, typer.Option(help="Leave out jobs with more GPUs than this.")
    ] = None,
    from_s: Annotated[
        float | None,
        typer.Option(
            "--from", metavar="SECONDS", help="Leave out jobs that arrive sooner after the first."
        ),
    ] = None,
    to_s: Annotated[
        float | None,
        typer.Option("--to", metavar="SECONDS", help="Leave out jobs that arrive later, or then."),
    ] = None,
    first: Annotated[int | None, typer.Option(help="Keep the first so many, by arrival.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail at the first job that cannot be used.")
    ] = False,
) -> None:
    """Turn the trace of a real cluster into a workload.

    What the trace lacks is assigned from the seed, so that each job keeps its duration and its
    GPUs. Jobs that cannot be used are left out, counted and told.
    """
    from headway.workload.files import write_workload
    from headway.workload.traces.importing import Choice, import_trace

    check_output(output)
    check_different(files, [output], "the trace and the workload")
    choice = Choice(
        seed=seed,
        memory_gb=memory_gb,
        gpu_memory_gb=gpu_memory_gb,
        max_gpus=max_gpus,
        from_s=from_s,
        to_s=to_s,
        first=first,
    )
    with ReadingBar(messages()) as bar:
        found = import_trace(form, files, choice, strict=strict, progress=bar)
    write_workload(found.workload, output)
    _tell(found, output)


def _tell(found: TraceImport, output: str) -> None:
    console = messages()
    where = "standard output" if output == STANDARD else output
    console.print(f"{_jobs(len(found.workload))} written to {where}", markup=False, soft_wrap=True)
    for what, counts in (
        ("dropped, which cannot be simulated", found.unusable),
        ("left out, as asked", found.not_chosen),
    ):
        if counts:
            _tell_counts(what, counts)
    if found.out_of_order:
        console.print(
            f"{_jobs(found.out_of_order)} stood after one that arrives later; all are sorted by "
            "arrival now.",
            soft_wrap=True,
        )


def _tell_counts(what: str, counts: Counter[str]) -> None:
    console = messages()
    console.print(f"{_jobs(counts.total())} {what}:")
    table = figures_table("  reason", "jobs")
    table.show_header = False
    for reason, count in counts.most_common():
        table.add_row(f"  {reason}", f"{count:,}")
    console.print(table)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
