"""`headway calibrate`, also run as `python -m headway.calibrate` where only PyTorch exists."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from headway.calibrate.gpus import command as gpus
from headway.calibrate.models import command as models
from headway.calibrate.network import command as network
from headway.domain.errors import HeadwayError
from headway.text_table import printable, printable_lines

BAD_INPUT = 2


class _Formatter(argparse.HelpFormatter):
    """Wraps the paragraphs of a description, and leaves indented ones as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        parts = text.split("\n\n")
        return "\n\n".join(
            part if part.startswith(" ") else fill(part, width, indent) for part in parts
        )


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are safe to print."""

    def error(self, message: str) -> NoReturn:
        """Print an error and exit."""
        super().error(printable(message))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = _Parser(
        prog="headway calibrate",
        description="Measure a real network, a model on a real GPU, or the GPU itself.",
        allow_abbrev=False,
    )
    kinds = made.add_subparsers(metavar="WHAT", required=True)
    for name, command, title in (
        ("network", network, "fit a, b and eta to all-reduces"),
        ("model", models, "time forward and backward passes"),
        ("gpu", gpus, "time the operations of transformers"),
    ):
        kind = kinds.add_parser(
            name,
            help=title,
            description=command.DESCRIPTION,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        command.add_arguments(kind)
        kind.set_defaults(run=command.run)
    return made


def run(arguments: Sequence[str]) -> int:
    """Run a command; a `HeadwayError` propagates."""
    options = parser().parse_args(arguments)
    return int(options.run(options))


def main() -> int:
    """Run a command; a `HeadwayError` ends it with one line and exit status 2."""
    try:
        return run(sys.argv[1:])
    except HeadwayError as error:
        problem = str(error)
    except MemoryError:
        problem = "out of memory."
    except OSError as error:
        problem = f"{error.strerror or error}."
    print(f"headway: error: {printable_lines(problem)}", file=sys.stderr)
    return BAD_INPUT
