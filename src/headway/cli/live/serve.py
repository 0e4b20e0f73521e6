"""`headway serve`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.live.finding import NEEDS_SERVE, FolderOption
from headway.domain.errors import InputError

FAILED = 1


def serve_command(
    config: Annotated[
        Path | None,
        typer.Option(help="A file serve.toml; the other options count before it."),
    ] = None,
    folder: FolderOption = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="What decides, such as headway, paper or lwf:1+ada-srsf.  "
            "[default: the last one; at first headway]",
            show_default=False,
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="The network's costs: a name or a .toml file.  [default: 10gbe]",
            show_default=False,
        ),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            help="Where jobs run: local, testbed or ray.  [default: local]", show_default=False
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            help="Slots of each node.  [default: its GPUs, else its cores]", show_default=False
        ),
    ] = None,
    stop_jobs: Annotated[
        bool, typer.Option("--stop-jobs", help="End the jobs that run when the scheduler ends.")
    ] = False,
    log_level: Annotated[
        str, typer.Option(help="Of the notices: debug, info, warning or error.")
    ] = "info",
) -> None:
    """Schedule real jobs on this machine, a testbed or Ray, until Ctrl-C or SIGTERM.

    Jobs go on without it, and it takes them over when it starts again.
    """
    try:
        from headway.live import operator_log
        from headway.live.assembly import serve
        from headway.live.daemon.settings import ServeSettings, settings_from
    except ImportError:
        raise InputError(NEEDS_SERVE) from None
    operator_log.begin(log_level)
    settings = ServeSettings() if config is None else settings_from(str(config))
    place = replace(settings.executor, **_given(kind=executor, slots=slots))
    where = None if folder is None else folder.absolute()
    chosen = _given(folder=where, policy=policy, network=network)
    if not serve(replace(settings, **chosen, executor=place), stop_jobs=stop_jobs):
        raise typer.Exit(FAILED)


def _given(**values: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in values.items() if value is not None}
