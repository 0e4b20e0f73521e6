"""The operations on a cluster's arrays that the engine uses too, compiled to be called from Python.

A live message ends when its job says so. Until then the contention model estimates what it has
left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
from numba import types

from headway import jit
from headway.domain import occupancy
from headway.domain.records import ClusterView
from headway.network import messages, placed_jobs
from headway.network import traffic as network_traffic
from headway.network.laws.dispatch import update_costs
from headway.network.traffic import Traffic, forget_changes, make_traffic, put_on_ports, touch
from headway.policies.compilation import SIGNATURES


def resume_message(cluster: ClusterView, traffic: Traffic, message: int) -> None:
    """Put a message in flight on the ports of rebuilt arrays."""
    put_on_ports(cluster, message)
    record = cluster.messages[message]
    for link in range(record.first_link, record.first_link + record.links):
        touch(traffic, cluster.links[link].port)


def rate_all(cluster: ClusterView, traffic: Traffic) -> None:
    """Give every message whose cost has changed its new one."""
    update_costs(cluster, traffic)
    forget_changes(traffic)


class Operations(NamedTuple):
    """The compiled functions; see the functions of the same names."""

    list_candidates: Callable[..., int]
    assign_first: Callable[..., bool]
    has_room: Callable[..., bool]
    hold: Callable[..., None]
    put_on_cluster: Callable[..., None]
    take_off_cluster: Callable[..., None]
    disconnect_messages: Callable[..., None]
    one_service_ns: Callable[..., int]
    add_up_loads: Callable[..., None]
    add_load: Callable[..., None]
    start_message: Callable[..., None]
    end_message: Callable[..., None]
    resume_message: Callable[..., None]
    list_waiting: Callable[..., int]
    rate_all: Callable[..., None]
    bytes_left: Callable[..., float]


def direct(compiled: Any) -> Callable[..., Any]:
    """Return the machine code of a function's only signature, to be called with just its types.

    A dispatcher looks at every argument's type first, which for a cluster takes many times as long
    as the call. Without the JIT it is the function itself.
    """
    overloads = getattr(compiled, "overloads", None)
    if not overloads:
        return compiled  # type: ignore[no-any-return]
    (overload,) = overloads.values()
    return overload.entry_point  # type: ignore[no-any-return]


@cache
def operations() -> Operations:
    """Return the compiled functions; compiled now if this is their first use."""
    cluster, traffic = SIGNATURES["priority"].args[0], numba.typeof(make_traffic(1, 1))
    number, integers = types.int64, types.Array(types.int64, 1, "C")

    def compiled(function: Any, returns: Any, *arguments: Any) -> Callable[..., Any]:
        plain = getattr(function, "py_func", function)
        code = jit.entry_point(plain, returns(*arguments), "the live scheduler", _nrt=False)
        _kept.append(code)
        return direct(code)

    nothing, on_job, on_message = types.void, (cluster, number), (cluster, traffic, number)
    return Operations(
        list_candidates=compiled(occupancy.list_candidates, number, *on_job, integers),
        assign_first=compiled(occupancy.assign_first, types.boolean, *on_job, integers),
        has_room=compiled(occupancy.has_room, types.boolean, *on_job, number),
        hold=compiled(occupancy.hold, nothing, *on_job),
        put_on_cluster=compiled(placed_jobs.put_on_cluster, nothing, *on_job),
        take_off_cluster=compiled(placed_jobs.take_off_cluster, nothing, *on_job),
        disconnect_messages=compiled(placed_jobs.disconnect_messages, nothing, *on_job),
        one_service_ns=compiled(placed_jobs.one_service_ns, number, *on_job),
        add_up_loads=compiled(occupancy.add_up_loads, nothing, cluster),
        add_load=compiled(occupancy.add_load, nothing, *on_job),
        start_message=compiled(network_traffic.start_message, nothing, *on_message),
        end_message=compiled(network_traffic.end_message, nothing, *on_message),
        resume_message=compiled(resume_message, nothing, *on_message),
        list_waiting=compiled(network_traffic.list_waiting, number, cluster, traffic),
        rate_all=compiled(rate_all, nothing, cluster, traffic),
        bytes_left=compiled(messages.bytes_left, types.float64, *on_job),
    )


_kept: list[Any] = []
"""What `direct` returns lives only as long as what it is taken from."""
