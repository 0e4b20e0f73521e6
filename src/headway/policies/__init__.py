"""The decisions: where a job goes, which job comes first, whose message may start.

Everything that a policy may use is here, and the policies that Headway ships import nothing else.

A policy is a function, registered with a decorator:

- `placement_policy`, `priority_policy`, `admission_policy`: the decorators.
- `Parameter`: what the number after the colon in a name such as `lwf:1` may be.
- `WAIT`, `ADMIT`: what an admission returns, unless it returns a time in ns. `NO_LIMIT`: what an
  admission by port returns where all messages may start.

It reads the cluster and nothing else:

- `ClusterView`: its arrays; docs/reference/policies.md explains every field.
- `NOBODY`: -1, the end of a list. `NOT_READY`, `READY`, `IN_FLIGHT`: the states of a message.
- `HORIZON_NS`, `LONGEST_NS`: the latest time, and the longest that anything may take.

Helpers, compiled, to be called from policies:

- `bytes_left`, `most_messages`, `messages_in_the_way`, `messages_meet`, `share_a_port`,
  `is_first_rail`: about messages.
- `all_reduce_alone_ns`: about jobs.
- `put_least_first`, `sort_by_key`, `stable_sort`, `bring_forward`: sorting and selection of
  arrays of `Integers`.
- `count_by_server`, `servers_with`, `fewest_servers`, `take_from_servers`: for placements that
  decide how many GPUs each server gives.

Decorators for your own helpers:

- `routine`: may make arrays; for placements, and for policies that are registered with `allocates`.
- `part`: must not make arrays; for any policy. `inlined`: likewise, compiled into its callers.

Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.domain.limits import HORIZON_NS, LONGEST_NS
    from headway.domain.records import (
        IN_FLIGHT,
        NOBODY,
        NOT_READY,
        READY,
        ClusterView,
        Integers,
    )
    from headway.jit import inlined, part, routine
    from headway.network.messages import (
        all_reduce_alone_ns,
        bytes_left,
        is_first_rail,
        messages_in_the_way,
        messages_meet,
        most_messages,
        share_a_port,
    )
    from headway.policies.by_server import (
        count_by_server,
        fewest_servers,
        servers_with,
        take_from_servers,
    )
    from headway.policies.ordering import bring_forward, put_least_first, sort_by_key, stable_sort
    from headway.policies.registry import (
        ADMIT,
        NO_LIMIT,
        WAIT,
        Parameter,
        admission_policy,
        placement_policy,
        priority_policy,
    )

_HOMES = {
    "ADMIT": "policies.registry",
    "HORIZON_NS": "domain.limits",
    "IN_FLIGHT": "domain.records",
    "LONGEST_NS": "domain.limits",
    "NOBODY": "domain.records",
    "NO_LIMIT": "policies.registry",
    "NOT_READY": "domain.records",
    "READY": "domain.records",
    "WAIT": "policies.registry",
    "ClusterView": "domain.records",
    "Integers": "domain.records",
    "Parameter": "policies.registry",
    "admission_policy": "policies.registry",
    "all_reduce_alone_ns": "network.messages",
    "bring_forward": "policies.ordering",
    "bytes_left": "network.messages",
    "count_by_server": "policies.by_server",
    "fewest_servers": "policies.by_server",
    "inlined": "jit",
    "is_first_rail": "network.messages",
    "messages_in_the_way": "network.messages",
    "messages_meet": "network.messages",
    "most_messages": "network.messages",
    "part": "jit",
    "placement_policy": "policies.registry",
    "priority_policy": "policies.registry",
    "put_least_first": "policies.ordering",
    "routine": "jit",
    "servers_with": "policies.by_server",
    "share_a_port": "network.messages",
    "sort_by_key": "policies.ordering",
    "stable_sort": "policies.ordering",
    "take_from_servers": "policies.by_server",
}

__all__ = [
    "ADMIT",
    "HORIZON_NS",
    "IN_FLIGHT",
    "LONGEST_NS",
    "NOBODY",
    "NOT_READY",
    "NO_LIMIT",
    "READY",
    "WAIT",
    "ClusterView",
    "Integers",
    "Parameter",
    "admission_policy",
    "all_reduce_alone_ns",
    "bring_forward",
    "bytes_left",
    "count_by_server",
    "fewest_servers",
    "inlined",
    "is_first_rail",
    "messages_in_the_way",
    "messages_meet",
    "most_messages",
    "part",
    "placement_policy",
    "priority_policy",
    "put_least_first",
    "routine",
    "servers_with",
    "share_a_port",
    "sort_by_key",
    "stable_sort",
    "take_from_servers",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"headway.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
