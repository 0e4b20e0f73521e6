"""A ring's all-reduce: how a and b, measured among some servers, change with their number.

Numba compiles these same functions (`network.messages`).
"""

from __future__ import annotations


def ring_latency_ns(a_ns: int, servers: int, ring_size: int) -> int:
    """Return a(n): the 2(n-1) steps of a ring of n servers, from a among `ring_size` of them."""
    return round(float(a_ns) * (servers - 1) / (ring_size - 1))


def ring_weight(servers: int, ring_size: int) -> float:
    """Return v(n): the (n-1)/n of a message that each link carries, relative to `ring_size`'s."""
    return ((servers - 1) / servers) / ((ring_size - 1) / ring_size)
