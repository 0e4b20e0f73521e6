"""A worker's side of the keeper: tell it when a message is on the network."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

from headway.domain.errors import InputError, MachineError, shown

_HOST, _SOCKET = "HEADWAY_TESTBED_HOST", "HEADWAY_TESTBED_SOCKET"


class _Keeper:
    """This process's connection to the keeper: opened at the first message, then kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def tell(self, path: str, word: bytes) -> None:
        """Say that a message begins (+) or has ended (-), and wait until the rates are set."""
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = _connect(path)
                self._connection.sendall(word)
                answer = self._connection.recv(1)
        except OSError as error:
            raise MachineError(f"the testbed's keeper at {path}: {error.strerror}.") from error
        if not answer:
            raise MachineError(f"the testbed's keeper at {path} has ended.")

    def forget(self) -> None:
        """Close the copy that a fork made, so that the connection ends with its own process."""
        if self._connection is not None:
            self._connection.close()
        # Another thread may have held the lock at the fork: nobody would ever let go of it.
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


_KEEPER = _Keeper()
os.register_at_fork(after_in_child=_KEEPER.forget)


@contextlib.contextmanager
def message_on_network() -> Iterator[None]:
    """Count as one message of this process's host, if that is in a testbed with a penalty."""
    path = os.environ.get(_SOCKET)
    if path is None:
        yield
        return
    _KEEPER.tell(path, b"+")
    try:
        yield
    finally:
        _KEEPER.tell(path, b"-")
