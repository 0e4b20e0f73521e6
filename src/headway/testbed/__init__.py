"""Emulated hosts on one Linux machine: real network stacks, links of a chosen rate."""

from __future__ import annotations

from headway.testbed.description import Testbed
from headway.testbed.inspection import HostStatus, Status, status, statuses
from headway.testbed.lifecycle import down, up
from headway.testbed.state import find, names
from headway.testbed.system import command

__all__ = [
    "HostStatus",
    "Status",
    "Testbed",
    "command",
    "down",
    "find",
    "names",
    "status",
    "statuses",
    "up",
]
