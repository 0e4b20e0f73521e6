"""The paper's table "Cost of Different All-Reduce Algorithms": a and b from a link's figures.

alpha is a link's latency, beta its time per byte, gamma the time to add up one byte, N the number
of nodes; logarithms are to base 2, as the paper takes N to be a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import LONGEST_NS, MAX_GPUS, whole
from headway.network.contention import NetworkModel


@dataclass(frozen=True, slots=True)
class Link:
    """One node's connection: latency and time per byte, sent (beta) and added up (gamma)."""

    alpha_ns: float
    beta_ns_per_byte: float
    gamma_ns_per_byte: float = 0.0

    def __post_init__(self) -> None:
        for name in ("alpha_ns", "beta_ns_per_byte", "gamma_ns_per_byte"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputError(f"must be a number, not {shown(value)}.", field=name)
            if not 0 <= value <= LONGEST_NS:
                raise InputError(f"must be 0 or more, and finite, not {shown(value)}.", field=name)


def _binary_tree(link: Link, nodes: int) -> tuple[float, float]:
    steps = math.log2(nodes)
    per_byte = 2 * link.beta_ns_per_byte + link.gamma_ns_per_byte
    return 2 * link.alpha_ns * steps, per_byte * steps


def _recursive_doubling(link: Link, nodes: int) -> tuple[float, float]:
    steps = math.log2(nodes)
    per_byte = link.beta_ns_per_byte + link.gamma_ns_per_byte
    return link.alpha_ns * steps, per_byte * steps


def _halving_doubling(link: Link, nodes: int) -> tuple[float, float]:
    beta, gamma = link.beta_ns_per_byte, link.gamma_ns_per_byte
    return 2 * link.alpha_ns * math.log2(nodes), 2 * beta - (2 * beta + gamma) / nodes + gamma


def _ring(link: Link, nodes: int) -> tuple[float, float]:
    share = (nodes - 1) / nodes
    per_byte = 2 * share * link.beta_ns_per_byte + share * link.gamma_ns_per_byte
    return 2 * (nodes - 1) * link.alpha_ns, per_byte


ALGORITHMS: dict[str, Callable[[Link, int], tuple[float, float]]] = {
    "binary-tree": _binary_tree,
    "recursive-doubling": _recursive_doubling,
    "halving-doubling": _halving_doubling,
    "ring": _ring,
}
"""Each returns (a in ns, b in ns per byte)."""


def network_from_link(
    algorithm: str, nodes: int, link: Link, eta_ns_per_byte: float = 0.0
) -> NetworkModel:
    """Return the network on which `nodes` nodes all-reduce with this algorithm over this link."""
    if algorithm not in ALGORITHMS:
        raise InputError(
            f"unknown algorithm {shown(algorithm)}.{did_you_mean(algorithm, ALGORITHMS)}",
            field="algorithm",
        )
    whole(nodes, "nodes", 2, MAX_GPUS)
    a_ns, b_ns_per_byte = ALGORITHMS[algorithm](link, nodes)
    return NetworkModel(round(a_ns), b_ns_per_byte, eta_ns_per_byte)
