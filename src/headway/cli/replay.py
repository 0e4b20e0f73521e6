"""`headway replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.domain.errors import MachineError
from headway.files import STANDARD, check_different, check_output

if TYPE_CHECKING:
    from headway.live.replay import Difference, Replay

DIFFERENT = 1


def replay_command(
    log: Annotated[str, typer.Argument(help="The log of a live run, events.jsonl.")],
    workload: Annotated[
        str | None,
        typer.Option(
            help="Write what the jobs did as a workload for the simulator to this file, or - for "
            "stdout."
        ),
    ] = None,
) -> None:
    """Repeat the decisions of a live run from its log, and compare."""
    if workload is not None:
        check_output(workload)
        check_different([log], [workload], "the log and the workload")
    try:
        from headway.live.replay import replay
    except ModuleNotFoundError as error:
        if error.name != "msgspec":
            raise
        raise MachineError(
            "this needs msgspec, which is not installed: pip install 'headway[serve]'."
        ) from None

    found = replay(log)
    to_stderr = workload == STANDARD
    typer.echo(_summary(found), err=to_stderr)
    if found.cut_line is not None:
        typer.echo(f"line {found.cut_line} ends in the middle and was left out.", err=to_stderr)
    if found.difference is not None:
        typer.echo(_shown(found.difference), err=to_stderr)
        raise typer.Exit(DIFFERENT)
    if workload is not None:
        from headway.workload.files import write_workload

        jobs = found.workload()
        write_workload(jobs, workload)
        left_out = found.submitted - len(jobs)
        if left_out:
            typer.echo(
                f"{left_out:,} job{'s' * (left_out > 1)} without an iteration left out.", err=True
            )


def _summary(found: Replay) -> str:
    verdict = "the same decisions" if found.difference is None else "not the same decisions"
    return f"{found.policy}: {found.events:,} events, {found.decisions:,} decisions: {verdict}."


def _shown(difference: Difference) -> str:
    def told(instructions: list[object]) -> str:
        return "; ".join(map(str, instructions)) or "nothing"

    return (
        f"line {difference.line}: {difference.event}\n"
        f"  the log says: {told([*difference.logged])}\n"
        f"  now it gives: {told([*difference.answered])}"
    )
