"""`headway calibrate`, with the options of `python -m headway.calibrate`."""

from __future__ import annotations

import typer


def calibrate_command(context: typer.Context) -> None:
    """Measure a real network, a model on a real GPU, or the GPU: calibrate network, model, gpu.

    Each has its own --help. On machines with nothing but PyTorch, run the same command as `python
    -m headway.calibrate`.
    """
    from headway.calibrate.command import run

    raise typer.Exit(run(context.args))
