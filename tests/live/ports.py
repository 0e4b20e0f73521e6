"""Ports for servers of tests that must know theirs before they start."""

from __future__ import annotations

import contextlib
import os
import socket


def free_ports(count: int) -> list[int]:
    """Return free ports that Linux gives to no outgoing connection and Headway to no job."""
    first = 10_000 + os.getpid() % 900 * 10
    found: list[int] = []
    for port in range(first, 20_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            break
    return found
