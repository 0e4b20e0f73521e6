"""The only module that looks up a network's law: compiled functions that call the law's own.

They are inlined: a call passes every array of the cluster by value, which costs as much as the work
of the usual law.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.domain.records import ClusterView
from headway.jit import inlined
from headway.network.laws.registry import LAWS
from headway.network.traffic import Traffic


def _dispatcher(functions: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that calls functions[law] with the other arguments, a cluster first."""
    if len(functions) == 1:
        only = functions[0]

        @inlined
        def last(law: int, cluster: ClusterView, argument: Any) -> Any:
            return only(cluster, argument)

        return last
    first, following = functions[0], _dispatcher(functions[1:])

    @inlined
    def choose(law: int, cluster: ClusterView, argument: Any) -> Any:
        if law == 0:
            return first(cluster, argument)
        return following(law - 1, cluster, argument)

    return choose


_update_costs = _dispatcher([law.function("update_costs") for law in LAWS.values()])
_alone_ns_per_byte = _dispatcher([law.function("alone_ns_per_byte") for law in LAWS.values()])


@inlined
def update_costs(cluster: ClusterView, traffic: Traffic) -> int:
    """Update costs by the network's law; return how many messages' costs have changed.

    These messages are traffic.found[:count].
    """
    return int(_update_costs(cluster.system[0].law, cluster, traffic))


@inlined
def alone_ns_per_byte(cluster: ClusterView, message: int) -> float:
    """Return the cost of a message's bytes, in ns, where no other message is."""
    return float(_alone_ns_per_byte(cluster.system[0].law, cluster, message))
