"""Writes TOML tables of strings, numbers, booleans, lists, lists of lists and inline tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

Scalar = str | int | float | bool
Row = Sequence[Scalar]
Value = Scalar | Row | Sequence[Row] | Sequence[Mapping[str, Scalar]]

LARGEST_FILE_BYTES = 2**20
"""The largest file that is read."""

_WIDEST = 100
"""Longest list in one line, in columns; a longer one has a line for each item."""

_SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def table(name: str, values: Mapping[str, Value], inside: str | None = None) -> str:
    """Return the table [name], or [inside.name]."""
    return f"[{_path(name, inside)}]\n{lines(values)}"


def tables(name: str, members: Iterable[Mapping[str, Value]], inside: str | None = None) -> str:
    """Return the tables [[name]], or [[inside.name]], with an empty line between them."""
    return "\n".join(f"[[{_path(name, inside)}]]\n{lines(values)}" for values in members)


def lines(values: Mapping[str, Value]) -> str:
    """Return a line for each key, for the top of a document."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in values.items())


def _path(name: str, inside: str | None) -> str:
    return _key(name) if inside is None else f"{_key(inside)}.{_key(name)}"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


def _value(value: Value | Mapping[str, Scalar]) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        members = [f"{_key(key)} = {_value(one)}" for key, one in value.items()]
        return f"{{{', '.join(members)}}}"
    members = [_value(one) for one in value]
    line = f"[{', '.join(members)}]"
    if len(line) <= _WIDEST:
        return line
    return "[\n" + "".join(f"    {one},\n" for one in members) + "]"


def _number(value: float) -> str:
    """Return the shortest text that reads back as the same number."""
    if math.isnan(value) or math.isinf(value):
        return str(value)
    text = repr(value)
    return text if "." in text or "e" in text else f"{text}.0"


def _string(text: str) -> str:
    """Quote a text; a lone surrogate, which TOML cannot represent, becomes a question mark."""
    clean = text.encode(errors="replace").decode()
    return '"' + "".join(_SHORT.get(char) or _plain(char) for char in clean) + '"'


def _plain(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x20 or ord(char) == 0x7F else char
