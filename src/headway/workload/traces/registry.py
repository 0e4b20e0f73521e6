"""The trace formats by name, one module each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

from headway.domain.errors import InputError, did_you_mean, shown
from headway.workload.traces.records import RowLog, TraceJob

Reader = Callable[[Sequence[str], RowLog], Iterator[TraceJob]]

FORMATS = {
    "philly": "philly",
    "philly-pollux": "philly_pollux",
    "muri": "muri",
    "chronus": "chronus",
    "helios": "helios",
    "pai": "pai",
    "openb": "openb",
    "gavel": "gavel",
    "acme": "acme",
    "sacct": "sacct",
}
"""The module of each format."""


def reader_of(name: str) -> Reader:
    """Return the `read` of a format's module."""
    if name not in FORMATS:
        raise InputError(f"unknown format {shown(name)}.{did_you_mean(name, FORMATS)}")
    reader: Reader = import_module(f"headway.workload.traces.{FORMATS[name]}").read
    return reader
