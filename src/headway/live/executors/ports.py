"""Ports where ranks meet, which no other job of this scheduler has.

`python ports.py ADDRESS PORT...` prints the first of these ports that is free, wherever it is run.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable

_FIRST, _END = 20_000, 32_000
"""Below the ports that Linux gives to connections by itself."""

_TRIED = 16


def first_free(address: str, ports: Iterable[int]) -> int:
    """Return the first port that nobody listens on at an address of this machine."""
    for port in ports:
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port is free at {address}")


class Ports:
    """Hands out ports to try, and never one that is in use."""

    def __init__(self) -> None:
        # Schedulers on the same machine begin at different ports.
        self._next = _FIRST + os.getpid() * _TRIED % (_END - _FIRST)
        self.used: set[int] = set()

    def candidates(self) -> list[int]:
        """Return ports to try, none of which is in use or soon given to another job."""
        found: list[int] = []
        while len(found) < _TRIED:
            if self._next not in self.used:
                found.append(self._next)
            self._next = _FIRST if self._next + 1 == _END else self._next + 1
        return found


if __name__ == "__main__":
    print(first_free(sys.argv[1], map(int, sys.argv[2:])))
