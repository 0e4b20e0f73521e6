"""The sockets that a gate listens on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from dataclasses import dataclass
from typing import Any

from headway.domain.errors import InputError, MachineError

LONGEST_PATH = 107
"""Bytes of a Unix socket's path, on Linux."""


@dataclass(frozen=True)
class UnixAddress:
    """The file of a Unix socket, known by more than its name."""

    path: str
    device: int
    number: int

    def remove(self) -> None:
        """Remove the file, unless another one has its name by now."""
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(self.path)
            if (found.st_dev, found.st_ino) == (self.device, self.number):
                os.unlink(self.path)


def unix_socket(path: str | os.PathLike[str]) -> tuple[socket.socket, UnixAddress]:
    """Return a socket bound to a path, which only this user may connect to."""
    name = os.fspath(path)
    length = len(os.fsencode(name))
    if length > LONGEST_PATH:
        raise InputError(
            f"a Unix socket's path has at most {LONGEST_PATH} bytes, and this one {length}: "
            "choose a shorter folder.",
            source=name,
        )
    listening = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(name)
        listening.bind(name)
        # Nobody can connect before it listens, so nobody came before this.
        os.chmod(name, 0o600)
        found = os.lstat(name)
    except OSError as error:
        listening.close()
        raise InputError(f"{error.strerror or error}.", source=name) from None
    except InputError:
        listening.close()
        raise
    return listening, UnixAddress(name, found.st_dev, found.st_ino)


async def tcp_socket(host: str, port: int) -> socket.socket:
    """Do as `bound_tcp_socket`, with the name looked up in a thread."""
    return await asyncio.to_thread(bound_tcp_socket, host, port)


def bound_tcp_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; of a name's several addresses, the first."""
    try:
        found: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise MachineError(f"cannot listen on {host}:{port}: {error.strerror or error}.") from None


def _remove_stale(path: str) -> None:
    """Remove a socket that nobody listens on any more."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise InputError("is there, and is not a socket.", source=path)
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
