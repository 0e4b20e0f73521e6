"""Reads a JSON array of objects one by one in bounded memory, alone or as a member of an object."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from headway.domain.errors import InputError
from headway.workload.traces.reading import CHUNK, NOT_TEXT

LONGEST_ENTRY = 2**23
"""Characters; a job of cluster_job_log has about 1,000, or far more with many attempts."""

_NEAR_END = 32
_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of the array, and the line on which it begins."""

    source: str
    line: int
    value: dict[str, Any]

    def column(self, field: str) -> int | None:
        """Return nothing: JSON has no columns."""
        return None


def json_entries(stream: BinaryIO, source: str) -> Iterator[Entry]:
    """Yield the objects of a JSON array."""
    yield from _entries(_Window(stream, source), source)


def member_entries(stream: BinaryIO, source: str, key: str) -> Iterator[Entry]:
    """Yield the objects of the array that a JSON object has at `key`; what follows is not read."""
    text = _Window(stream, source)
    if text.next() != "{":
        raise text.error("must be a JSON object, {…}.")
    text.skip()
    while text.next() == '"':
        name = text.value()
        if text.next() != ":":
            raise text.error("a key must be followed by a colon.")
        text.skip()
        text.next()
        if name == key:
            yield from _entries(text, source)
            return
        text.value()
        if text.next() == ",":
            text.skip()
    raise text.error(f"has no '{key}'.")


def _entries(text: _Window, source: str) -> Iterator[Entry]:
    if text.next() != "[":
        raise text.error("must be a JSON array of jobs, [{…}, {…}].")
    text.skip()
    if text.next() == "]":
        return
    while True:
        if text.next() != "{":
            raise text.error("a job must be a JSON object, {…}.")
        line = text.line
        yield Entry(source, line, text.value())
        mark = text.next()
        if mark not in (",", "]"):
            raise text.error("a job must be followed by a comma or the end of the array.")
        text.skip()
        if mark == "]":
            return


class _Window:
    """The part of the text that is being read."""

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self._stream = stream
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._parser = json.JSONDecoder()
        self._text = ""
        self._position = 0
        self._ended = False
        self.line = 1

    def next(self) -> str:
        """Skip whitespace and return the next character; the end is an error."""
        while True:
            while self._position < len(self._text):
                mark = self._text[self._position]
                if mark not in _SPACE:
                    return mark
                self.line += mark == "\n"
                self._position += 1
            if not self._more():
                raise self.error("the file is truncated: the JSON array does not end.")

    def skip(self) -> None:
        """Skip one character."""
        self._position += 1

    def value(self) -> Any:
        """Return the value that begins here, and skip it."""
        while True:
            try:
                value, end = self._parser.raw_decode(self._text, self._position)
                length = end - self._position
                if end < len(self._text) or not self._more():
                    break
            except json.JSONDecodeError as error:
                self._after(error)
            except RecursionError:
                raise self.error("not valid JSON: nested too deeply.") from None
            except ValueError:
                raise self.error("not valid JSON: a number is too long.") from None
        end = self._position + length
        self.line += self._text.count("\n", self._position, end)
        self._position = end
        return value

    def _after(self, error: json.JSONDecodeError) -> None:
        """Read more if the text so far may be the start of an object."""
        open_string = error.msg.startswith("Unterminated string")
        if error.pos < len(self._text) - _NEAR_END and not open_string:
            line = self.line + self._text.count("\n", self._position, error.pos)
            raise InputError(f"not JSON: {error.msg}.", source=self._source, line=line)
        if len(self._text) - self._position > LONGEST_ENTRY:
            raise self.error(f"a job longer than {LONGEST_ENTRY:,} characters.")
        if not self._more():
            raise self.error("the file is truncated: this job does not end.")

    def _more(self) -> bool:
        """Drop the text before this position and read more; return whether there was any."""
        if self._ended:
            return False
        data = self._stream.read(CHUNK)
        if b"\x00" in data:
            raise self.error(NOT_TEXT)
        self._ended = not data
        try:
            new = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise self.error(f"not UTF-8 text: byte 0x{error.object[error.start]:02x}.") from None
        self._text = self._text[self._position :] + new
        self._position = 0
        return bool(data)

    def error(self, problem: str) -> InputError:
        """Return an error that names the line."""
        return InputError(problem, source=self._source, line=self.line)
