"""The `headway` command: its subcommands, and its handling of errors."""

from __future__ import annotations

import logging
import re
import sys
from itertools import pairwise
from typing import Annotated

import typer
from typer.core import TyperGroup

from headway.cli.command_groups import GroupedCommands
from headway.cli.console import tolerate_encodings
from headway.domain.errors import HeadwayError, InputError, shown
from headway.interrupts import check
from headway.text_table import printable_lines
from headway.version import __version__

BAD_INPUT = 2

_NUMBER = re.compile(r"[+-]?[\d.]+([eE][+-]?\d+)?")

app = typer.Typer(
    cls=GroupedCommands,
    name="headway",
    help="Simulate many distributed training jobs on one GPU cluster, with their all-reduces "
    "contending for the network, and schedule real ones.",
    epilog="`headway COMMAND --help` explains a command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headway {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take the options that come before a command."""


class _NoticeHandler(logging.Handler):
    """Prints log records on standard error, above a progress bar if one is shown."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, unless it says the same as the one before."""
        text = self.format(record)
        if text != self._last:
            print(printable_lines(text), file=sys.stderr)
        self._last = text


def run() -> None:
    """Run the command line; a `HeadwayError` ends it with one line and exit status 2."""
    tolerate_encodings()
    logger, handler = logging.getLogger("headway"), _NoticeHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        _check_digits(sys.argv[1:])
        app(prog_name="headway")
    except InputError as error:
        _fail(str(_with_option(error)))
    except HeadwayError as error:
        _fail(str(error))
    except MemoryError:
        _fail("out of memory.")
    except OSError as error:
        _fail(f"{error.strerror or error}.")
    finally:
        logger.removeHandler(handler)


def _with_option(error: InputError) -> InputError:
    """Return an error about an option of this command with the option as the user types it."""
    command = typer.main.get_command(app)
    for word in sys.argv[1:]:
        if not isinstance(command, TyperGroup) or word not in command.commands:
            break
        command = command.commands[word]
    field = (error.field or "").replace("-", "_")
    for parameter in command.params if error.source is None else ():
        options = [name for name in parameter.opts if name.startswith("--")]
        words = {name.removeprefix("--").replace("-", "_") for name in options}
        if options and field in {parameter.name, *words}:
            return InputError(error.problem, field=options[0])
    return error


def _check_digits(arguments: list[str]) -> None:
    """Refuse numbers of options in digits other than 0 to 9, which Python would take."""
    for before, argument in pairwise(["", *arguments]):
        option, equals, value = argument.partition("=")
        if not equals:
            option, value = before, argument
        if option.startswith("-") and not value.isascii() and _NUMBER.fullmatch(value):
            raise InputError(f"must be in the digits 0 to 9, not {shown(value)}.", field=option)


def _fail(message: str) -> None:
    check()  # An error may be what became of an interrupt.
    print(f"headway: error: {printable_lines(message)}", file=sys.stderr)
    sys.exit(BAD_INPUT)
