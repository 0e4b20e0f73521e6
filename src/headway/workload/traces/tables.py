"""Reads tables of a trace: rows of separated values, and the values in them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import BinaryIO

from headway.domain.errors import InputError, shown
from headway.domain.limits import LONGEST_NS, MAX_GPUS, MAX_ITERATIONS, number_from
from headway.workload.traces.reading import open_trace, source_name, trace_lines
from headway.workload.traces.records import SECOND_NS, Reason, RowLog, UnusableError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MISSING = frozenset({"", "none", "null", "nan", "na"})


@dataclass(frozen=True, slots=True)
class Table:
    """A file and the positions of its columns."""

    source: str
    positions: dict[str, int]


class Row:
    """A row of a table, with access to its values by column name.

    `number` counts the rows of all files so far, including headers.
    """

    __slots__ = ("fields", "line", "number", "table")

    def __init__(self, table: Table, line: int, fields: list[str], number: int) -> None:
        self.table = table
        self.line = line
        self.fields = fields
        self.number = number

    @property
    def source(self) -> str:
        """The file."""
        return self.table.source

    def column(self, field: str) -> int | None:
        """Return the number of a column, from 1, if the table has it."""
        position = self.table.positions.get(field)
        return None if position is None else position + 1

    def text(self, name: str) -> str:
        """Return a value as text."""
        return self.fields[self.table.positions[name]].strip()

    def missing(self, name: str) -> bool:
        """Return whether a value is missing: no such column, or an empty field."""
        position = self.table.positions.get(name)
        return position is None or self.fields[position].strip().lower() in _MISSING

    def label(self, name: str) -> str:
        """Return a non-empty text."""
        text = self.text(name)
        if not text:
            raise UnusableError(Reason.UNREADABLE, "must not be empty.", name)
        return text

    def figure(self, name: str) -> float:
        """Return a finite number."""
        text = self.text(name)
        try:
            value = number_from(text.strip())
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UnusableError(Reason.UNREADABLE, f"must be a number, not {shown(text)}.", name)
        return value

    def whole(self, name: str, most: int = MAX_ITERATIONS) -> int:
        """Return a whole number of at most `most`; 8.0 counts as whole."""
        value = self.figure(name)
        if not value.is_integer() or value > most:
            raise UnusableError(
                Reason.UNREADABLE,
                f"must be a whole number of at most {most:,}, not {shown(self.text(name))}.",
                name,
            )
        return int(value)

    def gpus(self, name: str) -> int:
        """Return a number of GPUs, 0 for an empty field."""
        return 0 if self.missing(name) else self.whole(name, MAX_GPUS)

    def time_ns(self, name: str, unit_ns: int = SECOND_NS) -> int:
        """Return a time given as a number, in ns."""
        value = self.figure(name)
        if value < 0:
            raise UnusableError(
                Reason.NEGATIVE, f"must be 0 or more, not {shown(self.text(name))}.", name
            )
        if value > LONGEST_NS / unit_ns:
            raise UnusableError(
                Reason.UNREADABLE,
                f"must be at most {LONGEST_NS // unit_ns:,}, not {shown(self.text(name))}.",
                name,
            )
        return round(value * unit_ns)

    def date_ns(self, name: str) -> int:
        """Return a date and time in ns since 1970; UTC unless it names a zone."""
        return date_ns(self.text(name), name)


def date_ns(text: str, name: str) -> int:
    """Return a date and time such as 2017-10-07 01:12:09 in ns since 1970."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MICROSECOND * 1000
    except (ValueError, OverflowError):
        raise UnusableError(
            Reason.UNREADABLE,
            f"must be a time such as 2017-10-07 01:12:09, not {shown(text)}.",
            name,
        ) from None


def headed_rows(files: Sequence[str], log: RowLog, required: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of CSV files with a header; other columns are ignored."""
    for path in files:
        rows = raw_rows(path, log)
        first = next(rows, None)
        if first is None:
            raise InputError(
                f"the file is empty; it must begin with a header with {', '.join(required)}.",
                source=source_name(path),
            )
        yield from under_header(first, rows, log, required)


def under_header(
    first: Row, rows: Iterator[Row], log: RowLog, required: Sequence[str]
) -> Iterator[Row]:
    """Check a header, and yield the rows below it."""
    header = [field.strip() for field in first.fields]
    missing = [name for name in required if name not in header]
    if missing:
        raise InputError(
            f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}.",
            source=first.source,
            line=first.line,
        )
    for name in required:
        if header.count(name) > 1:
            raise InputError(
                f"duplicate column '{name}'.",
                source=first.source,
                line=first.line,
                column=len(header) - header[::-1].index(name),
            )
    yield from named_rows(rows, log, header)


def named_rows(rows: Iterator[Row], log: RowLog, header: Sequence[str]) -> Iterator[Row]:
    """Yield rows with these columns; rows of another length are left out."""
    positions = {name: position for position, name in enumerate(header)}
    table: Table | None = None
    for row in rows:
        if table is None:
            table = Table(row.source, positions)
        row.table = table
        if len(row.fields) == len(header):
            yield row
        else:
            problem = f"{len(row.fields)} fields, but there are {len(header)} columns."
            log.drop(row, UnusableError(Reason.FIELDS, problem))


def raw_rows(path: str, log: RowLog, delimiter: str = ",") -> Iterator[Row]:
    """Yield every row of a file that is not blank."""
    with open_trace(path, log) as stream:
        yield from rows_of(stream, source_name(path), log, delimiter)


def rows_of(stream: BinaryIO, source: str, log: RowLog, delimiter: str = ",") -> Iterator[Row]:
    """Yield every row of an open trace that is not blank; only commas have quoting."""
    table = Table(source, {})
    lines = trace_lines(stream, source)
    if delimiter == ",":
        reader = csv.reader(lines, strict=True)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
    try:
        for fields in reader:
            if any(fields) and any(map(str.strip, fields)):
                log.rows += 1
                yield Row(table, reader.line_num, fields, log.rows)
    except csv.Error as error:
        raise InputError(f"not CSV: {error}.", source=source, line=reader.line_num) from None
