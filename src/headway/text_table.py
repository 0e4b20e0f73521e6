"""Tables of plain text that fit a terminal without losing a character.

A table has columns of keys (what a row is about), of figures and of text. Where it is too wide,
text wraps first, then headers, then keys; figures never do. Where that is not enough, the figures
continue in further bands below, and every band repeats the keys.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

_GAP = 2
_MIN_TEXT = 16
"""Text and keys wrap down to this width, in characters."""

_BREAK_AFTER = "+,:/@-"
"""A word that is too long is divided after one of these, if there is one."""

UNLIMITED = 10_000
"""The width of a file or a pipe."""


class _Kind(Enum):
    KEY = "key"
    FIGURE = "figure"
    TEXT = "text"


class _Column(NamedTuple):
    """The header and cells of a column; the header is its first cell."""

    kind: _Kind
    cells: list[str]

    @property
    def natural(self) -> int:
        """The width at which nothing wraps."""
        return max(map(cells_wide, self.cells))

    @property
    def unwrapped(self) -> int:
        """The width at which only the header wraps, between words."""
        header, *cells = self.cells
        return max(*map(cells_wide, header.split()), *map(cells_wide, cells), 0, 0)

    @property
    def narrowest(self) -> int:
        """The smallest width that the column should have."""
        if self.kind is _Kind.FIGURE:
            return self.unwrapped
        header = max(map(cells_wide, self.cells[0].split()), default=0)
        return max(header, min(self.natural, _MIN_TEXT))


class Line(NamedTuple):
    """A line of a table as it is printed."""

    text: str
    is_header: bool


class TextTable:
    """A table: columns of keys, then of figures, then of text."""

    def __init__(
        self, keys: Sequence[str], figures: Sequence[str] = (), texts: Sequence[str] = ()
    ) -> None:
        kinds = ((_Kind.KEY, keys), (_Kind.FIGURE, figures), (_Kind.TEXT, texts))
        self._columns = [
            _Column(kind, [printable(header)]) for kind, headers in kinds for header in headers
        ]
        self._has_header = any(column.cells[0] for column in self._columns)

    def add_row(self, *cells: str) -> None:
        """Add a row; characters that a terminal would obey are shown as escapes."""
        for column, cell in zip(self._columns, cells, strict=True):
            column.cells.append(printable(cell))

    def fits(self, width: int) -> bool:
        """Whether no column has to continue in another band."""
        return _total([column.narrowest for column in self._columns]) <= width

    def lines(self, width: int = UNLIMITED) -> list[Line]:
        """Return the table in lines of at most this many characters."""
        lines: list[Line] = []
        for band in self._bands(width):
            if lines:
                lines.append(Line("", is_header=False))
            lines += self._band_lines(band)
        return lines

    def _band_lines(self, band: Sequence[tuple[_Column, int]]) -> Iterator[Line]:
        for row in range(0 if self._has_header else 1, len(self._columns[0].cells)):
            wrapped = [wrap(column.cells[row], width) for column, width in band]
            for index in range(max(map(len, wrapped))):
                parts = [
                    _aligned(part[index] if index < len(part) else "", width, column.kind)
                    for part, (column, width) in zip(wrapped, band, strict=True)
                ]
                yield Line((" " * _GAP).join(parts).rstrip(), is_header=row == 0)

    def _bands(self, width: int) -> Iterator[list[tuple[_Column, int]]]:
        """Divide the columns into bands that fit, and decide how wide each column is."""
        columns = self._columns
        keys = [column for column in columns if column.kind is _Kind.KEY]
        keys_unwrapped = [
            column.unwrapped if column.kind is _Kind.KEY else column.narrowest for column in columns
        ]
        for smallest in (keys_unwrapped, [column.narrowest for column in columns]):
            if _total(smallest) <= width:
                yield list(zip(columns, _widened(columns, smallest, width), strict=True))
                return
        half = max(1, (width - _GAP * len(keys)) // 2)
        key_widths = [key.narrowest for key in keys]
        if _total(key_widths) > half:
            key_widths = [max(1, (half - _GAP * (len(keys) - 1)) // len(keys))] * len(keys)
        left = width - _total(key_widths) - _GAP
        band: list[_Column] = []
        widths: list[int] = []
        for column in columns[len(keys) :]:
            needed = min(column.narrowest, max(1, left))
            if band and _total([*widths, needed]) > left:
                yield self._filled(keys, key_widths, band, widths, width)
                band, widths = [], []
            band.append(column)
            widths.append(needed)
        yield self._filled(keys, key_widths, band, widths, width)

    @staticmethod
    def _filled(
        keys: list[_Column],
        key_widths: list[int],
        band: list[_Column],
        widths: list[int],
        width: int,
    ) -> list[tuple[_Column, int]]:
        columns = [*keys, *band]
        return list(zip(columns, _widened(columns, [*key_widths, *widths], width), strict=True))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _widened(columns: Sequence[_Column], widths: Sequence[int], width: int) -> list[int]:
    """Distribute the room that is left: first to keys, then to headers, then to text."""
    order = (_Kind.KEY, _Kind.FIGURE, _Kind.TEXT)
    widened, left = [*widths], width - _total(widths)
    for index in sorted(range(len(columns)), key=lambda index: order.index(columns[index].kind)):
        more = min(max(0, left), max(0, columns[index].natural - widened[index]))
        widened[index] += more
        left -= more
    return widened


def _aligned(text: str, width: int, kind: _Kind) -> str:
    room = " " * (width - cells_wide(text))
    return room + text if kind is _Kind.FIGURE else text + room


def wrap(text: str, width: int) -> list[str]:
    """Divide a text into lines between words, or within a word that is wider than a line."""
    if cells_wide(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split():
        joined = f"{line} {word}" if line else word
        if cells_wide(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        *whole, line = _pieces(word, width)
        lines += whole
    return [*lines, line]


def _pieces(word: str, width: int) -> list[str]:
    """Divide a word into pieces that fit."""
    pieces = []
    while cells_wide(word) > width:
        end = max(1, next(i for i in range(len(word) + 1) if cells_wide(word[: i + 1]) > width))
        at = max(word.rfind(letter, end // 2, end) for letter in _BREAK_AFTER)
        end = end if at < 0 else at + 1
        pieces.append(word[:end])
        word = word[end:]
    return [*pieces, word]


def cells_wide(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


def escapes_allowed() -> bool:
    """Whether terminals may get escape sequences: not if NO_COLOR is set or TERM is `dumb`."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


def printable_lines(text: str) -> str:
    """Return a text of several lines, each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def small_number(value: float) -> str:
    """Return a number with two decimals or, if it is smaller than 0.1, with two digits."""
    return f"{value:,.2f}" if value >= 0.0995 or not value else f"{value:,.2g}"


def printable(text: str) -> str:
    r"""Return a text whose control characters are written as escapes, such as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
