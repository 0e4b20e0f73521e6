"""The numpy record layouts that the engine, the live core, the policies and the results share.

Every quantity is an integer (nanoseconds, bytes) except costs, weights and the bytes that a message
in flight has left, which are float64 as docs/model.md says. `ClusterView` is all that a policy
sees; what only the engine needs to know of a job, a GPU or a seat is in `engine.state`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.jit.views import Columns, View, signature

Records: TypeAlias = np.recarray[Any, Any]
Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

NOBODY = -1
"""The end of a list; no seat, no job, no message, no time yet."""

SYSTEM = np.dtype(
    [
        ("now_ns", np.int64),
        ("seed", np.int64),
        ("a_ns", np.int64),
        ("b_ns_per_byte", np.float64),
        ("eta_ns_per_byte", np.float64),
        ("law", np.int64),  # the index of the network's law in `network.laws.registry.LAWS`
        ("messages_meet", np.int64),  # whether messages slow each other down by this law
        ("ring_size", np.int64),  # servers among which a and b were measured; 0: they hold for any
        ("bucket_bytes", np.int64),  # the most that one message may carry
        # GPUs with this much memory are kept for queued jobs that come before the one to be placed.
        ("reserved_bytes", np.int64),
    ],
    align=True,
)
"""One record: the clock, the seed and the network (T = a + k*b*M + (k-1)*eta*M)."""

NOT_RESERVED = 2**63 - 1
"""The `reserved_bytes` that no GPU has."""

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
        ("exclusive", np.int64),  # whether no other job may share its GPUs
        # Which graph its iterations are, or NOBODY: forward, backward, all-reduce. With a graph
        # forward_ns is u_J, backward_ns 0, and gradient_bytes the sum of its messages.
        ("graph", np.int64),
        # Once it is placed its GPUs are seats[first_seat + i].gpu for i < gpus. It sends
        # messages[first_message + i] for i < messages.
        ("first_seat", np.int64),
        ("first_message", np.int64),
        ("messages", np.int64),
        ("servers", np.int64),  # that its GPUs are in; 0 before it is placed
        ("iterations_left", np.int64),
        ("service_ns", np.int64),  # s_J: one GPU, one iteration
        ("remaining_service_ns", np.int64),  # L_J
        ("priority", np.int64),  # given by its user: a job of higher priority goes first
        ("priority_key", np.int64),  # the order among jobs of one priority
        ("start_ns", np.int64),
        ("finish_ns", np.int64),
    ],
    align=True,
)

MESSAGE = np.dtype(
    [
        ("size_bytes", np.int64),  # of all its buckets
        ("bytes", np.int64),  # of the bucket that is ready or in flight
        ("unsent_bytes", np.int64),  # in this iteration: `bytes` and the buckets that follow
        ("ready_ns", np.int64),
        ("start_ns", np.int64),
        ("since_ns", np.int64),  # the later of the last change of its cost and its latency's end
        ("bytes_left", np.float64),  # at since_ns
        ("cost_ns_per_byte", np.float64),  # since then
        ("k", np.int64),  # the most messages on one of its links when its cost last changed
        # Its a, and the cost of its bytes relative to b; they follow from `servers`.
        ("latency_ns", np.int64),
        ("byte_weight", np.float64),
        ("job", np.int32),
        ("state", np.int32),
        # Once its job is placed its ports are links[first_link + i].port for i < links: those of
        # its servers first, then the uplinks of the switches that it crosses, tier by tier.
        ("first_link", np.int32),
        ("servers", np.int32),
        ("links", np.int32),
    ],
    align=True,
)
"""One message of a job in each of its iterations, sent whole or as a chain of buckets.

It is the job's all-reduce or, with a graph, that of one group of an entry.
"""

NOT_READY, READY, IN_FLIGHT = 0, 1, 2
"""States of a message: to come or sent, waiting for admission, on the network."""

MESSAGE_GROUP = np.dtype(
    [
        ("bytes", np.int64),  # M, from which the message's size follows
        # The computing that comes after it: the longest path to the end of the iteration, on the
        # fastest types of GPU, where messages take no time.
        ("behind_ns", np.int64),
        ("first_rank", np.int32),  # its ranks are ranks[first_rank + i] for i < ranks, ascending
        ("ranks", np.int32),
        ("kind", np.int32),  # see `message_kinds`
    ],
    align=True,
)
"""The ranks that a message of a graph is among. Rank r of a job has the job's seat r."""

GPU = np.dtype(
    [
        ("memory_bytes", np.int64),
        ("free_bytes", np.int64),
        ("load_ns", np.int64),  # L_g; up to date when a placement policy is asked
        ("server", np.int32),
        ("type", np.int32),
        ("held", np.int32),  # the first seat of the list of all jobs that it holds
        ("closed", np.int32),  # whether it takes no more jobs
    ],
    align=True,
)

SERVER = np.dtype(
    [
        ("load_ns", np.int64),  # L_S; up to date when a placement policy is asked
        ("first_gpu", np.int32),
        ("gpus", np.int32),
        ("rack", np.int32),  # its switch of the lowest tier
        ("first_port", np.int32),
        ("rails", np.int32),  # how many ports it has; its GPUs share them in equal blocks
    ],
    align=True,
)

PORT = np.dtype(
    [
        ("factor", np.float64),  # a byte's cost here relative to its cost on a server's port
        ("carries", np.int32),  # how many messages have room here beside each other
        ("messages", np.int32),  # how many are in flight here
        ("first_in_flight", np.int32),  # the link of the latest of them
        ("held", np.int32),  # the first of the list of links here, one for each job
        ("links", np.int32),  # how many that list has
        ("server", np.int32),  # whose rail it is; NOBODY for an uplink
        ("above", np.int32),  # the uplink of the switch over it, or NOBODY
    ],
    align=True,
)
"""Where messages meet: the rails of servers, server by server, then uplinks, tier by tier.

With one rail for each server, port p is the network of server p.
"""

SEAT = np.dtype(
    [
        ("job", np.int32),
        ("gpu", np.int32),
        ("beside", np.int32),  # the next seat of the GPU's list
    ],
    align=True,
)
"""A job's use of one of its GPUs."""

LINK = np.dtype(
    [
        ("message", np.int32),
        ("port", np.int32),
        ("next", np.int32),  # in the port's list of messages in flight
        ("beside", np.int32),  # in the port's list of jobs, or UNLISTED
    ],
    align=True,
)
"""A message's use of one of its ports. Of a job's links to one port, one is in the port's list."""

UNLISTED = -2

TASK = np.dtype(
    [
        ("ready_ns", np.int64),  # of a message
        ("start_ns", np.int64),
        ("end_ns", np.int64),
        ("iteration", np.int64),
        ("job", np.int32),
        ("gpu", np.int32),  # NOBODY for a message
        ("node", np.int32),  # of the job's graph, or NOBODY
        ("kind", np.int8),
    ],
    align=True,
)
"""One row of a timeline."""

FORWARD, BACKWARD, COMMUNICATION, COMPUTE, PLACEMENT = range(5)
"""Kinds of task; a task of a graph is COMPUTE. PLACEMENT is not a task: it says that a job has got
a GPU, and comes before all tasks of the job.
"""


ROW = np.dtype(np.int64)
"""An array of integers in the signature of a compiled function."""


class ClusterView(View):
    """The cluster as a policy sees it; users' policies cannot write to it."""

    system: Annotated[Records, SYSTEM]
    jobs: Annotated[Records, JOB]
    messages: Annotated[Records, MESSAGE]
    message_groups: Annotated[Records, MESSAGE_GROUP]  # by message, if some job has a graph
    ranks: Integers
    gpus: Annotated[Records, GPU]
    servers: Annotated[Records, SERVER]
    seats: Annotated[Records, SEAT]
    links: Annotated[Records, LINK]
    sending_ns: Integers  # by link, if some job has a graph: see `traffic.connect`
    # By link, if some server has several rails: the part of the message's bytes that it carries.
    shares: Floats
    ports: Annotated[Records, PORT]
    extra: Columns  # labels of jobs that are numbers, by name and job; NaN where there is none
    # What a job with a graph would send; see the function of this name in `network.cuts`.
    sending_by_server: Annotated[Callable[..., None], signature(None, ClusterView, int, ROW, ROW)]


def zeros(count: int, dtype: np.dtype[Any]) -> Records:
    """Return `count` zeroed records whose fields are attributes, compiled or not."""
    return np.zeros(count, dtype).view(np.recarray)
