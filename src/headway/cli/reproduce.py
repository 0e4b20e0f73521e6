"""`headway reproduce`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.console import RunsBar, messages, print_lines, print_table, results
from headway.cli.options import ThreadsOption
from headway.domain.errors import InputError, shown
from headway.experiments.seeds import parse_seeds
from headway.files import STANDARD
from headway.text_table import TextTable


class Experiment(StrEnum):
    """What can be reproduced."""

    PAPER = "paper"
    OVERLAP = "overlap"


_FOLDERS = {Experiment.PAPER: "reproduction", Experiment.OVERLAP: "overlap"}


def reproduce_command(
    experiment: Annotated[
        Experiment,
        typer.Argument(
            metavar="paper|overlap",
            help="paper: the paper's evaluation. overlap: the same jobs with and without gradients "
            "that are sent during the backward pass.",
        ),
    ] = Experiment.PAPER,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="The folder for the report, figures and results.  "
            "[default: reproduction or overlap]",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="The number of workloads (20: seeds 0 to 19), a range (5:24) or a list (3,7,11).  "
            "[default: 20]",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Three seeds, for a first look.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """Reproduce the paper's evaluation: run it, judge its claims, write a report.

    It covers placements, kappa, schedulers, the contention model, the introduction's example and
    other settings. If interrupted, repeat the command to continue.
    """
    from headway.engine.parallel import thread_count
    from headway.experiments.overlap import measure_overlap
    from headway.experiments.reproduction import FULL_SEEDS, QUICK_SEEDS, reproduce

    if quick and seeds is not None:
        raise InputError("--quick and --seeds cannot be combined.")
    chosen = QUICK_SEEDS if quick else FULL_SEEDS if seeds is None else parse_seeds(seeds)
    workers = thread_count(threads)
    if output in ("", STANDARD):
        raise InputError(f"must name a folder, not {shown(output)}.", field="output")
    folder = Path(_FOLDERS[experiment] if output is None else output)
    make = reproduce if experiment is Experiment.PAPER else measure_overlap
    with RunsBar(messages(), str(folder / "runs")) as bar:
        found = make(folder, chosen, workers, bar.start, bar.step)
    console = results()
    settings = {name: {f.claim: f for f in part} for name, part in found.findings.items()}
    table = TextTable([f"The paper's claims, on {len(chosen)} seeds"], [*settings])
    for claim in next(iter(settings.values())):
        verdicts = (part[claim].verdict if claim in part else "" for part in settings.values())
        table.add_row(claim, *verdicts)
    print_table(console, table)
    print_lines(console, "", f"Report: {found.report}", soft_wrap=True)
