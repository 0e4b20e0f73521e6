"""`headway graph`: graphs of iterations."""

from __future__ import annotations

import typer

from headway.cli import graph_builders
from headway.cli.graph_imports import app as imports
from headway.cli.graph_show import show_command

app = typer.Typer(
    help="Build, show and import graphs of iterations.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("ddp")(graph_builders.ddp_command)
app.command("fsdp")(graph_builders.fsdp_command)
app.command("pipeline")(graph_builders.pipeline_command)
app.command("moe")(graph_builders.moe_command)
app.command("show")(show_command)
app.add_typer(imports, name="import")
