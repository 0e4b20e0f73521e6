"""What the Ray executor knows of its nodes: their names, which it keeps, and what they reach."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from headway.domain.errors import InputError
from headway.files import open_output
from headway.gate.sockets import is_loopback
from headway.live.executors.node_tools import read_regular
from headway.ray_session import interface_of


class NodeNames:
    """The names of nodes by Ray's node ids, kept for the next scheduler.

    The scheduler's database refers to slots and drained nodes by these names.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Return the names that an earlier scheduler gave."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            saved = json.loads(read_regular(self._path))
            self._saved = {str(node_id): str(name) for node_id, name in saved.items()}
        return dict(self._saved)

    def save(self, names: Mapping[str, str]) -> None:
        """Save changed names; on a full disk, the next call tries again."""
        if self._saved != names:
            with contextlib.suppress(InputError):
                with open_output(self._path) as stream:
                    stream.write(json.dumps(names).encode())
                self._saved = dict(names)


def can_reach(address: str, host: str) -> bool:
    """Return whether a node at an address can reach this machine at a host name.

    Only this machine's own nodes can reach a loopback host. The name is resolved here, where the
    gate listens.
    """
    return not is_loopback(host) or is_loopback(address) or interface_of(address) is not None
