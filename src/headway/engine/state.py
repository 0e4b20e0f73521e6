"""What a running simulation remembers: arrays made once, as large as there are GPUs and jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.domain.records import (
    LINK,
    NOBODY,
    SEAT,
    TASK,
    ClusterView,
    Records,
    zeros,
)

GANG = np.dtype(
    [
        ("tasks_left", np.int64),  # before the iteration's barrier
        ("forward_group_ns", np.int64),  # when the latest group of each stage started
        ("backward_group_ns", np.int64),
        ("servers_mask", np.int64),  # bit s % 64 for each server s; see `admit`
        ("due", np.int64),  # whether the time has come that an admission named
        ("forward_group", np.int32),
        ("backward_group", np.int32),
    ],
    align=True,
)
"""A job's progress that no policy needs."""

GROUP = np.dtype(
    [("start_ns", np.int64), ("job", np.int32), ("stage", np.int32), ("first_seat", np.int32)],
    align=True,
)
"""Compute tasks of one job and stage that started, and so will end, together: one event."""

EVENT = np.dtype([("time_ns", np.int64), ("event", np.int64)], align=True)
"""An end: of group e for e < number of GPUs, else of the message of job e - number of GPUs."""

NEVER_ASKED = -1

ENTRY = np.dtype([("job", np.int64), ("wake", np.int64)], align=True)
"""A job in the queue or waiting to send. `wake` is NEVER_ASKED until a policy has been asked about
it; then, for a message, its job's servers_mask.
"""

REFUSAL = np.dtype([("memory_bytes", np.int64), ("gpus", np.int64)], align=True)
"""What there was no room for in this placement step."""

MOST_REFUSALS = 16

RULES = np.dtype(
    [
        ("placement_parameter", np.float64),
        ("priority_parameter", np.float64),
        ("admission_parameter", np.float64),
        ("placement_steady", np.int64),
        ("admission_steady", np.int64),
    ],
    align=True,
)
"""One record: the policies' parameters and promises."""

TALLY = np.dtype(
    [
        # How full each list of the state is.
        ("heap", np.int64),
        ("queue", np.int64),
        ("waiting", np.int64),
        ("running", np.int64),
        ("idle", np.int64),
        ("touched", np.int64),
        ("free_groups", np.int64),
        ("timeline", np.int64),
        # What has happened since the start.
        ("arrived", np.int64),
        ("finished", np.int64),
        ("compute_tasks", np.int64),
        ("messages", np.int64),
        # What has happened since the policies were last asked.
        ("fresh_jobs", np.int64),
        ("fresh_messages", np.int64),
        ("left_cluster", np.int64),
        ("left_network_mask", np.int64),  # the servers_mask of all messages that ended
        # The job for which a placement went wrong.
        ("culprit", np.int64),
    ],
    align=True,
)
"""One record of counts."""

Rule = Callable[..., Any]
"""A compiled policy."""

Integers = NDArray[np.int64]


class State(NamedTuple):
    """The view that policies see, and the engine's own bookkeeping."""

    cluster: ClusterView
    rules: Records
    tally: Records
    gangs: Records
    groups: Records
    heap: Records
    places: Integers
    arrivals: Integers  # jobs by (arrival, index)
    queue: Records  # arrived, not placed; in priority order
    waiting: Records  # ready to send, not admitted; in priority order
    running: Integers  # placed, not finished; in no order
    idle: Integers  # GPUs that dispatch must look at
    touched: Integers  # servers whose number of messages may have changed
    free_groups: Integers  # a stack
    candidates: Integers  # scratch for placement
    refusals: Records  # scratch for placement
    timeline: Records


def make_state(
    system: Records,
    jobs: Records,
    servers: Records,
    gpus: Records,
    rules: Records,
    timeline_rows: int,
) -> State:
    """Lay out a simulation that has not begun."""
    seat_count = int(jobs.gpus.sum())
    jobs.first_seat[1:] = np.cumsum(jobs.gpus)[:-1]
    jobs.iterations_left[:] = jobs.iterations
    jobs.service_ns[:] = jobs.forward_ns + jobs.backward_ns
    jobs.remaining_service_ns[:] = jobs.iterations * jobs.service_ns * jobs.gpus
    jobs.start_ns[:] = NOBODY
    jobs.finish_ns[:] = NOBODY
    gpus.ready[:] = NOBODY
    servers.first_link[:] = NOBODY
    seats, links = zeros(seat_count, SEAT), zeros(seat_count, LINK)
    seats.job[:] = links.job[:] = np.repeat(np.arange(len(jobs)), jobs.gpus)
    gangs = zeros(len(jobs), GANG)
    gangs.forward_group_ns[:] = gangs.backward_group_ns[:] = NOBODY
    tally = zeros(1, TALLY)
    tally.free_groups[:] = len(gpus)

    def integers(count: int) -> Integers:
        return np.zeros(count, np.int64)

    return State(
        cluster=ClusterView(system, jobs, gpus, servers, seats, links),
        rules=rules,
        tally=tally,
        gangs=gangs,
        groups=zeros(len(gpus), GROUP),
        heap=zeros(len(gpus) + len(jobs), EVENT),
        places=np.full(len(gpus) + len(jobs), NOBODY, np.int64),
        arrivals=np.argsort(jobs.arrival_ns, kind="stable").astype(np.int64),
        queue=zeros(len(jobs), ENTRY),
        waiting=zeros(len(jobs), ENTRY),
        running=integers(len(jobs)),
        idle=integers(len(gpus)),
        touched=integers(len(servers)),
        free_groups=np.arange(len(gpus), dtype=np.int64),
        candidates=integers(len(gpus)),
        refusals=zeros(MOST_REFUSALS, REFUSAL),
        timeline=zeros(timeline_rows, TASK),
    )
