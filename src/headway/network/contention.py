"""The contention model: T = a + k*b*M + (k-1)*eta*M (the paper's Eq. "T_ar with contention")."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import LONGEST_NS, MOST_BYTES, MOST_GPUS, whole

Sharing = Literal["busiest", "max-min"]

SHARINGS: tuple[Sharing, ...] = ("busiest", "max-min")
"""What sets a message's speed: its busiest link, or fair shares of all links."""


def cost_ns_per_byte(k: int, b_ns_per_byte: float, eta_ns_per_byte: float) -> float:
    """Return cost(k) = k*b + (k-1)*eta, the time a byte takes among k messages."""
    return k * b_ns_per_byte + (k - 1) * eta_ns_per_byte


def ring_latency_ns(a_ns: int, servers: int, measured: int) -> int:
    """Return a(n): the 2(n-1) steps of a ring of n servers, from a among `measured` of them."""
    return round(float(a_ns) * (servers - 1) / (measured - 1))


def ring_weight(servers: int, measured: int) -> float:
    """Return v(n): the (n-1)/n of a message that a ring's links carry, against `measured`'s."""
    return ((servers - 1) / servers) / ((measured - 1) / measured)


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """What an all-reduce between servers costs, alone and among others.

    The defaults are 10 Gbit/s Ethernet: a and b as the paper measured them, eta as in its public
    artifact. With `contends=False` messages never meet: k is always 1 and nothing waits for
    admission, which is the yardstick for what contention costs.

    With `sharing="max-min"` a message that is held back on one link leaves the rest of its share
    there to others. With `servers` a and b are those of a ring of so many servers, and a job on
    more or fewer has its own.
    """

    a_ns: int = 669_000
    b_ns_per_byte: float = 0.853
    eta_ns_per_byte: float = 0.235
    contends: bool = True
    sharing: Sharing = "busiest"
    servers: int | None = None

    def __post_init__(self) -> None:
        if self.sharing not in SHARINGS:
            raise InputError(
                f"unknown sharing {shown(self.sharing)}."
                f"{did_you_mean(str(self.sharing), SHARINGS)}",
                field="sharing",
            )
        if self.servers is not None:
            whole(self.servers, "servers", 2, MOST_GPUS)
        whole(self.a_ns, "a_ns", 0, LONGEST_NS)
        for name in ("b_ns_per_byte", "eta_ns_per_byte"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputError(f"must be a number, not {shown(value)}.", field=name)
            if not 0 <= value <= 1e9:
                raise InputError(
                    f"must be from 0 to 1e9 nanoseconds a byte, not {shown(value)}.", field=name
                )
            object.__setattr__(self, name, float(value))
        if self.b_ns_per_byte < 1e-9:
            raise InputError(
                "must be at least 1e-9 nanoseconds a byte (8e18 bit/s), "
                f"not {self.b_ns_per_byte:g}.",
                field="b_ns_per_byte",
            )

    def cost_ns_per_byte(self, k: int) -> float:
        """Return the time a byte takes when k messages share a server's network."""
        return cost_ns_per_byte(k if self.contends else 1, self.b_ns_per_byte, self.eta_ns_per_byte)

    def all_reduce_ns(self, message_bytes: int, k: int = 1) -> int:
        """Return how long an all-reduce takes whose k never changes."""
        whole(message_bytes, "message_bytes", 0, MOST_BYTES)
        whole(k, "k", 1, MOST_BYTES)
        return max(1, self.a_ns + math.ceil(message_bytes * self.cost_ns_per_byte(k)))

    def latency_ns(self, servers: int) -> int:
        """Return the latency of an all-reduce of a job on so many servers, two or more."""
        whole(servers, "servers", 2, MOST_GPUS)
        return (
            self.a_ns if self.servers is None else ring_latency_ns(self.a_ns, servers, self.servers)
        )

    def byte_weight(self, servers: int) -> float:
        """Return a byte's cost for a job on so many servers over the cost that b stands for."""
        whole(servers, "servers", 2, MOST_GPUS)
        return 1.0 if self.servers is None else ring_weight(servers, self.servers)

    def without_contention(self) -> NetworkModel:
        """Return the same network where messages never meet."""
        return replace(self, contends=False)

    def __str__(self) -> str:
        parts = [f"a {self.a_ns:,} ns", f"b {self.b_ns_per_byte:g} ns/byte"]
        if self.servers is not None:
            parts.append(f"both among {self.servers} servers")
        if not self.contends:
            return ", ".join([*parts, "no contention"])
        parts.append(f"eta {self.eta_ns_per_byte:g} ns/byte")
        if self.sharing == "max-min":
            parts.append("max-min sharing")
        return ", ".join(parts)


NETWORKS = {"10gbe": NetworkModel(), "no-contention": NetworkModel(contends=False)}
"""Networks known by name."""
