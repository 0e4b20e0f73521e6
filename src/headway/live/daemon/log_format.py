"""The log of a live scheduler: one JSON line a decision, so that a run can be repeated.

The first line says what decides; every other holds an event and the instructions that it gave.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, TypeVar

import msgspec

from headway.domain.errors import InputError
from headway.files import STANDARD, open_input
from headway.live.core.events import AnyEvent, AnyInstruction
from headway.network.contention import NetworkModel
from headway.version import __version__

FORMAT = 2
LONGEST_LINE = 2**24
"""Bytes; a line has some hundreds, but a job's environment may be long."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a `Core` was made from; `headway_log` is the number of the format."""

    headway_log: int
    version: str
    policy: str
    network: NetworkModel
    seed: int


class Entry(msgspec.Struct, frozen=True):
    """An event and what the core answered."""

    event: AnyEvent
    instructions: list[AnyInstruction]


_Line = TypeVar("_Line")

_encoder = msgspec.json.Encoder()
_header = msgspec.json.Decoder(Header)
_entry = msgspec.json.Decoder(Entry)


def first_line(policy: str, network: NetworkModel, seed: int) -> bytes:
    """Return the line that a log begins with."""
    header = Header(
        headway_log=FORMAT, version=__version__, policy=policy, network=network, seed=seed
    )
    return _encoder.encode(header) + b"\n"


def next_line(event: AnyEvent, instructions: Sequence[AnyInstruction]) -> bytes:
    """Return the line of an event that a core has handled."""
    return _encoder.encode(Entry(event, list(instructions))) + b"\n"


class LogReader:
    """Reads a log line by line; `line` is the number of the latest."""

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self.source = source
        self.line = 0
        self.cut = False
        """Whether the last line ends in the middle: its writer was stopped."""
        self._stream = stream
        header = self._next(_header)
        if header is None:
            raise InputError("is empty, not a log of `headway serve`.", source=source)
        if header.headway_log != FORMAT:
            raise InputError(
                f"is a log of format {header.headway_log}, written by Headway {header.version}; "
                f"this version reads format {FORMAT}.",
                source=source,
                line=1,
            )
        self.header = header

    def __iter__(self) -> Iterator[Entry]:
        while (entry := self._next(_entry)) is not None:
            yield entry

    def _next(self, decoder: msgspec.json.Decoder[_Line]) -> _Line | None:
        data = self._stream.readline(LONGEST_LINE + 1)
        if not data:
            return None
        self.line += 1
        if len(data) > LONGEST_LINE:
            raise self._error(f"longer than {LONGEST_LINE:,} bytes; a log's lines are short.")
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if self.line > 1 and not data.endswith(b"\n"):
                self.cut = True
                return None
            place = re.search(r"\(byte (\d+)\)", str(error))
            raise self._error(
                f"not a line of a log: {error}.", int(place[1]) + 1 if place else None
            ) from None
        except InputError as error:
            raise error.at(self.source, self.line) from None

    def _error(self, problem: str, column: int | None = None) -> InputError:
        return InputError(problem, source=self.source, line=self.line, column=column)


@contextlib.contextmanager
def open_log(path: str | os.PathLike[str]) -> Iterator[LogReader]:
    """Open a log, or standard input for `-`, to read it."""
    source = "standard input" if os.fspath(path) == STANDARD else os.fspath(path)
    with open_input(path) as stream:
        yield LogReader(stream, source)
