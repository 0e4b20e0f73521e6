"""The laws of contention by name.

A law is a module in this package with two compiled functions:

    alone_ns_per_byte(cluster, message) -> the cost of a message's bytes, in ns, with no others
    update_costs(cluster, traffic) -> how many messages' costs have changed; it gives them their
        new costs with `network.traffic.rate` and lists them in traffic.found[:count]

What has happened since the last update is in `traffic`: the ports that a message has joined or left
(`touched`) or, by a law where messages do not meet, the messages that have started (`sent`).

The modules are imported when something is compiled, so that descriptions of networks work where
Numba is not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Law:
    """What is known about a law without compiling it."""

    name: str
    module: str
    summary: str
    messages_meet: bool = True
    """Whether messages are on ports, where they may slow each other down."""
    note: str = ""
    """What the description of a network adds about it."""

    def function(self, name: str) -> Callable[..., Any]:
        """Return one of the law's compiled functions."""
        return getattr(importlib.import_module(self.module), name)  # type: ignore[no-any-return]


_LAWS = (
    Law("busiest", "headway.network.laws.busiest", "the busiest link sets the cost"),
    Law(
        "max-min",
        "headway.network.laws.max_min",
        "a message held back on one link leaves its share of others",
        note="max-min sharing",
    ),
    Law(
        "no-contention",
        "headway.network.laws.no_contention",
        "messages never meet",
        messages_meet=False,
        note="no contention",
    ),
)
"""A new law is one file and one entry here."""

LAWS: dict[str, Law] = {law.name: law for law in _LAWS}


def index_of(name: str) -> int:
    """Return the number of a law in the SYSTEM record."""
    return list(LAWS).index(name)
