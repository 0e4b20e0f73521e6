"""Slurm's configuration files: lines of `Key=Value Key=Value`, keys in any case, `#` comments.

A line `Include FILE` has the key `include`; the caller reads that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from headway.domain.errors import InputError, shown

_INCLUDE = re.compile(r"\s*(include)\s+(\S+)$", re.IGNORECASE)
_PAIR = re.compile(r"([A-Za-z]\w*)\s*=\s*(\"[^\"]*\"|\S*)")


class ConfLine(msgspec.Struct, frozen=True):
    """A line: its first key and that key's value, all values by lower-case key, and where it is."""

    key: str
    name: str
    values: dict[str, str]
    columns: dict[str, int]
    source: str
    line: int

    def error(self, problem: str, key: str = "") -> InputError:
        """Return an error about this line, or about one of its keys."""
        column = self.columns.get(key or self.key)
        return InputError(problem, source=self.source, line=self.line, column=column)


def conf_lines(text: str, source: str) -> Iterator[ConfLine]:
    """Yield the lines with content; one that ends with a backslash continues in the next."""
    number = 0
    lines = iter(text.splitlines())
    for raw in lines:
        number += 1
        first, line = number, raw
        while line.endswith("\\"):
            number += 1
            line = f"{line[:-1]} {next(lines, '')}"
        line = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if line.strip():
            yield _parsed(line, source, first)


def _parsed(line: str, source: str, number: int) -> ConfLine:
    if included := _INCLUDE.match(line):
        column = included.start(1) + 1
        return ConfLine("include", included[2], {}, {"include": column}, source, number)
    values: dict[str, str] = {}
    columns: dict[str, int] = {}
    position = 0
    while position < len(line):
        if line[position].isspace():
            position += 1
            continue
        found = _PAIR.match(line, position)
        if found is None:
            raise InputError(
                f"must be Key=Value, not {shown(line[position:])}.",
                source=source,
                line=number,
                column=position + 1,
            )
        key = found[1].lower()
        values[key], columns[key] = found[2].strip('"'), position + 1
        position = found.end()
    first = next(iter(values))
    return ConfLine(first, values[first], values, columns, source, number)
