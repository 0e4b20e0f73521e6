"""What can go wrong, as a small family.

HeadwayError
├── InputError    a file, a flag or an argument is not what it must be
├── MachineError  a machine or its network lacks something, or a process on it failed
└── PolicyError   a policy does not compile, or answered something impossible during a run
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HeadwayError(Exception):
    """Anything Headway reports on purpose; the command line prints it and exits with 2."""


class InputError(HeadwayError):
    """Says what is wrong, where, and what would be right.

    `field` names the column or key at fault; the reader that knows it adds source, line and column.
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
        place = [] if self.source is None else [self.source]
        if self.line is not None:
            place.append(f"line {self.line}")
        if self.column is not None:
            place.append(f"column {self.column}" + (f" ({self.field})" if self.field else ""))
        elif self.field is not None:
            place.append(self.field)
        return f"{', '.join(place)}: {self.problem}" if place else self.problem

    def at(
        self, source: str | None, line: int | None = None, column: int | None = None
    ) -> InputError:
        """Return the same error with its place."""
        return InputError(self.problem, field=self.field, source=source, line=line, column=column)


class MachineError(HeadwayError):
    """A machine, its network or a process on it is not as it must be."""


class PolicyError(HeadwayError):
    """A policy failed; the message names it."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ' Did you mean …?' for the nearest known word, else the list of known words."""
    choices = sorted(known)
    near = difflib.get_close_matches(word.lower(), choices, n=1)
    return f" Did you mean '{near[0]}'?" if near else f" Known: {', '.join(choices)}."


def shown(value: object, limit: int = 40) -> str:
    """Quote what the user gave, cut short so that a message stays one line."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
