"""Emulated hosts on one Linux machine: real network stacks, links of a chosen rate.

A host is a network namespace with one link to a common switch. `lifecycle` creates and removes
testbeds, `inspection` checks them, `rate_controller` emulates the contention penalty.
"""

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
