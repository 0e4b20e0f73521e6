"""The kinds of messages in a graph: their sizes and latencies as all-reduces between servers.

A message whose ranks are on several servers is treated as an all-reduce of round(f * M) bytes
with a latency of round(l * a). Numba compiles these same functions.
"""

from __future__ import annotations

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "send")
"""The kinds by number, as arrays hold them."""

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, SEND = range(5)


def message_size_bytes(kind: int, buffer_bytes: int, ranks_on_a_server: int, ring: bool) -> int:
    """Return round(f * M), the bytes of the all-reduce that a message is treated as.

    Args:
        kind: Its number in KINDS.
        buffer_bytes: M, as the graph gives it.
        ranks_on_a_server: g, the most ranks of its group on one server.
        ring: Whether the network has a ring's law.
    """
    share = 0.5
    if kind == ALL_REDUCE or (kind == SEND and ring):
        share = 1.0
    elif kind == ALL_TO_ALL:
        share = ranks_on_a_server / 2
    return round(share * buffer_bytes)


def message_latency_ns(kind: int, a_ns: int) -> int:
    """Return round(l * a); `a_ns` is the latency of an all-reduce among the message's servers."""
    if kind == ALL_REDUCE:
        return a_ns
    return round(0.5 * a_ns)
