"""A TOML document whose errors name the file, line and column."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from headway.configuration.conversion import Converted, Mismatch, convert
from headway.configuration.positions import KeyPath, Positions
from headway.domain.errors import InputError
from headway.files import open_input
from headway.toml_text import LARGEST_FILE_BYTES


class Document:
    """The content of a TOML file, or of a mapping from Python, which has no text or source."""

    def __init__(
        self, content: Mapping[str, Any], text: str = "", source: str | None = None
    ) -> None:
        self.content = content
        self.text = text
        self.source = source

    @classmethod
    def read(cls, path: str) -> Document:
        """Read a file of at most 1 MiB."""
        with open_input(path) as stream:
            data = stream.read(LARGEST_FILE_BYTES + 1)
        if len(data) > LARGEST_FILE_BYTES:
            raise InputError(f"larger than {LARGEST_FILE_BYTES:,} bytes.", source=path)
        try:
            text = data.decode("utf-8-sig")
            return cls(tomllib.loads(text), text, path)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise InputError("not UTF-8 text.", source=path, line=line) from None
        except tomllib.TOMLDecodeError as error:
            raise _syntax_error(error, path) from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"cannot be parsed as TOML: {error}.", source=path) from None

    def convert(self, kind: type[Converted], *path: str) -> Converted:
        """Return the document, or the part of it at a path, as a value of a type."""
        content: Any = self.content
        for key in path:
            content = content[key]
        try:
            return convert(content, kind, path)
        except Mismatch as found:
            if found.is_key:
                raise self.error(found.problem, *found.path) from None
            position = self._position(found.path)
            raise InputError(found.problem).at(self.source, *position) from None

    def error(self, problem: str, *path: str | int) -> InputError:
        """Return an error about a key or list item."""
        field = next((step for step in reversed(path) if isinstance(step, str)), None)
        return InputError(problem, field=field).at(self.source, *self._position(path))

    def error_in_value(self, problem: str, *path: str | int) -> InputError:
        """Return an error about the value of a key, whose position it names."""
        position = self._positions.of_value(path) or (None, None)
        return InputError(problem, field=str(path[-1])).at(self.source, *position)

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Place errors raised inside at the table at `path`, or at the key that they name."""
        try:
            yield
        except InputError as error:
            if error.source is not None:
                raise
            where = path if error.field is None else (*path, error.field)
            raise error.at(self.source, *self._position(where)) from None

    def _position(self, path: KeyPath) -> tuple[int | None, int | None]:
        return self._positions.of(path) or (None, None)

    @cached_property
    def _positions(self) -> Positions:
        return Positions(self.text)


def _syntax_error(error: tomllib.TOMLDecodeError, path: str) -> InputError:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(error))
    if match is None or match[2] is None:
        return InputError(f"not TOML: {match[1] if match else error}.", source=path)
    return InputError(
        f"not TOML: {match[1]}.", source=path, line=int(match[2]), column=int(match[3])
    )
