"""The lines of an event log: a header with the core's arguments, then one entry per event."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headway.live.core.events import AnyEvent, AnyInstruction
from headway.live.core.lease_rules import LeaseRules
from headway.network.contention import NetworkModel
from headway.version import __version__

FORMAT = 2
MAX_LINE_BYTES = 2**24
"""Most lines have a few hundred bytes, but a job's environment may be long."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the `Core` that wrote the log; `headway_log` is the format's version.

    `clock_ns` and `unix_ns` are the scheduler's and the machine's time when the run began.
    """

    headway_log: int
    version: str
    policy: str
    network: NetworkModel
    seed: int
    leases: LeaseRules | None = None
    clock_ns: int | None = None
    unix_ns: int | None = None


class Entry(msgspec.Struct, frozen=True):
    """An event and the instructions that the core returned for it."""

    event: AnyEvent
    instructions: list[AnyInstruction]


_encoder = msgspec.json.Encoder()


def encode_header(
    policy: str,
    network: NetworkModel,
    seed: int,
    leases: LeaseRules | None = None,
    *,
    clock_ns: int | None = None,
    unix_ns: int | None = None,
) -> bytes:
    """Return the first line of a log."""
    header = Header(
        headway_log=FORMAT,
        version=__version__,
        policy=policy,
        network=network,
        seed=seed,
        leases=leases,
        clock_ns=clock_ns,
        unix_ns=unix_ns,
    )
    return _encoder.encode(header) + b"\n"


def encode_entry(event: AnyEvent, instructions: Sequence[AnyInstruction]) -> bytes:
    """Return the line for an event that the core has handled."""
    return _encoder.encode(Entry(event, list(instructions))) + b"\n"
