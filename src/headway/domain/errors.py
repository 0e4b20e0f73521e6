"""The exceptions that Headway raises.

HeadwayError
├── InputError    a file, an option or an argument is invalid
├── MachineError  a machine or its network is not as required, or a process on it failed
└── PolicyError   a policy does not compile, or returned an invalid decision
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from headway.text_table import printable


class HeadwayError(Exception):
    """Base class; the command line prints the message and exits with status 2."""


class InputError(HeadwayError):
    """An invalid input: what is wrong, where, and what would be right.

    `field` is the column or key at fault. The file's reader adds source, line and column.
    """

    def __init__(
        self,
        problem: str,
        *,
        field: str | None = None,
        source: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.field = field
        self.source = source
        self.line = line
        self.column = column

    def __str__(self) -> str:
        where = [] if self.source is None else [printable(self.source)]
        if self.line is not None:
            where.append(f"line {self.line}")
        if self.column is not None:
            where.append(f"column {self.column}" + (f" ({self.field})" if self.field else ""))
        elif self.field is not None:
            where.append(self.field)
        return f"{', '.join(where)}: {self.problem}" if where else self.problem

    def at(
        self, source: str | None, line: int | None = None, column: int | None = None
    ) -> InputError:
        """Return the same error with its source, line and column."""
        return InputError(self.problem, field=self.field, source=source, line=line, column=column)


class MachineError(HeadwayError):
    """A machine, its network or a process on it failed or lacks something."""


class PolicyError(HeadwayError):
    """A policy failed; the message names it."""


_MANY = 50


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean …?' with the closest known word, or else the known words, if few."""
    choices = sorted(known, key=_with_numbers_in_order)
    if len(choices) > _MANY:
        return f" There are {len(choices):,}, from '{choices[0]}' to '{choices[-1]}'."
    return closest(word, choices) or f" Known: {', '.join(choices)}."


def _with_numbers_in_order(word: str) -> list[object]:
    """Return a key that sorts `job-9` before `job-10`."""
    parts = re.split("([0-9]+)", word)
    return [(len(part), part) if index % 2 else part for index, part in enumerate(parts)]


def closest(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean …?' with the closest known word, or nothing if none is close."""
    near = difflib.get_close_matches(word.lower(), sorted(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


def shown(value: object, limit: int = 40) -> str:
    """Quote a value that the user gave, shortened so that a message stays on one line."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
