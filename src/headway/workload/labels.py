"""Labels: the columns of a workload's table that Headway does not know."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from headway.domain.job import MAX_LABEL, Label
from headway.domain.limits import number_from, whole_from
from headway.workload.tables import Value


class Labels:
    """The labels of a table's jobs while it is read, row by row.

    A column of a text file is of numbers if all that is in it are finite numbers. Those that
    policies could not see exactly stay texts, and so do names such as 007.
    """

    def __init__(self, known: Collection[str]) -> None:
        """Keep the columns that are not among the known ones."""
        self._known = known
        self._names: list[str] | None = None
        self._rows: list[dict[str, Label]] = []

    def of_row(self, row: Mapping[str, Value], present: Mapping[str, Value]) -> dict[str, Label]:
        """Return the labels of a row, of which `present` are the cells that are not empty."""
        if self._names is None:
            self._names = [name for name in row if name not in self._known]
        found: dict[str, Label] = {}
        for name in self._names:
            value = present.get(name)
            if value is not None:
                found[name] = value
        if found:
            self._rows.append(found)
        return found

    def read_numbers(self) -> None:
        """Make numbers of the texts in columns of numbers, once all rows have been read."""
        for name in self._names or ():
            rows = [row for row in self._rows if name in row]
            try:
                numbers = [_number(row[name]) for row in rows]
            except ValueError:
                continue
            for row, number in zip(rows, numbers, strict=True):
                row[name] = number


def _number(value: Label) -> int | float:
    """Return the number that a text is.

    Raises:
        ValueError: It is none, or not a finite one, or not exactly one that policies can see.
    """
    if not isinstance(value, str):
        return value
    digits = value.lstrip("+-")
    if digits.isdecimal():
        number = whole_from(value)
        if abs(number) > MAX_LABEL or (len(digits) > 1 and digits[0] == "0"):
            raise ValueError(value)
        return number
    if not math.isfinite(fraction := number_from(value)):
        raise ValueError(value)
    return fraction
