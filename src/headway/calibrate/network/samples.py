"""Samples of a measurement, one for each group of each shot, and their CSV files."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import LONGEST_NS, MAX_BYTES, whole
from headway.files import STANDARD, open_input, open_output
from headway.workload.text import text_lines

MAX_GROUPS = 1024
"""The largest k."""

MAX_SAMPLES = 10**6
_MAX_SHOT = 2**53


@dataclass(frozen=True, slots=True)
class Sample:
    """The time of one group's all-reduce in one shot.

    In a shot, k groups all-reduce messages of the same size at the same time. The time of the shot
    is that of the group that ends last: shares are unequal, and a mean would hide the cost of
    sharing.
    """

    shot: int
    k: int
    message_bytes: int
    group: int
    time_ns: int

    def __post_init__(self) -> None:
        whole(self.shot, "shot", 0, _MAX_SHOT)
        whole(self.k, "k", 1, MAX_GROUPS)
        whole(self.message_bytes, "message_bytes", 1, MAX_BYTES)
        whole(self.group, "group", 0, MAX_GROUPS - 1)
        whole(self.time_ns, "time_ns", 1, LONGEST_NS)


COLUMNS = tuple(field.name for field in fields(Sample))
_REQUIRED = ("k", "message_bytes", "time_ns")


@dataclass(frozen=True, slots=True)
class Shot:
    """One measurement: k concurrent all-reduces of one size, and the time until the last ended."""

    number: int
    k: int
    message_bytes: int
    time_ns: int


def shots(samples: Iterable[Sample]) -> list[Shot]:
    """Return the shots in order; the time of each is the longest of its groups' times."""
    found: dict[int, Shot] = {}
    for sample in samples:
        known = found.get(sample.shot)
        if known is None or sample.time_ns > known.time_ns:
            found[sample.shot] = Shot(sample.shot, sample.k, sample.message_bytes, sample.time_ns)
    return [found[number] for number in sorted(found)]


def write_samples(path: str | os.PathLike[str], samples: Iterable[Sample]) -> None:
    """Write samples as CSV, or to standard output for `-`."""
    with open_output(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(astuple(sample) for sample in samples)
        text.detach()


def read_samples(path: str | os.PathLike[str]) -> list[Sample]:
    """Read samples from CSV, or from standard input for `-`.

    Without a column `shot` each row is a shot of its own; without `group` the rows of a shot are
    numbered.
    """
    source = "standard input" if os.fspath(path) == STANDARD else os.fspath(path)
    with open_input(path) as stream:
        lines = text_lines(
            stream, source, "not a text file; samples are CSV.", "lines of samples are short."
        )
        reader = csv.reader(lines, strict=True)
        try:
            return _samples(source, ((reader.line_num, row) for row in reader))
        except csv.Error as error:
            raise InputError(f"not CSV: {error}.", source=source, line=reader.line_num) from None


def _samples(source: str, rows: Iterator[tuple[int, list[str]]]) -> list[Sample]:
    header: list[str] | None = None
    samples: list[Sample] = []
    together = _Together()
    for line, row in rows:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if header is None:
            header = cells
            _check_header(header, source, line)
            continue
        if len(samples) == MAX_SAMPLES:
            raise InputError(f"more than {MAX_SAMPLES:,} samples.", source=source, line=line)
        try:
            sample = _sample(header, cells, len(samples), together)
        except InputError as error:
            column = header.index(error.field) + 1 if error.field in header else error.column
            raise error.at(source, line, column) from None
        samples.append(sample)
    if header is None:
        raise InputError(
            f"the file is empty; it must begin with the header {','.join(COLUMNS)}.", source=source
        )
    if not samples:
        raise InputError("there are no samples after the header.", source=source)
    return samples


def _check_header(names: Sequence[str], source: str, line: int) -> None:
    for index, name in enumerate(names):
        problem = None
        if name not in COLUMNS:
            problem = f"unknown column {shown(name)}.{did_you_mean(name, COLUMNS)}"
        elif name in names[:index]:
            problem = f"duplicate column '{name}'."
        if problem:
            raise InputError(problem, source=source, line=line, column=index + 1)
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        raise InputError(
            f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}.",
            source=source,
            line=line,
        )


class _Together:
    """The groups of each shot so far, which must agree."""

    def __init__(self) -> None:
        self._first: dict[int, Sample] = {}
        self._groups: dict[int, set[int]] = {}

    def next_group(self, shot: int) -> int:
        return len(self._groups.get(shot, ()))

    def add(self, sample: Sample) -> None:
        first = self._first.setdefault(sample.shot, sample)
        groups = self._groups.setdefault(sample.shot, set())
        for name in ("k", "message_bytes"):
            if getattr(sample, name) != getattr(first, name):
                raise InputError(
                    f"must be {getattr(first, name)} as in the first row of shot {sample.shot}, "
                    f"not {getattr(sample, name)}.",
                    field=name,
                )
        if sample.group in groups:
            raise InputError(f"duplicate group in shot {sample.shot}.", field="group")
        if len(groups) == sample.k:
            raise InputError(
                f"shot {sample.shot} has k = {sample.k}, so at most {sample.k} rows.", field="shot"
            )
        groups.add(sample.group)


def _sample(
    header: Sequence[str], cells: Sequence[str], number: int, together: _Together
) -> Sample:
    if len(cells) != len(header):
        raise InputError(
            f"{len(cells)} fields, but the header has {len(header)} columns.",
            column=min(len(cells), len(header)) + 1,
        )
    row = dict(zip(header, cells, strict=True))
    values = {name: _whole(row, name) for name in header}
    if "shot" not in values:
        values |= {"shot": number, "group": 0}
    elif "group" not in values:
        # `add` tells too many rows from a group out of bounds.
        values["group"] = min(together.next_group(values["shot"]), MAX_GROUPS - 1)
    sample = Sample(**values)
    together.add(sample)
    return sample


def _whole(row: Mapping[str, str], name: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", row[name]):
        raise InputError(f"must be a whole number, not {shown(row[name])}.", field=name)
    return int(row[name])
