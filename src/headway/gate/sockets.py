"""Sockets of the gate: bound for the server, and given priority at both ends."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.domain.errors import InputError, MachineError

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

MAX_PATH_BYTES = 107
"""The longest path of a Unix socket on Linux."""

ACK_TIMEOUT_MS = 3000
"""How long sent bytes may stay unacknowledged before a connection counts as dead."""

_CLASS_SELECTOR_6 = 0xC0
"""DSCP 48, network control, in the upper six bits of the type-of-service byte."""

_INTERACTIVE = 6
"""The kernel's TC_PRIO_INTERACTIVE, the highest that needs no privilege: the first band of
pfifo_fast and prio."""


def prioritize(connection: socket.socket | TransportSocket) -> None:
    """Send a TCP connection's small packets at once and ahead of gradients; detect a dead peer.

    Priority matters on hosts and switches that have a separate queue for such packets; see
    docs/reference/gate-protocol.md. Other kinds of sockets are left unchanged.
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
        (tcp, socket.TCP_USER_TIMEOUT, ACK_TIMEOUT_MS),
        (socket.IPPROTO_IP, socket.IP_TOS, _CLASS_SELECTOR_6),
        # After the type of service, which also sets the priority.
        (socket.SOL_SOCKET, socket.SO_PRIORITY, _INTERACTIVE),
    ]
    if connection.family == socket.AF_INET6:
        options[6] = (socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _CLASS_SELECTOR_6)
    for level, name, value in options:
        connection.setsockopt(level, name, value)


@dataclass(frozen=True)
class SocketFile:
    """The file of a Unix socket, identified by its inode and not only by its path."""

    path: str
    device: int
    inode: int

    def exists(self) -> bool:
        """Return whether the file is there and has not been replaced."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (self.device, self.inode)

    def remove(self) -> None:
        """Remove the file, unless another one has replaced it."""
        if self.exists():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)


def bind_unix(path: str) -> tuple[socket.socket, SocketFile]:
    """Return a socket bound to a path that only this user may connect to."""
    length = len(os.fsencode(path))
    if length > MAX_PATH_BYTES:
        raise InputError(
            f"the path of a Unix socket has at most {MAX_PATH_BYTES} bytes, and this one {length}: "
            "choose a shorter folder.",
            source=path,
        )
    bound = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(path)
        bound.bind(path)
        # No client can have connected yet: the socket is not listening.
        os.chmod(path, 0o600)
        found = os.lstat(path)
    except OSError as error:
        bound.close()
        raise InputError(f"{error.strerror or error}.", source=path) from None
    except InputError:
        bound.close()
        raise
    return bound, SocketFile(path, found.st_dev, found.st_ino)


def bind_tcp(host: str, port: int) -> socket.socket:
    """Return a socket bound to the first address that the host name resolves to; may block."""
    try:
        found: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise MachineError(f"cannot listen on {host}:{port}: {error.strerror or error}.") from None


def is_loopback(host: str) -> bool:
    """Return whether a host name stands for this machine's loopback interface only."""
    with contextlib.suppress(OSError, ValueError):
        found: Any = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return all(ipaddress.ip_address(one[4][0]).is_loopback for one in found)
    return False


def _remove_stale(path: str) -> None:
    """Remove the socket of a process that no longer listens on it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise InputError("exists and is not a socket.", source=path)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass
    raise InputError("another gate listens there.", source=path)
