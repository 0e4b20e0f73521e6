"""`headway sweep`."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import RunsBar, messages, print_lines, print_table, results
from headway.cli.options import ThreadsOption, names_from
from headway.domain.errors import InputError, shown
from headway.files import STANDARD
from headway.text_table import TextTable

if TYPE_CHECKING:
    import polars

    from headway.experiments.sweep.run import Failure

FAILED = 1
_MAX_FAILURES = 10


def sweep_command(
    sweep: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP.toml",
            help="The sweep to run; with --show, its file or its folder of results.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The folder for the results.  [default: SWEEP]",
            show_default=False,
        ),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Where to run: threads, ray (on this machine), or the HOST:PORT or "
            "ray://HOST:PORT of a Ray cluster.",
        ),
    ] = "threads",
    threads: ThreadsOption = None,
    jobs: Annotated[
        bool, typer.Option("--jobs", help="Store a row per job too, in DIR/jobs/*.parquet.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing; print the tables of the finished runs.")
    ] = False,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Group rows by these: workload, cluster, network, policy, …  "
            "[default: all that vary]",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Group columns by these.  [default: cluster, if there are several]",
            show_default=False,
        ),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Show these metrics: average_jct_s, median_jct_s, p95_jct_s, makespan_s, "
            "average_gpu_utilization, energy_j.  [default: all but the last]",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The policy to compare with.  [default: the file's, or its first]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run every combination of workloads, seeds, clusters, networks and policies.

    Every finished run is stored at once. If interrupted, repeat the command to continue.
    """
    from headway.engine.parallel import thread_count
    from headway.experiments.sweep import read_sweep, run_sweep
    from headway.experiments.sweep.pivot import check_names
    from headway.experiments.sweep.run import RAY, THREADS, finished_runs
    from headway.experiments.sweep.store import read_runs

    if on not in (THREADS, RAY) and ":" not in on:
        raise InputError(
            f"must be threads, ray, HOST:PORT or ray://HOST:PORT, not {shown(on)}.", field="--on"
        )
    check_names(names_from(rows), names_from(columns), names_from(value))
    if show and Path(sweep).is_dir():
        frame, metadata = read_runs(Path(sweep))
        usual, expected = metadata["headway.baseline"], int(metadata["headway.runs"])
        sharing = metadata.get("headway.sharing", "")
        _print(frame, expected, baseline or usual, rows, columns, value, sharing)
        return
    if output in ("", STANDARD):
        raise InputError(f"must name a folder, not {shown(output)}.", field="output")
    plan = read_sweep(sweep)
    folder = Path(Path(sweep).stem if output is None else output)
    usual = plan.baseline if baseline is None else baseline
    _check_baseline(usual, [str(policy.coordinates["policy"]) for policy in plan.policies])
    thread_count(threads)
    if show:
        finished = finished_runs(plan, folder)
        _print(finished, plan.size, usual, rows, columns, value, plan.sharing)
        return
    if folder.resolve() == Path(sweep).resolve():
        raise InputError(
            "is the sweep's own file; give another folder with --output.", source=str(folder)
        )
    started = time.monotonic()
    with RunsBar(messages(), str(folder)) as bar:
        found = run_sweep(
            plan, folder, on=on, threads=threads, jobs=jobs, started=bar.start, done=bar.step
        )
        elapsed_s = time.monotonic() - started
    if bar.new:
        rate = bar.new / elapsed_s
        messages().print(f"{bar.new:,} runs in {elapsed_s:,.1f} s ({rate:,.1f} per second).")
    if not found.runs.is_empty():
        _print(found.runs, plan.size, usual, rows, columns, value, plan.sharing)
    print_lines(results(), "", f"The runs: {folder / 'runs.parquet'}", soft_wrap=True)
    if found.failures:
        _print_failures(found.failures)
        raise typer.Exit(FAILED)


def _check_baseline(baseline: str, known: list[str]) -> None:
    if baseline not in known:
        raise InputError(
            f"must be one of the sweep's policies: {', '.join(known)}.", field="baseline"
        )


def _print(
    frame: polars.DataFrame,
    expected: int,
    baseline: str,
    rows: str | None,
    columns: str | None,
    value: str | None,
    sharing: str,
) -> None:
    from headway.experiments.sweep.pivot import (
        about_intervals,
        averaged_over,
        layout_of,
        tables,
    )

    if frame.is_empty():
        raise InputError("no run has finished yet.")
    known = frame["policy"].unique(maintain_order=True).to_list()
    _check_baseline(baseline, known)
    layout = layout_of(frame, names_from(rows), names_from(columns), names_from(value))
    console = results()
    over = averaged_over(frame, layout)
    missing = f", of {expected:,}" if len(frame) < expected else ""
    means = f"; means over {over} with 95% intervals" if over else ""
    print_lines(console, f"{len(frame):,} runs{missing}{means}")
    if about := about_intervals(frame, layout):
        print_lines(console, about)
    for made in tables(frame, layout, baseline):
        console.print()
        if layout.columns:
            print_lines(console, made.caption, style="bold")
        table = TextTable(made.header[: made.texts], made.header[made.texts :])
        for row in made.rows:
            table.add_row(*row)
        print_table(console, table)
    if sharing:
        print_lines(console, "", f"In these runs {sharing}.")


def _print_failures(failures: list[Failure]) -> None:
    """Print the failed runs, grouped by problem."""
    console = messages()
    problems = Counter(failure.problem for failure in failures)
    console.print(f"\n{len(failures):,} runs failed:")
    for problem, count in problems.most_common(_MAX_FAILURES):
        first = next(failure for failure in failures if failure.problem == problem)
        where = ", ".join(
            f"{name} {given}" for name, given in first.coordinates.items() if given is not None
        )
        more = "" if count == 1 else f", and {count - 1:,} more"
        lines = [f"  {line}" for line in problem.split("\n")]
        print_lines(console, *lines, f"    ({where}{more})", soft_wrap=True)
    if len(problems) > _MAX_FAILURES:
        console.print(f"  … and {len(problems) - _MAX_FAILURES:,} other problems")
