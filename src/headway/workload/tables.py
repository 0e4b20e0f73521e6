"""CSV tables with a header: columns, rows, and numbers with a unit."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import IO, NamedTuple, TypeVar

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import scaled
from headway.workload.text import text_lines

Value = str | int | float | None

_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class Unit:
    """The conversion of a column of a table to a field of a record."""

    field: str
    factor: float
    least: int
    most: int
    unit: str

    def convert(self, name: str, value: Value) -> int:
        """Return the value of a cell of column `name` in the record's unit."""
        if isinstance(value, str):
            if not _NUMBER.fullmatch(value):
                raise InputError(
                    f"must be a number of {self.unit}, not {shown(value)}.", field=name
                )
            number = float(value)
            return scaled(number, self.factor, name, self.least, self.most, self.unit, given=value)
        assert value is not None
        return scaled(value, self.factor, name, self.least, self.most, self.unit)


class Wording(NamedTuple):
    """The ends of error messages about a kind of table."""

    not_text: str
    too_long: str
    header: str
    """A header that would be right."""


def check_names(
    names: list[str], known: Collection[str], header: str, *, others: bool = False
) -> None:
    """Refuse duplicate columns, and unknown ones unless there may be `others`.

    `header` is one that would be right.
    """
    for separator, word in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and names[0].count(separator) > 1:
            raise InputError(f"columns must be separated by commas, not {word}.")
    if not any(name in known for name in names):
        raise InputError(f"none of its columns is known; the header must be like {header}.")
    for index, name in enumerate(names):
        if not name:
            raise InputError("the column has no name.", field=name)
        if name not in known and not others:
            raise InputError(
                f"unknown column {shown(name)}.{did_you_mean(name, known)}", field=name
            )
        if name in names[:index]:
            raise InputError(f"duplicate column '{name}'.", field=name)


_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A CSV file that is being read."""

    source: str
    wording: Wording
    check_header: Callable[[list[str]], None]
    rename: Callable[[str], str] = str.strip
    """From a column's name in the file to the one it is known by."""

    def rows(
        self, stream: IO[bytes], make_row: Callable[[Mapping[str, Value]], _Row]
    ) -> tuple[list[_Row], list[int], list[str]]:
        """Return what each row is made into, the lines of the rows, and the header.

        Errors name the file, the line and the column.
        """
        lines = text_lines(stream, self.source, self.wording.not_text, self.wording.too_long)
        reader = csv.reader(lines, strict=True)
        rows: list[_Row] = []
        numbers: list[int] = []
        header: list[str] | None = None
        try:
            for fields in reader:
                if not any(field.strip() for field in fields):
                    continue
                if header is None:
                    header = self._header([self.rename(field) for field in fields], reader.line_num)
                else:
                    rows.append(self._row(header, fields, reader.line_num, make_row))
                    numbers.append(reader.line_num)
        except csv.Error as error:
            unclosed = "end of data" in str(error)
            problem = "a quotation mark is not closed" if unclosed else str(error)
            raise InputError(
                f"not CSV: {problem}.", source=self.source, line=reader.line_num
            ) from None
        if header is None:
            raise InputError(
                f"the file is empty; it must begin with a header such as {self.wording.header}.",
                source=self.source,
            )
        return rows, numbers, header

    def _header(self, names: list[str], line: int) -> list[str]:
        try:
            self.check_header(names)
        except InputError as error:
            column = len(names) - names[::-1].index(error.field) if error.field in names else None
            raise InputError(error.problem, source=self.source, line=line, column=column) from None
        return names

    def _row(
        self,
        header: list[str],
        fields: list[str],
        line: int,
        make_row: Callable[[Mapping[str, Value]], _Row],
    ) -> _Row:
        if len(fields) != len(header):
            raise InputError(
                f"{len(fields)} fields, but the header has {len(header)} columns.",
                source=self.source,
                line=line,
                column=min(len(fields), len(header)) + 1,
            )
        try:
            return make_row(dict(zip(header, fields, strict=True)))
        except InputError as error:
            column = header.index(error.field) + 1 if error.field in header else None
            raise error.at(self.source, line, column) from None
