"""The exceptions that Headway raises.

HeadwayError
├── InputError    a file, an option or an argument is invalid
│   └── OutOfTimeError  a simulation passes the last instant
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

    `field` is the column or key at fault, and `job_id` the job, if it is a job of a workload. The
    file's reader adds source, line and column.
    """

    def __init__(
        self,
        problem: str,
        *,
        field: str | None = None,
        source: str | None = None,
        line: int | None = None,
        column: int | None = None,
        job_id: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.field = field
        self.source = source
        self.line = line
        self.column = column
        self.job_id = job_id

    def __str__(self) -> str:
        where = [] if self.source is None else [_shortened(printable(self.source))]
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


class OutOfTimeError(InputError):
    """A simulation passes the last instant."""


class MachineError(HeadwayError):
    """A machine, its network or a process on it failed or lacks something."""


class PolicyError(HeadwayError):
    """A policy failed; the message names it."""


_MANY = 50
_LONG_SOURCE = 500


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean …?' with the closest known word, or else the known words, if few."""
    choices = [printable(choice) for choice in sorted(known, key=_with_numbers_in_order)]
    if len(choices) > _MANY:
        return f" There are {len(choices):,}, from '{choices[0]}' to '{choices[-1]}'."
    return closest(word, choices) or f" Known: {', '.join(choices)}."


def _with_numbers_in_order(word: str) -> list[object]:
    """Return a key that sorts `job-9` before `job-10`."""
    parts = re.split("([0-9]+)", word)
    return [(len(part), part) if index % 2 else part for index, part in enumerate(parts)]


def closest(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return ' Did you mean …?' with the closest known word, or nothing if none is this close."""
    near = difflib.get_close_matches(word.lower(), sorted(known), n=1, cutoff=likeness)
    return f" Did you mean '{printable(near[0])}'?" if near else ""


def _shortened(source: str) -> str:
    """Return a path, without its middle if it is very long."""
    half = _LONG_SOURCE // 2
    return source if len(source) <= _LONG_SOURCE else f"{source[:half]}…{source[-half:]}"


def shown(value: object, limit: int = 40) -> str:
    """Quote a value that the user gave, shortened so that a message stays on one line."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
