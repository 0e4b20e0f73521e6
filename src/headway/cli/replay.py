"""`headway replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import report_written
from headway.files import STANDARD, check_different, check_output

if TYPE_CHECKING:
    from headway.live.replay import Difference, Replay

DIFFERENT = 1


def replay_command(
    log: Annotated[
        str, typer.Argument(help="The log of a live run, events.jsonl, or - for stdin.")
    ],
    workload: Annotated[
        str | None,
        typer.Option(
            help="Also write the jobs as a simulator workload to this file, or - for stdout."
        ),
    ] = None,
) -> None:
    """Repeat the decisions of a live run from its log, and compare them."""
    if workload is not None:
        check_output(workload)
        check_different([log], [workload], "the log and the workload")
    from headway.live.replay import replay

    outcome = replay(log)
    to_stderr = workload == STANDARD
    typer.echo(_summary(outcome), err=to_stderr)
    if outcome.truncated_line is not None:
        typer.echo(f"line {outcome.truncated_line} is incomplete and was skipped.", err=to_stderr)
    if outcome.difference is not None:
        typer.echo(_describe(outcome.difference), err=to_stderr)
        raise typer.Exit(DIFFERENT)
    if workload is not None:
        from headway.workload.files import write_workload

        jobs = outcome.workload()
        write_workload(jobs, workload)
        report_written(workload)
        skipped = outcome.submitted - len(jobs)
        if skipped:
            typer.echo(
                f"skipped {skipped:,} job{'s' * (skipped > 1)} without iterations.", err=True
            )


def _summary(outcome: Replay) -> str:
    verdict = "the same decisions" if outcome.difference is None else "decisions differ"
    return (
        f"{outcome.policy}: {outcome.events:,} events, {outcome.decisions:,} decisions: {verdict}."
    )


def _describe(difference: Difference) -> str:
    def joined(instructions: list[object]) -> str:
        return "; ".join(map(str, instructions)) or "nothing"

    return (
        f"line {difference.line}: {difference.event}\n"
        f"  logged:   {joined([*difference.logged])}\n"
        f"  replayed: {joined([*difference.replayed])}"
    )
