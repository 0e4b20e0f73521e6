"""The operations on a cluster's arrays that the engine uses too, compiled to be called from Python.

A live message ends when its job says so. Until then the contention model estimates what it has
left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from headway import jit
from headway.domain import occupancy
from headway.domain.records import IN_FLIGHT, ClusterView, Floats
from headway.jit import inlined
from headway.network import messages, placed_jobs
from headway.network import traffic as network_traffic
from headway.network.laws.dispatch import update_costs
from headway.network.traffic import Traffic, forget_changes, put_on_ports, touch


def resume_message(cluster: ClusterView, traffic: Traffic, message: int) -> None:
    """Put a message in flight on the ports of rebuilt arrays."""
    put_on_ports(cluster, message)
    record = cluster.messages[message]
    for link in range(record.first_link, record.first_link + record.links):
        touch(traffic, cluster.links[link].port)


@inlined
def sent_since(cluster: ClusterView, message: int, since_ns: int) -> float:
    """Return the bytes that a message could have sent since a time at its cost."""
    record = cluster.messages[message]
    if record.state != IN_FLIGHT or record.cost_ns_per_byte <= 0:
        return 0.0
    begin_ns = max(since_ns, record.start_ns + record.latency_ns)
    passed_ns = max(0, cluster.system[0].now_ns - begin_ns)
    return float(passed_ns / record.cost_ns_per_byte)


def rate_all(cluster: ClusterView, traffic: Traffic, sent: Floats, since_ns: int) -> None:
    """Give every message whose cost has changed its new one.

    Before that, add to `sent` what each has sent since the last time by its old one.
    """
    for message in range(len(cluster.messages)):
        sent[message] += sent_since(cluster, message, since_ns)
    update_costs(cluster, traffic)
    forget_changes(traffic)


class Operations(NamedTuple):
    """The compiled functions; see the functions of the same names."""

    list_candidates: Callable[..., int]
    assign_first: Callable[..., bool]
    has_room: Callable[..., bool]
    could_hold: Callable[..., bool]
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
    sent_since: Callable[..., float]
    bytes_left: Callable[..., float]


@cache
def operations() -> Operations:
    """Return the compiled functions; compiled now if this is their first use."""
    number, integers, floats = int, np.dtype(np.int64), np.dtype(np.float64)

    def compiled(function: Any, returns: type | None, *arguments: Any) -> Callable[..., Any]:
        signature = jit.signature(returns, *arguments)
        plain = getattr(function, "py_func", function)
        return jit.load(jit.EntryPoint(plain, signature, "the live scheduler", {"_nrt": False}))

    nothing, on_job = None, (ClusterView, int)
    on_message = (ClusterView, Traffic, int)
    return Operations(
        list_candidates=compiled(occupancy.list_candidates, number, *on_job, integers),
        assign_first=compiled(occupancy.assign_first, bool, *on_job, integers),
        has_room=compiled(occupancy.has_room, bool, *on_job, number),
        could_hold=compiled(occupancy.could_hold, bool, ClusterView, number, number),
        hold=compiled(occupancy.hold, nothing, *on_job),
        put_on_cluster=compiled(placed_jobs.put_on_cluster, nothing, *on_job),
        take_off_cluster=compiled(placed_jobs.take_off_cluster, nothing, *on_job),
        disconnect_messages=compiled(placed_jobs.disconnect_messages, nothing, *on_job),
        one_service_ns=compiled(placed_jobs.one_service_ns, number, *on_job),
        add_up_loads=compiled(occupancy.add_up_loads, nothing, ClusterView),
        add_load=compiled(occupancy.add_load, nothing, *on_job),
        start_message=compiled(network_traffic.start_message, nothing, *on_message),
        end_message=compiled(network_traffic.end_message, nothing, *on_message),
        resume_message=compiled(resume_message, nothing, *on_message),
        list_waiting=compiled(network_traffic.list_waiting, number, ClusterView, Traffic),
        rate_all=compiled(rate_all, nothing, ClusterView, Traffic, floats, number),
        sent_since=compiled(sent_since, float, *on_job, number),
        bytes_left=compiled(messages.bytes_left, float, *on_job),
    )
