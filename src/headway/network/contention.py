"""The contention model: T = a + k*b*M + (k-1)*eta*M (the paper's Eq. "T_ar with contention")."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import LONGEST_NS, MAX_BYTES, MAX_GPUS, whole
from headway.network.laws.registry import LAWS, Law
from headway.network.ring import ring_latency_ns, ring_weight


def cost_ns_per_byte(k: int, b_ns_per_byte: float, eta_ns_per_byte: float) -> float:
    """Return cost(k) = k*b + (k-1)*eta, the time a byte takes among k messages."""
    return k * b_ns_per_byte + (k - 1) * eta_ns_per_byte


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """The cost of an all-reduce between servers, alone and among others.

    The defaults are 10 Gbit/s Ethernet: a and b as the paper measured them, eta as in its public
    artifact. `law` names the law of contention (`network.laws`): by `busiest`, the paper's, a
    message goes as fast as its busiest link allows; by `max-min` a message that is held back on one
    link leaves the rest of its share elsewhere to others; by `no-contention` messages never meet,
    which shows what contention costs.

    With `ring_size` a and b are those of a ring of that many servers, and a job on more or fewer
    servers has its own.
    """

    a_ns: int = 669_000
    b_ns_per_byte: float = 0.853
    eta_ns_per_byte: float = 0.235
    law: str = "busiest"
    ring_size: int | None = None

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise InputError(
                f"unknown law {shown(self.law)}.{did_you_mean(str(self.law), LAWS)}", field="law"
            )
        if self.ring_size is not None:
            whole(self.ring_size, "ring_size", 2, MAX_GPUS)
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

    @property
    def messages_meet(self) -> bool:
        """Whether messages slow each other down by this network's law."""
        return self._law.messages_meet

    @property
    def _law(self) -> Law:
        return LAWS[self.law]

    def cost_ns_per_byte(self, k: int) -> float:
        """Return the time a byte takes when k messages share a server's network."""
        met = k if self.messages_meet else 1
        return cost_ns_per_byte(met, self.b_ns_per_byte, self.eta_ns_per_byte)

    def all_reduce_ns(self, message_bytes: int, k: int = 1) -> int:
        """Return how long an all-reduce takes whose k never changes."""
        whole(message_bytes, "message_bytes", 0, MAX_BYTES)
        whole(k, "k", 1, MAX_BYTES)
        return max(1, self.a_ns + math.ceil(message_bytes * self.cost_ns_per_byte(k)))

    def latency_ns(self, servers: int) -> int:
        """Return the latency of an all-reduce among this many servers, two or more."""
        whole(servers, "servers", 2, MAX_GPUS)
        if self.ring_size is None:
            return self.a_ns
        return ring_latency_ns(self.a_ns, servers, self.ring_size)

    def byte_weight(self, servers: int) -> float:
        """Return a byte's cost among this many servers, relative to b."""
        whole(servers, "servers", 2, MAX_GPUS)
        return 1.0 if self.ring_size is None else ring_weight(servers, self.ring_size)

    def without_contention(self) -> NetworkModel:
        """Return the same network where messages never meet."""
        return replace(self, law="no-contention")

    def __str__(self) -> str:
        parts = [f"a {self.a_ns:,} ns", f"b {self.b_ns_per_byte:g} ns/byte"]
        if self.ring_size is not None:
            parts.append(f"in a ring of {self.ring_size} servers")
        if self.messages_meet:
            parts.append(f"eta {self.eta_ns_per_byte:g} ns/byte")
        if self._law.note:
            parts.append(self._law.note)
        if self in _ESTIMATED:
            parts.append("estimated from 10gbe")
        return ", ".join(parts)


NETWORKS = {
    "10gbe": NetworkModel(),
    "25gbe": NetworkModel(b_ns_per_byte=0.3412, eta_ns_per_byte=0.094),
    "100gbe": NetworkModel(b_ns_per_byte=0.0853, eta_ns_per_byte=0.0235),
    "no-contention": NetworkModel(law="no-contention"),
}
"""Networks known by name. Only `10gbe` was measured.

For faster Ethernet b and eta are those of `10gbe`, divided by the ratio of the rates, and a is the
same, because software and switches cause most of it.
"""

_ESTIMATED = frozenset({NETWORKS["25gbe"], NETWORKS["100gbe"]})
