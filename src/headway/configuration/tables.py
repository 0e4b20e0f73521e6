"""The tables of a TOML file, and where in the file each of them and its keys stand."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from headway.domain.errors import InputError, did_you_mean, shown
from headway.files import open_input

LARGEST_FILE = 2**20

TABLES = ("cluster", "network", "gpu", "profile", "calibration", "model")
"""What a file may hold; [calibration] says how the rest was measured and is not read."""

Place = tuple[int | None, int | None]
"""Line and column."""


def read_toml(path: str) -> tuple[dict[str, Any], str]:
    """Return what a TOML file holds, and its text."""
    with open_input(path) as stream:
        data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise InputError(f"larger than {LARGEST_FILE:,} bytes.", source=path)
    try:
        text = data.decode()
        return tomllib.loads(text), text
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("not UTF-8 text.", source=path, line=line) from None
    except tomllib.TOMLDecodeError as error:
        raise _toml_error(error, path) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not TOML that can be read: {error}.", source=path) from None


class Tables:
    """A TOML file that has been read; its tables are yet to be checked."""

    def __init__(self, path: str, known: Collection[str] = TABLES) -> None:
        self.path = path
        self.document, self.text = read_toml(path)
        for key in self.document:
            if key not in known:
                raise InputError(f"unknown table or key.{did_you_mean(key, known)}", field=key).at(
                    path, *self.locate_top(key)
                )

    def table(self, name: str, keys: Collection[str]) -> dict[str, Any]:
        """Return the table [name], which must be there, with no other keys than these."""
        table = self.document.get(name)
        if not isinstance(table, dict):
            raise InputError(f"there is no table [{name}].", source=self.path)
        with self.at(name):
            check_keys(table, keys)
        return dict(table)

    @contextmanager
    def at(self, *names: str, index: int = 0) -> Iterator[None]:
        """Give errors from inside the place of the table [names], the index-th of its name."""
        try:
            yield
        except InputError as error:
            if error.source is not None:
                raise
            place = self.locate(names, index, error.field)
            raise error.at(self.path, *place) from None

    def locate(self, names: tuple[str, ...], index: int, key: str | None) -> Place:
        """Return the line and column of a key of a table, or without a key of the table."""
        wanted = list(names)
        found, inside, count = False, False, -1
        for number, line in enumerate(self.text.splitlines(), 1):
            header = _header(line)
            if header is not None:
                same = header[0] == wanted
                count += same
                inside = same and count == index
                found = found or inside
                if inside and key is None:
                    return number, header[1]
            elif inside and key is not None and (column := _column(line, key)):
                return number, column
        if not found and len(names) > 1:
            return self.locate(names[:-1], 0, names[-1])
        return None, None

    def locate_top(self, key: str) -> Place:
        """Return the line and column of a table or key of the file."""
        inside = False
        for number, line in enumerate(self.text.splitlines(), 1):
            header = _header(line)
            if header is not None:
                inside = True
                if header[0][0] == key:
                    return number, header[1]
            elif not inside and (column := _column(line, key)):
                return number, column
        return None, None


def check_keys(table: dict[str, Any], keys: Collection[str], needed: Collection[str] = ()) -> None:
    """Refuse keys that are unknown or missing."""
    for key in table:
        if key not in keys:
            raise InputError(f"unknown key.{did_you_mean(key, keys)}", field=key)
    for key in needed:
        if key not in table:
            raise InputError(f"'{key}' is missing.")


def array_of_tables(value: object, name: str) -> list[dict[str, Any]]:
    """Return the tables [[name]]; `name` ends with the key that is at fault if there are none."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return value
    key = name.rpartition(".")[2]
    raise InputError(f"must be tables [[{name}]], not {shown(value)}.", field=key)


def _header(line: str) -> tuple[list[str], int] | None:
    """Return the names of a table's header and the column at which they begin."""
    match = re.match(r"\s*\[\[?\s*([^\[\]#]+?)\s*\]", line)
    if match is None:
        return None
    return [name.strip().strip("\"'") for name in match[1].split(".")], match.start(1) + 1


def _column(line: str, key: str) -> int | None:
    """Return the column of a key that the line gives a value."""
    match = re.match(rf"\s*[\"']?({re.escape(key)})[\"']?\s*[.=]", line)
    return None if match is None else match.start(1) + 1


def _toml_error(error: tomllib.TOMLDecodeError, path: str) -> InputError:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
    if match is None or match[2] is None:
        return InputError(f"not TOML: {match[1] if match else error}.", source=path)
    return InputError(
        f"not TOML: {match[1]}.", source=path, line=int(match[2]), column=int(match[3])
    )
