"""`headway new`: files to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.console import print_lines, report_written, results
from headway.domain.errors import InputError
from headway.files import check_output, open_output

app = typer.Typer(
    help="Write a commented file to start from.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("policy")
def policy_command(
    file: Annotated[str, typer.Argument(help="The file to write.")] = "my_policy.py",
) -> None:
    """Write a Python file with a placement, a priority and an admission that run as they are."""
    _write("policy.py", file, ".py")
    print_lines(results(), f"Try it: headway simulate paper --placement {file}:my_placement")


@app.command("sweep")
def sweep_command(
    file: Annotated[str, typer.Argument(help="The file to write.")] = "my_sweep.toml",
) -> None:
    """Write a sweep that runs as it is: two clusters, three seeds and three policies."""
    _write("sweep.toml", file, ".toml")
    print_lines(results(), f"Try it: headway sweep {file}")


def _write(template: str, file: str, suffix: str) -> None:
    target = Path(file)
    if target.suffix != suffix:
        raise InputError(f"must end in {suffix}.", source=file)
    check_output(file)
    if target.exists():
        raise InputError("exists already; give another name.", source=file)
    text = files("headway.cli").joinpath("templates", template).read_text(encoding="utf-8")
    with open_output(file) as stream:
        stream.write(text.replace("FILE", file).replace("STEM", target.stem).encode())
    report_written(file)
