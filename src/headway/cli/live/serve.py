"""`headway serve`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.live.client_options import FolderOption
from headway.cli.live.plain_log import use_plain_log
from headway.domain.errors import InputError
from headway.text_table import printable

if TYPE_CHECKING:
    from headway.live.daemon.settings import ServeSettings

FAILED = 1


def serve_command(
    config: Annotated[
        Path | None,
        typer.Option(help="A serve.toml file; the other options override it."),
    ] = None,
    folder: FolderOption = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="The policy, such as headway, paper or lwf:1+ada-srsf.  "
            "[default: the last one used, initially headway]",
            show_default=False,
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="The network model: a name or a .toml file.  [default: 10gbe]",
            show_default=False,
        ),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            help="Where jobs run: local, testbed, ray or slurm.  [default: local]",
            show_default=False,
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            help="Slots per node.  [default: its GPUs, else its cores]",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            envvar="HEADWAY_PORT",
            help="The API's port; 0 picks a free one.  [default: 7077]",
            show_default=False,
        ),
    ] = None,
    no_forecasts: Annotated[
        bool,
        typer.Option(
            "--no-forecasts",
            help="Do not predict when jobs start and end, in a process of its own.",
        ),
    ] = False,
    stop_jobs: Annotated[
        bool, typer.Option("--stop-jobs", help="Stop running jobs when the scheduler stops.")
    ] = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="If state.db was lost or is damaged, rebuild its jobs from the event log and the "
            "processes that run.",
        ),
    ] = False,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="If it was, end the processes that run and begin anew."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="On Slurm: print the commands that start jobs, and exit."),
    ] = False,
    log_level: Annotated[
        str, typer.Option(help="Level of the operator log: debug, info, warning or error.")
    ] = "info",
    log_json: Annotated[
        bool,
        typer.Option("--log-json", help="Write the log as JSON on a terminal too, not in words."),
    ] = False,
) -> None:
    """Schedule real jobs on this machine, a testbed, Ray or Slurm, until Ctrl-C or SIGTERM.

    Jobs continue while the scheduler is stopped, and it takes them over when it restarts.
    """
    try:
        from headway.live import operator_log
        from headway.live.assembly import serve
        from headway.live.daemon.recovery import Unknown
        from headway.live.daemon.settings import ServeSettings, settings_from
    except ImportError:
        raise InputError(
            "this requires the extra 'serve': pip install '.[serve]' in Headway's checkout."
        ) from None
    settings = ServeSettings() if config is None else settings_from(str(config))
    path = None if folder is None else folder.absolute()
    try:
        settings = replace(
            settings,
            **_given(
                folder=path,
                policy=policy,
                network=network,
                api_port=port,
                forecasts=False if no_forecasts else None,
            ),
            executor=replace(settings.executor, **_given(kind=executor, slots=slots)),
        )
    except InputError as error:
        option = {"api_port": "port", "kind": "executor"}.get(error.field or "", error.field)
        raise InputError(error.problem, field=option) from None
    if dry_run:
        _print_commands(settings)
        return
    if adopt and forget:
        raise InputError("--adopt and --forget exclude each other.")
    operator_log.configure(log_level)
    if sys.stderr.isatty() and not log_json:
        use_plain_log()
    unknown = Unknown.ADOPT if adopt else Unknown.FORGET if forget else Unknown.REFUSE
    if not serve(settings, stop_jobs=stop_jobs, unknown=unknown):
        raise typer.Exit(FAILED)


def _print_commands(settings: ServeSettings) -> None:
    if settings.executor.kind != "slurm":
        raise InputError("is for the executor slurm.", field="--dry-run")
    for line in settings.executor.slurm().dry_run(settings.folder / "attempts"):
        typer.echo(printable(line))


def _given(**values: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in values.items() if value is not None}
