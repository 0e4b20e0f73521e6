"""Messages on the ports of a live cluster: compiled, by the same arithmetic as in the engine.

A live message ends when its job says so. Until then the contention model tells what it has left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from headway import jit
from headway.domain.records import NOBODY, ClusterView, Records
from headway.network.messages import (
    bytes_left,
    message_cost_ns_per_byte,
    most_messages,
    put_on_ports,
    take_off_ports,
)
from headway.network.sharing import SHARE, share_fairly
from headway.policies.compilation import SIGNATURES

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def join(cluster: ClusterView, job: int) -> int:
    """Put a job's message on its ports; return on how many."""
    put_on_ports(cluster, job)
    return int(cluster.jobs[job].links)


def leave(cluster: ClusterView, job: int) -> int:
    """Take a job's message off its ports; return how many they were."""
    take_off_ports(cluster, job)
    return int(cluster.jobs[job].links)


def rate(
    cluster: ClusterView,
    sending: Integers,
    count: int,
    ports: Integers,
    shares: Records,
    costs: Floats,
) -> int:
    """Where the cost of a byte has changed, count what was sent at the old one.

    `sending[:count]` are the jobs whose messages run; the rest is scratch. Return for how many the
    cost has changed.
    """
    jobs = cluster.jobs
    now_ns = cluster.system[0].now_ns
    fair = cluster.system[0].max_min != 0 and cluster.system[0].contends != 0
    if fair:
        used = 0
        for port in range(len(cluster.ports)):
            if cluster.ports[port].messages > 0:
                ports[used] = port
                used += 1
        for turn in range(count):
            costs[sending[turn]] = 0.0
        share_fairly(cluster, ports, used, shares, costs)
    changed = 0
    for turn in range(count):
        job = sending[turn]
        if fair:
            cost = jobs[job].byte_weight * costs[job]
        else:
            cost = message_cost_ns_per_byte(cluster, job)
        if cost != jobs[job].message_cost_ns_per_byte:
            jobs[job].message_bytes_left = bytes_left(cluster, job)
            jobs[job].message_since_ns = max(now_ns, jobs[job].message_since_ns)
            jobs[job].message_k = max(1, most_messages(cluster, job))
            jobs[job].message_cost_ns_per_byte = cost
            changed += 1
    return changed


def add_up_loads(cluster: ClusterView) -> int:
    """Bring L_g and L_S up to date; return the number of GPUs."""
    jobs, gpus, servers, seats = cluster.jobs, cluster.gpus, cluster.servers, cluster.seats
    for server in range(len(servers)):
        servers[server].load_ns = 0
    for gpu in range(len(gpus)):
        load_ns = 0
        seat = gpus[gpu].held
        while seat != NOBODY:
            load_ns += jobs[seats[seat].job].remaining_service_ns
            seat = seats[seat].beside
        gpus[gpu].load_ns = load_ns
        servers[gpus[gpu].server].load_ns += load_ns
    return len(gpus)


class Traffic(NamedTuple):
    """The compiled functions."""

    join: Callable[..., int]
    leave: Callable[..., int]
    rate: Callable[..., int]
    add_up_loads: Callable[..., int]


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
def traffic() -> Traffic:
    """Return the compiled functions; compiled now if this is their first use."""
    cluster = SIGNATURES["priority"].args[0]
    integers, floats = types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C")
    shares = types.Array(numba.from_dtype(SHARE), 1, "C")

    def compile_one(function: Callable[..., int], *arguments: Any) -> Callable[..., int]:
        signature = types.int64(*arguments)
        code = jit.entry_point(function, signature, "the live scheduler", _nrt=False)
        _kept.append(code)
        return direct(code)

    return Traffic(
        compile_one(join, cluster, types.int64),
        compile_one(leave, cluster, types.int64),
        compile_one(rate, cluster, integers, types.int64, integers, shares, floats),
        compile_one(add_up_loads, cluster),
    )


_kept: list[Any] = []
"""What `direct` returns lives only as long as what it is taken from."""
