"""`headway graph`: graphs of iterations."""

from __future__ import annotations

import typer

from headway.cli.graph_imports import app as imports

app = typer.Typer(
    help="Import graphs of iterations from other simulators.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(imports, name="import")
