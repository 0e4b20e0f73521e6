"""`headway replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import report_written
from headway.files import STANDARD, check_outputs
from headway.text_table import printable

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
    allow_policy_files: Annotated[
        bool,
        typer.Option(
            "--allow-policy-files", help="Run the Python files of policies that the log names."
        ),
    ] = False,
) -> None:
    """Repeat the decisions of a live run from its log, and compare them."""
    check_outputs([workload], [log])
    from headway.live.replay import replay

    outcome = replay(log, allow_policy_files=allow_policy_files)
    to_stderr = workload == STANDARD
    typer.echo(printable(_summary(outcome)), err=to_stderr)
    if outcome.truncated_line is not None:
        typer.echo(f"line {outcome.truncated_line} is incomplete and was skipped.", err=to_stderr)
    if outcome.difference is not None:
        for line in _describe(outcome.difference):
            typer.echo(printable(line), err=to_stderr)
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


def _describe(difference: Difference) -> list[str]:
    def joined(instructions: list[object]) -> str:
        return "; ".join(map(str, instructions)) or "nothing"

    return [
        f"line {difference.line}: {difference.event}",
        f"  logged:   {joined([*difference.logged])}",
        f"  replayed: {joined([*difference.replayed])}",
    ]
