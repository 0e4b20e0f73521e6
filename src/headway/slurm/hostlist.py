"""Slurm's host lists, such as `gpu[01-03,7],login`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from headway.domain.errors import InputError, shown

MAX_HOSTS = 100_000
"""The most names that a list may stand for."""

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_NAME = re.compile(r"[^\[\],\s]*(?:\[[^\[\]]*\][^\[\],\s]*)*")


def expand(text: str) -> list[str]:
    """Return the names that a host list stands for, in its order."""
    names: list[str] = []
    for part in _parts(text):
        names.extend(itertools.islice(_expanded(part, text), MAX_HOSTS + 1 - len(names)))
        if len(names) > MAX_HOSTS:
            raise InputError(f"{shown(text)} stands for more than {MAX_HOSTS:,} names.")
    return names


def _parts(text: str) -> Iterator[str]:
    """Yield what is between the commas outside brackets."""
    position = 0
    while position <= len(text):
        found = _NAME.match(text, position)
        assert found is not None
        end = found.end()
        if not found[0] or (end < len(text) and text[end] != ","):
            raise _invalid(text)
        yield found[0]
        position = end + 1


def _expanded(part: str, text: str) -> Iterator[str]:
    """Yield the names of a part; the last bracket varies fastest."""
    pieces = re.split(r"\[([^\]]*)\]", part)
    choices = [
        _numbers(piece, text) if index % 2 else (piece,) for index, piece in enumerate(pieces)
    ]
    return ("".join(words) for words in itertools.product(*choices))


def _numbers(ranges: str, text: str) -> list[str]:
    """Return the numbers of a bracket, as wide as they are written."""
    numbers: list[str] = []
    for one in ranges.split(","):
        found = _RANGE.fullmatch(one)
        if found is None or max(len(number or "") for number in found.groups()) > 9:
            raise _invalid(text)
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or int(last) - int(first) > MAX_HOSTS:
            raise _invalid(text)
        numbers.extend(str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
    return numbers


def _invalid(text: str) -> InputError:
    return InputError(f"must be a list of hosts such as 'gpu[01-16]', not {shown(text)}.")
