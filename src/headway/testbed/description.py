"""What a testbed is: its settings, and every name and address that follow from them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from headway.domain.errors import InputError, shown
from headway.domain.limits import whole

FOLDER = Path("/run/headway/testbeds")
"""Where the state of every testbed lies; only root may look inside."""

MOST_HOSTS = 64
FASTEST_MBIT = 10_000
LARGEST_ETA = 10.0

_NAME = re.compile(r"[a-z0-9-]{1,16}")


def check_name(name: str) -> str:
    """Return the name if a testbed may have it."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"must be 1 to 16 of a-z, 0-9 and -, not {shown(name)}.", field="testbed's name"
        )
    return name


@dataclass(frozen=True, slots=True)
class Testbed:
    """Hosts numbered from 1, each with one link of `rate_mbit` to a common switch.

    `eta` is the contention penalty as a fraction of b: while k messages run on a host, its link
    has rate * k / (k + (k-1)*eta), so that a byte costs k*b + (k-1)*eta*b.
    """

    name: str = "default"
    hosts: int = 4
    rate_mbit: int = 200
    eta: float = 0.0

    def __post_init__(self) -> None:
        check_name(self.name)
        whole(self.hosts, "hosts", 2, MOST_HOSTS)
        whole(self.rate_mbit, "rate", 1, FASTEST_MBIT, " Mbit/s")
        if isinstance(self.eta, bool) or not isinstance(self.eta, (int, float)):
            raise InputError(f"must be a number, not {shown(self.eta)}.", field="eta")
        if not (math.isfinite(self.eta) and 0 <= self.eta <= LARGEST_ETA):
            raise InputError(
                f"must be a fraction of b from 0 to {LARGEST_ETA:g}, not {shown(self.eta)}.",
                field="eta",
            )
        object.__setattr__(self, "eta", float(self.eta))

    @property
    def numbers(self) -> range:
        """The numbers of the hosts: 1 to the last."""
        return range(1, self.hosts + 1)

    @property
    def switch(self) -> str:
        """The namespace that holds the bridge, so that the machine's own has no part in it."""
        return f"headway-{self.name}-switch"

    @property
    def namespaces(self) -> list[str]:
        """Every namespace of the testbed: the hosts' in order, then the switch's."""
        return [*(self.namespace(host) for host in self.numbers), self.switch]

    @property
    def socket(self) -> Path | None:
        """Where the keeper listens; nowhere without a penalty."""
        return socket_of(self.name) if self.eta > 0 else None

    def namespace(self, host: int) -> str:
        """Return the network namespace of a host."""
        return f"headway-{self.name}-{self.checked(host)}"

    def address(self, host: int) -> str:
        """Return the IPv4 address of a host."""
        return f"10.77.0.{self.checked(host)}"

    def environment(self, host: int) -> dict[str, str]:
        """Return the variables that tell a process in a host where it is."""
        variables = {
            "HEADWAY_TESTBED": self.name,
            "HEADWAY_TESTBED_HOST": str(self.checked(host)),
            # The machine's name, which gloo would look up, is that of no host.
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
    """Return the path of the keeper's socket."""
    return FOLDER / f"{name}.sock"


def log_of(name: str) -> Path:
    """Return the path where the keeper writes why it ended."""
    return FOLDER / f"{name}.log"
