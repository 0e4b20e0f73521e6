"""Sockets of the gate, at both ends: quick, first in every queue, and soon known to be dead."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

SILENCE_MS = 3000
"""How long sent bytes may stay unacknowledged before a connection counts as dead."""

_CLASS_SELECTOR_6 = 0xC0
"""DSCP 48, network control, in the upper six bits of the type-of-service byte."""

_INTERACTIVE = 6
"""The kernel's TC_PRIO_INTERACTIVE, the highest that needs no privilege: the first band of
pfifo_fast and prio."""


def prefer(connection: socket.socket | TransportSocket) -> None:
    """Let a TCP connection's small packets go at once and before the gradients.

    This matters on hosts and switches that have a queue of its own for such packets; see
    docs/reference/gate-protocol.md. Other kinds of sockets are left as they are.
    """
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    tcp = socket.IPPROTO_TCP
    options = [
        (tcp, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (tcp, socket.TCP_KEEPIDLE, 1),
        (tcp, socket.TCP_KEEPINTVL, 1),
        (tcp, socket.TCP_KEEPCNT, 3),
        (tcp, socket.TCP_USER_TIMEOUT, SILENCE_MS),
        (socket.IPPROTO_IP, socket.IP_TOS, _CLASS_SELECTOR_6),
        # After the type of service, which sets the priority too.
        (socket.SOL_SOCKET, socket.SO_PRIORITY, _INTERACTIVE),
    ]
    if connection.family == socket.AF_INET6:
        options[6] = (socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _CLASS_SELECTOR_6)
    for level, name, value in options:
        connection.setsockopt(level, name, value)
