"""The one place where a network's law is looked up: compiled functions that call the law's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.domain.records import ClusterView
from headway.jit import part
from headway.network.laws.registry import LAWS
from headway.network.traffic import Traffic


def _dispatcher(functions: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that calls functions[law] with the other arguments, a cluster first."""
    if len(functions) == 1:
        only = functions[0]

        @part
        def last(law: int, cluster: ClusterView, argument: Any) -> Any:
            return only(cluster, argument)

        return last
    first, following = functions[0], _dispatcher(functions[1:])

    @part
    def choose(law: int, cluster: ClusterView, argument: Any) -> Any:
        if law == 0:
            return first(cluster, argument)
        return following(law - 1, cluster, argument)

    return choose


_find_costs = _dispatcher([law.function("find_costs") for law in LAWS.values()])
_alone_ns_per_byte = _dispatcher([law.function("alone_ns_per_byte") for law in LAWS.values()])


@part
def find_costs(cluster: ClusterView, traffic: Traffic) -> int:
    """Find the costs that have changed by the network's law; return how many were found.

    They are traffic.costs[message] of the messages traffic.found[:count].
    """
    return int(_find_costs(cluster.system[0].law, cluster, traffic))


@part
def alone_ns_per_byte(cluster: ClusterView, message: int) -> float:
    """Return the cost of a message's bytes, in ns, where no other message is."""
    return float(_alone_ns_per_byte(cluster.system[0].law, cluster, message))
