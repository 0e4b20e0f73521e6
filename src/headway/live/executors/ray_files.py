"""What a scheduler on Ray has on its own machine: its name there, its nodes' names, its address."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from headway.domain.errors import InputError
from headway.files import open_output
from headway.ray_session import interface_of

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def identity(path: Path) -> str:
    """Return what tells this scheduler's actors from those of others on the same cluster."""
    if not path.exists():
        with open_output(path) as stream:
            stream.write(secrets.token_hex(8).encode())
    return path.read_text()


def certificates(path: str) -> str:
    """Return the certificates in a file, and not the key that may be beside them."""
    return "\n".join([*_CERTIFICATE.findall(Path(path).read_text()), ""])


class Names:
    """The names of nodes by Ray's numbers, kept for the next scheduler.

    That knows jobs' slots and drained nodes by them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Return the names that an earlier scheduler gave."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            told = json.loads(self._path.read_bytes())
            self._saved = {str(number): str(name) for number, name in told.items()}
        return dict(self._saved)

    def save(self, names: Mapping[str, str]) -> None:
        """Keep names that are new; without room for them, at the next call."""
        if self._saved != names:
            with contextlib.suppress(InputError):
                with open_output(self._path) as stream:
                    stream.write(json.dumps(names).encode())
                self._saved = dict(names)


def reaches(address: str, host: str) -> bool:
    """Tell whether a node at an address reaches this machine at a host: by loopback only if here.

    A name is judged by what it stands for on this machine, which is where the gate listens.
    """
    return not _is_loopback(host) or _is_loopback(address) or interface_of(address) is not None


@functools.cache
def _is_loopback(host: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return ipaddress.ip_address(found[0][4][0]).is_loopback
    return False
