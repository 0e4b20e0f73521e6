"""Rendezvous ports: the TCP port where the ranks of an attempt meet, unique among its jobs.

`python rendezvous.py ADDRESS PORT...` prints the first of these ports that is free; it runs inside
a host of a testbed, which has ports of its own.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable

_FIRST, _END = 20_000, 32_000
"""Below the range from which Linux assigns ports to outgoing connections."""

_CANDIDATES = 16


def first_free_port(address: str, ports: Iterable[int]) -> int:
    """Return the first port that is free at an address of this machine."""
    for port in ports:
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port is free at {address}")


class RendezvousPorts:
    """Proposes rendezvous ports, never one in `used`."""

    def __init__(self) -> None:
        # Schedulers on the same machine start at different ports.
        self._next = _FIRST + os.getpid() * _CANDIDATES % (_END - _FIRST)
        self.used: set[int] = set()

    def candidates(self) -> list[int]:
        """Return ports to try, none of which is in use or will soon be proposed again."""
        found: list[int] = []
        while len(found) < _CANDIDATES:
            if self._next not in self.used:
                found.append(self._next)
            self._next = _FIRST if self._next + 1 == _END else self._next + 1
        return found


if __name__ == "__main__":
    print(first_free_port(sys.argv[1], map(int, sys.argv[2:])))
