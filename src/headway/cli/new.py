"""`headway new`: files to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.console import print_lines, report_written, results
from headway.domain.errors import InputError, shown
from headway.files import check_output, open_output

app = typer.Typer(
    help="Write a commented file to start from.", no_args_is_help=True, rich_markup_mode=None
)


FileArgument = Annotated[
    str | None, typer.Argument(metavar="FILE", show_default=False, help="The same as --output.")
]


def _output_option(usual: str) -> Any:
    text = f"The file to write.  [default: {usual}]"
    return typer.Option("--output", "-o", metavar="FILE", help=text, show_default=False)


@app.command("policy")
def policy_command(
    file: FileArgument = None,
    output: Annotated[str | None, _output_option("my_policy.py")] = None,
) -> None:
    """Write a Python file with a placement, a priority and an admission that run as they are."""
    path = _write("policy.py", _chosen(file, output, "my_policy.py"), ".py")
    print_lines(results(), f"Try it: headway simulate paper --placement {path}:my_placement")


@app.command("sweep")
def sweep_command(
    file: FileArgument = None,
    output: Annotated[str | None, _output_option("my_sweep.toml")] = None,
) -> None:
    """Write a sweep that runs as it is: two clusters, three seeds and three policies."""
    path = _write("sweep.toml", _chosen(file, output, "my_sweep.toml"), ".toml")
    print_lines(results(), f"Try it: headway sweep {path}")


def _chosen(file: str | None, output: str | None, usual: str) -> str:
    if file is not None and output is not None:
        raise InputError(f"give one file, not {shown(file)} and {shown(output)}.", field="--output")
    return next(given for given in (output, file, usual) if given is not None)


def _write(template: str, file: str, suffix: str) -> str:
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
    return file
