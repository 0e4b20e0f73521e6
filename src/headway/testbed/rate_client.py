"""A process's side of the rate controller: report messages in flight."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

from headway.domain.errors import InputError, MachineError, shown

_HOST, _SOCKET = "HEADWAY_TESTBED_HOST", "HEADWAY_TESTBED_SOCKET"


class _RateClient:
    """This process's connection to the rate controller, opened at the first message."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def report(self, path: str, step: bytes) -> None:
        """Report that a message begins (+) or has ended (-), and wait until the rates are set."""
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = _connect(path)
                self._connection.sendall(step)
                answer = self._connection.recv(1)
        except OSError as error:
            raise MachineError(
                f"the testbed's rate controller at {path}: {error.strerror}."
            ) from error
        if not answer:
            raise MachineError(f"the testbed's rate controller at {path} has ended.")

    def close_after_fork(self) -> None:
        """Close the child's copy of the connection, so that it ends with the parent process."""
        if self._connection is not None:
            self._connection.close()
        # A thread of the parent may have held the lock at the fork.
        self._lock, self._connection = threading.Lock(), None


def _connect(path: str) -> socket.socket:
    host = os.environ.get(_HOST, "")
    if not (host.isascii() and host.isdigit()):
        raise InputError(f"must be a host's number, not {shown(host)}.", source=_HOST)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        connection.sendall(f"{host}\n".encode())
    except OSError:
        connection.close()
        raise
    return connection


_CLIENT = _RateClient()
os.register_at_fork(after_in_child=_CLIENT.close_after_fork)


@contextlib.contextmanager
def message_on_network() -> Iterator[None]:
    """Count as one message in flight on this process's host, in a testbed with a penalty."""
    path = os.environ.get(_SOCKET)
    if path is None:
        yield
        return
    _CLIENT.report(path, b"+")
    try:
        yield
    finally:
        _CLIENT.report(path, b"-")
