"""`headway calibrate`, whose options are those of `python -m headway.calibrate`."""

from __future__ import annotations

import typer

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def calibrate_command(context: typer.Context) -> None:
    """Measure a real network (calibrate network) or a model on a real GPU (calibrate model).

    Both say more with --help. Where only PyTorch is installed, `python -m headway.calibrate` is
    the same.
    """
    from headway.calibrate.command import run

    raise typer.Exit(run(context.args))
