"""Finds where every key and value of a TOML document begins.

Parsers return values without positions. This scanner reads a text that `tomllib` has accepted, so
it only has to recognize tokens, not to check them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of the document: `("cluster", "group", 0, "servers")`."""


class Position(NamedTuple):
    """A line and a column, both counted from 1."""

    line: int
    column: int


class Positions:
    """The positions in one document.

    A key's position is that of its last part, in a header as in a pair: `racks` in
    `[cluster.racks]`. Inside quotes it is the first character after the quote.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._keys, self._values = _Scanner(text).scan()

    def of(self, path: KeyPath) -> Position | None:
        """Return where a key or list item is, or the nearest table or list around it."""
        while path:
            offset = self._keys.get(path, self._values.get(path))
            if offset is not None:
                return self._position(offset)
            path = path[:-1]
        return None

    def of_value(self, path: KeyPath) -> Position | None:
        """Return where the value of a key is, or the key if its value is a table."""
        offset = self._values.get(path)
        return self.of(path) if offset is None else self._position(offset)

    def _position(self, offset: int) -> Position:
        start = self._text.rfind("\n", 0, offset) + 1
        return Position(self._text.count("\n", 0, offset) + 1, offset - start + 1)


_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_BARE_KEY = re.compile(r"[\w-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")
_STRINGS = {
    '"""': re.compile(r'"""(?:\\[\s\S]|[^\\])*?"{3,5}'),
    "'''": re.compile(r"'''[\s\S]*?'{3,5}"),
    '"': re.compile(r'"(?:\\.|[^"\\])*"'),
    "'": re.compile(r"'[^']*'"),
}
"""Opening quotes to the whole string; a multi-line string may end with two quotes of its own."""


class _Scanner:
    """One pass over the text, which collects the offsets of keys and values."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._keys: dict[KeyPath, int] = {}
        self._values: dict[KeyPath, int] = {}
        self._lengths: dict[KeyPath, int] = {}
        """Arrays of tables to the number of their tables so far."""

    def scan(self) -> tuple[dict[KeyPath, int], dict[KeyPath, int]]:
        """Return the offsets of keys and of values, by path."""
        table: KeyPath = ()
        while self._next():
            if self._next() == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._keys, self._values

    def _next(self) -> str:
        """Return the next character that is not blank, or '' at the end."""
        match = _BLANK.match(self._text, self._at)
        self._at = self._at if match is None else match.end()
        return self._text[self._at : self._at + 1]

    def _header(self) -> KeyPath:
        """Read `[a.b]` or `[[a.b]]`; return the path of the table that begins."""
        brackets = 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        path: KeyPath = ()
        offset = self._at
        for name, offset in self._dotted_key():
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
            path = (*path, name)
            self._keys.setdefault(path, offset)
        if brackets == 2:
            index = self._lengths.get(path, 0)
            self._lengths[path] = index + 1
            path = (*path, index)
        # Over the header of a table inside this one, which may have come first.
        self._keys[path] = offset
        self._next()
        self._at += brackets
        return path

    def _pair(self, table: KeyPath) -> None:
        """Read `a.b = value`."""
        path = table
        for name, offset in self._dotted_key():
            path = (*path, name)
            self._keys.setdefault(path, offset)
        self._next()
        self._at += 1
        self._value(path)

    def _dotted_key(self) -> Iterator[tuple[str, int]]:
        """Read a key; yield each of its parts and where it begins."""
        while True:
            quote = self._next()
            if quote in _STRINGS:
                match = _STRINGS[quote].match(self._text, self._at)
            else:
                match = _BARE_KEY.match(self._text, self._at)
            assert match is not None, "tomllib has accepted this text"
            self._at = match.end()
            if quote in _STRINGS:
                yield tomllib.loads(f"key = {match[0]}")["key"], match.start() + 1
            else:
                yield match[0], match.start()
            if self._next() != ".":
                return
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        opening = self._next()
        self._values[path] = self._at
        if opening == "[":
            self._at += 1
            index = 0
            while (character := self._next()) != "]":
                if character == ",":
                    self._at += 1
                else:
                    self._value((*path, index))
                    index += 1
            self._at += 1
        elif opening == "{":
            self._at += 1
            while (character := self._next()) != "}":
                if character == ",":
                    self._at += 1
                else:
                    self._pair(path)
            self._at += 1
        else:
            self._scalar(path)

    def _scalar(self, path: KeyPath) -> None:
        quotes = next((one for one in _STRINGS if self._text.startswith(one, self._at)), "")
        self._values[path] += len(quotes)
        match = _STRINGS.get(quotes, _SCALAR).match(self._text, self._at)
        assert match is not None, "tomllib has accepted this text"
        self._at = match.end()
