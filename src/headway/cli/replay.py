"""`headway replay`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import report_written
from headway.configuration.cluster_text import cluster_text
from headway.files import STANDARD, check_outputs, open_output
from headway.text_table import printable

if TYPE_CHECKING:
    from headway.live.replay import Difference, History, Replay
    from headway.network.contention import NetworkModel

DIFFERENT = 1

_ABOUT_CLUSTER = (
    "The nodes of a live run, at the time when there were most slots. Its log does not name",
    "the type of GPU; power is that of a v100.",
)


def replay_command(
    log: Annotated[
        str | None,
        typer.Argument(
            help="The scheduler's state folder, for all its runs; or one log, events.jsonl, or - "
            "for stdin.  [default: ~/.local/state/headway]",
            show_default=False,
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Also write the jobs as a simulator workload to this file and, for run.csv, the "
            "measured iterations to run.graphs, the cluster to run.cluster.toml and the network "
            "to run.network.toml; - writes the workload alone to stdout, without graphs.",
        ),
    ] = None,
    allow_policy_files: Annotated[
        bool,
        typer.Option(
            "--allow-policy-files", help="Run the Python files of policies that the log names."
        ),
    ] = False,
) -> None:
    """Repeat the decisions of a live run from its log, and compare them."""
    from headway.live.daemon.event_log.parts import headless_runs
    from headway.live.daemon.state_folder import StateFolder, default_folder
    from headway.live.replay import replay, replay_folder

    source = os.fspath(default_folder()) if log is None else log
    descriptions: tuple[str, str] | None = None
    if workload is not None and workload != STANDARD:
        stem = os.path.splitext(workload)[0]
        descriptions = f"{stem}.cluster.toml", f"{stem}.network.toml"
    check_outputs([workload, *(descriptions or ())], [source])

    to_stderr = workload == STANDARD
    outcomes: Iterable[Replay]
    if os.path.isdir(source):
        for run in sorted(headless_runs(StateFolder(Path(source)).event_log)):
            typer.echo(f"run {run}: skipped, the first part of its log is gone.", err=to_stderr)
        outcomes = replay_folder(Path(source), allow_policy_files=allow_policy_files)
    else:
        outcomes = [replay(source, allow_policy_files=allow_policy_files)]
    for outcome in outcomes:
        typer.echo(printable(_summary(outcome)), err=to_stderr)
        if outcome.truncated_line is not None:
            typer.echo(
                f"line {outcome.truncated_line} is incomplete and was skipped.", err=to_stderr
            )
        if outcome.difference is not None:
            for line in _describe(outcome.difference):
                typer.echo(printable(line), err=to_stderr)
            raise typer.Exit(DIFFERENT)
    if workload is not None:
        _export(outcome.history, workload, descriptions)


def _export(history: History, workload: str, descriptions: tuple[str, str] | None) -> None:
    """Write the workload and, if given their paths, the cluster and the network."""
    from headway.workload.files import write_workload

    # Graphs are files beside the workload's; standard output has no folder for them.
    jobs, cluster = history.workload(graphs=workload != STANDARD), history.cluster()
    write_workload(jobs, workload)
    report_written(workload)
    if descriptions is not None:
        texts = cluster_text(cluster, _ABOUT_CLUSTER), _network_text(history.network)
        for path, text in zip(descriptions, texts, strict=True):
            with open_output(path) as stream:
                stream.write(text.encode())
            report_written(path)
    unmeasured = history.unmeasured()
    if unmeasured:
        typer.echo(
            printable(
                f"skipped {len(unmeasured):,} job{'s' * (len(unmeasured) > 1)} whose iterations "
                f"were neither declared nor measured: {', '.join(unmeasured)}."
            ),
            err=True,
        )
    skipped = len(history.submitted) - len(jobs) - len(unmeasured)
    if skipped:
        typer.echo(f"skipped {skipped:,} job{'s' * (skipped > 1)} without iterations.", err=True)


def _network_text(network: NetworkModel) -> str:
    lines = [
        "# The network that the scheduler of a live run assumed.",
        "[network]",
        f"a_ns = {network.a_ns}",
        f"b_ns_per_byte = {network.b_ns_per_byte!r}",
        f"eta_ns_per_byte = {network.eta_ns_per_byte!r}",
        f'law = "{network.law}"',
    ]
    if network.ring_size is not None:
        lines.append(f"ring_size = {network.ring_size}")
    return "\n".join(lines) + "\n"


def _summary(outcome: Replay) -> str:
    run = "" if outcome.run is None else f"run {outcome.run}: "
    verdict = "the same decisions" if outcome.difference is None else "decisions differ"
    return (
        f"{run}{outcome.policy}: {outcome.events:,} events, {outcome.decisions:,} decisions: "
        f"{verdict}."
    )


def _describe(difference: Difference) -> list[str]:
    def joined(instructions: list[object]) -> str:
        return "; ".join(map(str, instructions)) or "nothing"

    return [
        f"line {difference.line}: {difference.event}",
        f"  logged:   {joined([*difference.logged])}",
        f"  replayed: {joined([*difference.replayed])}",
    ]
