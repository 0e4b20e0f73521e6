"""The contention model: T = a + k*b*M + (k-1)*eta*M (the paper's Eq. "T_ar with contention")."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from headway.domain.errors import InputError, shown
from headway.domain.limits import LONGEST_NS, MOST_BYTES, whole


def cost_ns_per_byte(k: int, b_ns_per_byte: float, eta_ns_per_byte: float) -> float:
    """Return cost(k) = k*b + (k-1)*eta, the time a byte takes among k messages."""
    return k * b_ns_per_byte + (k - 1) * eta_ns_per_byte


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """What an all-reduce between servers costs, alone and among others.

    The defaults are 10 Gbit/s Ethernet: a and b as the paper measured them, eta as in its public
    artifact. With `contends=False` messages never meet: k is always 1 and nothing waits for
    admission, which is the yardstick for what contention costs.
    """

    a_ns: int = 669_000
    b_ns_per_byte: float = 0.853
    eta_ns_per_byte: float = 0.235
    contends: bool = True

    def __post_init__(self) -> None:
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

    def without_contention(self) -> NetworkModel:
        """Return the same network where messages never meet."""
        return replace(self, contends=False)

    def __str__(self) -> str:
        if not self.contends:
            return f"a {self.a_ns:,} ns, b {self.b_ns_per_byte:g} ns/byte, no contention"
        return (
            f"a {self.a_ns:,} ns, b {self.b_ns_per_byte:g} ns/byte, "
            f"eta {self.eta_ns_per_byte:g} ns/byte"
        )


NETWORKS = {"10gbe": NetworkModel(), "no-contention": NetworkModel(contends=False)}
"""Networks known by name."""
