"""The settings of a testbed, and the names and addresses derived from them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from headway.domain.errors import InputError, shown
from headway.domain.limits import whole

FOLDER = Path("/run/headway/testbeds")
"""The state files of all testbeds; only root can read it."""

MAX_HOSTS = 64
MAX_RATE_MBIT = 10_000
MAX_ETA = 10.0

_NAME = re.compile(r"[a-z0-9-]{1,16}")


def check_name(name: str) -> str:
    """Return the name of a testbed if it is valid."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"must be 1 to 16 of a-z, 0-9 and -, not {shown(name)}.", field="testbed's name"
        )
    return name


@dataclass(frozen=True, slots=True)
class Testbed:
    """Hosts numbered from 1, each with one link of `rate_mbit` to a common switch.

    `eta` is the contention penalty as a fraction of b: while k messages of a host are in flight,
    its link has rate * k / (k + (k-1)*eta), so that a byte costs k*b + (k-1)*eta*b.
    """

    name: str = "default"
    hosts: int = 4
    rate_mbit: int = 200
    eta: float = 0.0

    def __post_init__(self) -> None:
        check_name(self.name)
        whole(self.hosts, "hosts", 2, MAX_HOSTS)
        whole(self.rate_mbit, "rate_mbit", 1, MAX_RATE_MBIT, " Mbit/s")
        if isinstance(self.eta, bool) or not isinstance(self.eta, (int, float)):
            raise InputError(f"must be a number, not {shown(self.eta)}.", field="eta")
        if not (math.isfinite(self.eta) and 0 <= self.eta <= MAX_ETA):
            raise InputError(
                f"must be a fraction of b from 0 to {MAX_ETA:g}, not {shown(self.eta)}.",
                field="eta",
            )
        object.__setattr__(self, "eta", float(self.eta))

    @property
    def numbers(self) -> range:
        """The numbers of the hosts, from 1."""
        return range(1, self.hosts + 1)

    @property
    def switch(self) -> str:
        """The namespace of the bridge, which keeps the machine's own network untouched."""
        return f"headway-{self.name}-switch"

    @property
    def namespaces(self) -> list[str]:
        """All namespaces of the testbed: the hosts' in order, then the switch's."""
        return [*(self.namespace(host) for host in self.numbers), self.switch]

    @property
    def socket(self) -> Path | None:
        """The socket of the rate controller; None without a penalty."""
        return socket_of(self.name) if self.eta > 0 else None

    def namespace(self, host: int) -> str:
        """Return the network namespace of a host."""
        return f"headway-{self.name}-{self.checked(host)}"

    def address(self, host: int) -> str:
        """Return the IPv4 address of a host."""
        return f"10.77.0.{self.checked(host)}"

    def environment(self, host: int) -> dict[str, str]:
        """Return the environment variables of processes in a host."""
        variables = {
            "HEADWAY_TESTBED": self.name,
            "HEADWAY_TESTBED_HOST": str(self.checked(host)),
            # gloo would look up the machine's name, which belongs to no host.
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        if self.socket is not None:
            variables["HEADWAY_TESTBED_SOCKET"] = str(self.socket)
        return variables

    def checked(self, host: int) -> int:
        """Return the host's number if the testbed has it."""
        return whole(host, "host", 1, self.hosts)

    def __str__(self) -> str:
        penalty = f", eta {self.eta:g} b" if self.eta > 0 else ""
        return f"{self.hosts} hosts at {self.rate_mbit:,} Mbit/s{penalty}"


def socket_of(name: str) -> Path:
    """Return the path of the rate controller's socket."""
    return FOLDER / f"{name}.sock"


def log_of(name: str) -> Path:
    """Return the path of the rate controller's error log."""
    return FOLDER / f"{name}.log"
