"""The numpy record layouts that the engine, the policies and the results share.

Every quantity is an integer (nanoseconds, bytes) except the bytes a running message has left, which
is a float64 as docs/model.md says. `ClusterView` is what a policy may look at; it never needs more.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

Records: TypeAlias = "np.recarray[Any, Any]"

NOBODY = -1
"""The empty link: no seat, no job, no time yet."""

SYSTEM = np.dtype(
    [
        ("now_ns", np.int64),
        ("seed", np.int64),
        ("a_ns", np.int64),
        ("b_ns_per_byte", np.float64),
        ("eta_ns_per_byte", np.float64),
        ("contends", np.int64),
        ("max_min", np.int64),  # whether messages have fair shares
        ("ring_servers", np.int64),  # among which a and b hold; 0: among any number
        ("bucket_bytes", np.int64),  # the most that one message may carry
    ],
    align=True,
)
"""One record: the clock, the seed and the network (T = a + k*b*M + (k-1)*eta*M)."""

JOB = np.dtype(
    [
        ("arrival_ns", np.int64),
        ("gpus", np.int64),
        ("iterations", np.int64),
        # On the slowest of its GPUs or, before it is placed, on the fastest type of GPU.
        ("forward_ns", np.int64),
        ("backward_ns", np.int64),
        ("gradient_bytes", np.int64),
        ("memory_bytes", np.int64),
        # Its GPUs are seats[first_seat + i].gpu for i < gpus, its servers
        # links[first_link + i].port for i < servers; both only once it is placed. If it crosses
        # racks its links go on, up to `links`, with the ports of their uplinks.
        ("first_seat", np.int64),
        ("first_link", np.int64),
        ("servers", np.int64),
        ("links", np.int64),
        ("iterations_left", np.int64),
        ("service_ns", np.int64),  # s_J: one GPU, one iteration
        ("remaining_service_ns", np.int64),  # L_J
        ("priority_key", np.int64),
        ("start_ns", np.int64),
        ("finish_ns", np.int64),
        # The message that is ready or on the network; message_k is 0 until it is on the network.
        ("message_bytes", np.int64),
        ("unsent_bytes", np.int64),  # of this iteration's gradients: message_bytes and what follows
        ("message_k", np.int64),
        ("message_start_ns", np.int64),
        (
            "message_since_ns",
            np.int64,
        ),  # the later of its last change of k and the end of its latency
        ("message_bytes_left", np.float64),  # at message_since_ns
        ("message_cost_ns_per_byte", np.float64),  # since then
        # Its messages' a and what their bytes weigh against b; they follow from `servers`.
        ("latency_ns", np.int64),
        ("byte_weight", np.float64),
    ],
    align=True,
)

GPU = np.dtype(
    [
        ("free_bytes", np.int64),
        ("load_ns", np.int64),  # L_g; up to date when a placement policy is asked
        ("server", np.int32),
        ("type", np.int32),
        ("held", np.int32),  # the first seat of the list of all jobs that it holds
        ("ready", np.int32),  # the first seat, in priority order, with a task to start
        ("group", np.int32),  # of the task that runs on it, or NOBODY
        ("listed", np.int32),  # whether dispatch will look at it at this instant
    ],
    align=True,
)

SERVER = np.dtype(
    [
        ("load_ns", np.int64),  # L_S; up to date when a placement policy is asked
        ("first_gpu", np.int32),
        ("gpus", np.int32),
        ("rack", np.int32),
    ],
    align=True,
)

PORT = np.dtype(
    [
        ("factor", np.float64),  # a byte's cost here against its cost on a server's port
        ("messages", np.int32),  # how many are on it
        ("first_message", np.int32),  # the link of the latest of them
        ("held", np.int32),  # the first link of the list of all jobs that may send here
        ("jobs", np.int32),  # how many those are
        ("touched", np.int32),  # whether a message came or left at this instant
    ],
    align=True,
)
"""Where messages meet: port p is the network of server p, or the uplink of rack p - servers."""

SEAT = np.dtype(
    [
        ("job", np.int32),
        ("gpu", np.int32),
        ("stage", np.int32),
        ("group", np.int32),  # the group that its task runs in, or NOBODY
        ("next", np.int32),  # in the GPU's list of ready seats, or in the group
        ("beside", np.int32),  # the next seat of the GPU's list of all
    ],
    align=True,
)
"""A job's place on one of its GPUs; `stage` is the compute task it does next or now, or DONE."""

LINK = np.dtype(
    [
        ("job", np.int32),
        ("port", np.int32),
        ("next", np.int32),  # in the port's list of messages
        ("previous", np.int32),
        ("beside", np.int32),  # the next link of the port's list of all
    ],
    align=True,
)
"""A job's place on one of the ports that it uses; listed there while its message runs."""

TASK = np.dtype(
    [
        ("start_ns", np.int64),
        ("end_ns", np.int64),
        ("iteration", np.int64),
        ("job", np.int32),
        ("gpu", np.int32),  # NOBODY for a message: it is on all its job's servers
        ("kind", np.int8),
    ],
    align=True,
)
"""One row of a timeline."""

FORWARD, BACKWARD, MESSAGE = 0, 1, 2
"""Kinds of task; the first two are also a seat's stages."""

DONE = 2
"""The stage of a seat whose backward task has ended."""


class ClusterView(NamedTuple):
    """The cluster as a policy sees it (read only, by convention)."""

    system: Records
    jobs: Records
    gpus: Records
    servers: Records
    seats: Records
    links: Records
    ports: Records


def zeros(count: int, dtype: np.dtype[Any]) -> Records:
    """Return `count` zeroed records whose fields are attributes, compiled or not."""
    return np.zeros(count, dtype).view(np.recarray)
