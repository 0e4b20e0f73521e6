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
from headway.network.sharing import SHARE

GANG = np.dtype(
    [
        ("tasks_left", np.int64),  # before the iteration's barrier
        ("sent", np.int64),  # messages since the start
        ("solo_ns", np.int64),  # when its latest known iteration began, if it is solo; or NOBODY
        ("period_ns", np.int64),  # from one iteration to the next while it is solo
        ("rated", np.int64),  # the number of the instant at which its message was last looked at
        ("mark", np.int64),  # the search that met it last; see `repeating`
        ("seen_left", np.int64),  # the iterations left when a search met it last
        ("waiting", np.int32),  # whether its message is ready and not admitted
        ("asked", np.int32),  # whether it is in the list of those to ask about
        ("place", np.int32),  # in the list of running jobs
        ("shot", np.int32),  # the set that it belongs to: the number of the set's anchor
        ("next_member", np.int32),  # of that set
        ("inert", np.int32),  # whether some set takes it to be inert
        ("surprises", np.int32),  # how often that was wrong
    ],
    align=True,
)
"""A job's progress that no policy needs."""

PACE = np.dtype(
    [
        ("forward_ns", np.int64),
        ("backward_ns", np.int64),
        ("forward_group_ns", np.int64),  # when the latest group of each stage started
        ("backward_group_ns", np.int64),
        ("forward_group", np.int32),
        ("backward_group", np.int32),
    ],
    align=True,
)
"""A job on one type of GPU: its tasks' times, its latest groups. Of job j on type t: j * T + t."""

GROUP = np.dtype(
    [
        ("start_ns", np.int64),
        ("end_ns", np.int64),
        ("job", np.int32),
        ("stage", np.int32),
        ("first_seat", np.int32),
        ("seats", np.int32),
    ],
    align=True,
)
"""Compute tasks of one job, stage and type that started, and so will end, together: one event."""

FUSED, SOLO = 3, 4
"""Stages of a group: forward and backward as one, see `computing`; a job to its end, see `solo`."""

EVENT = np.dtype([("time_ns", np.int64), ("event", np.int64)], align=True)
"""With G GPUs and J jobs: the end of group e < G; of the message of job e - G < J, or the time
before which it must not start; the return of a set that was skipped forward, e - G - J its anchor.
"""

QUEUE = np.dtype(
    [
        ("memory_bytes", np.int64),
        ("gpus", np.int64),
        ("first", np.int64),  # the jobs in it are queue[first:end]
        ("end", np.int64),
        ("turn", np.int64),  # the next to be tried in this step
        ("kept", np.int64),  # tried in this step and left queued
        ("closed", np.int64),  # whether there is no room for these in this step
    ],
    align=True,
)
"""The queued jobs of one size, a part of the queue, in priority order."""

SHOT = np.dtype(
    [
        ("since_ns", np.int64),  # when the state was copied that is compared with
        ("period_ns", np.int64),
        ("periods", np.int64),  # how many the set is skipped; 0 if it is not
        ("ends", np.int64),  # iterations of the anchor seen
        ("copy_at", np.int64),  # the number of them at which to copy next
        ("look_at", np.int64),  # … and at which to compare next
        ("others", np.int64),  # iterations of other members since the anchor's last
        ("place", np.int64),  # in the list of sets that are skipped
    ],
    align=True,
)
"""A set of jobs that may disturb each other, by the number of its anchor; see `repeating`."""

MEMBER = np.dtype(
    [
        ("iterations_left", np.int64),
        ("priority_key", np.int64),
        ("last_key", np.int64),  # when the set returns
        ("iterations", np.int64),  # ended in one period
        ("messages", np.int64),  # likewise
        ("sent", np.int64),
        ("tasks_left", np.int64),
        ("unsent_bytes", np.int64),
        ("message_bytes", np.int64),
        ("message_k", np.int64),
        ("message_age_ns", np.int64),
        ("message_since_ns", np.int64),  # against the time of the copy
        ("message_end_ns", np.int64),  # likewise
        ("message_bytes_left", np.float64),
        ("message_cost_ns_per_byte", np.float64),
        ("waiting", np.int64),
    ],
    align=True,
)
"""What a set's copied state says of one job."""

POSTURE = np.dtype([("stage", np.int64), ("age_ns", np.int64)], align=True)
"""What a set's copied state says of one seat: its stage and since when its task runs, or NOBODY."""

RULES = np.dtype(
    [
        ("placement_parameter", np.float64),
        ("priority_parameter", np.float64),
        ("admission_parameter", np.float64),
        ("placement_steady", np.int64),
        ("admission_steady", np.int64),
        ("fuses", np.int64),  # whether a forward and its backward may be one event
        ("skips_solo", np.int64),  # whether jobs may run to their end without events
        ("skips_sets", np.int64),  # whether sets that repeat may be skipped forward
        ("types", np.int64),  # of GPUs
    ],
    align=True,
)
"""One record: the policies' parameters and promises, and what follows from them."""

TALLY = np.dtype(
    [
        # How full each list of the state is.
        ("heap", np.int64),
        ("queue", np.int64),
        ("active", np.int64),
        ("fresh", np.int64),
        ("placed", np.int64),
        ("done", np.int64),
        ("asked", np.int64),
        ("running", np.int64),
        ("idle", np.int64),
        ("touched", np.int64),
        ("free_groups", np.int64),
        ("ended", np.int64),
        ("skipped", np.int64),
        ("timeline", np.int64),
        # What has happened since the start.
        ("arrived", np.int64),
        ("finished", np.int64),
        ("compute_tasks", np.int64),
        ("messages", np.int64),
        ("instants", np.int64),
        ("searches", np.int64),
        ("front_ns", np.int64),  # the latest instant so far
        # How things stand.
        ("waiting", np.int64),  # messages ready and not admitted
        ("left_cluster", np.int64),  # jobs, since the placement was last asked
        ("culprit", np.int64),  # the job for which a placement went wrong
    ],
    align=True,
)
"""One record of counts."""

Rule = Callable[..., Any]
"""A compiled policy."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class State(NamedTuple):
    """The view that policies see, and the engine's own bookkeeping."""

    cluster: ClusterView
    rules: Records
    tally: Records
    gangs: Records
    paces: Records
    groups: Records
    heap: Records
    places: Integers
    arrivals: Integers  # jobs by (arrival, index)
    fresh: Integers  # arrived at this instant; in priority order
    queues: Records
    queue_of: Integers  # the queue of each job
    queue: Integers  # arrived, not placed; each queue's part in priority order
    active: Integers  # the queues that are not empty
    asked: Integers  # messages to ask the admission about; in priority order
    running: Integers  # placed, not finished; in no order
    idle: Integers  # GPUs that dispatch must look at
    touched: Integers  # ports whose number of messages may have changed
    shares: Records  # scratch for fair shares, by port
    costs: Floats  # likewise, by job
    free_groups: Integers  # a stack
    candidates: Integers  # scratch for placement
    ended: Integers  # jobs whose iteration ended at this instant and whose set may repeat
    scratch: Integers  # jobs: whose iteration ended, or placed, or found in the search for a set
    shots: Records
    members: Records
    postures: Records
    skipped: Integers  # the anchors of the sets that are skipped
    timeline: Records


def make_state(
    system: Records,
    jobs: Records,
    servers: Records,
    gpus: Records,
    ports: Records,
    paces: Records,
    rules: Records,
    timeline_rows: int,
) -> State:
    """Lay out a simulation that has not begun."""
    seat_count = int(jobs.gpus.sum())
    jobs.first_seat[1:] = np.cumsum(jobs.gpus)[:-1]
    links_per_seat = 1 if len(ports) == len(servers) else 2
    jobs.first_link[:] = links_per_seat * jobs.first_seat
    jobs.iterations_left[:] = jobs.iterations
    jobs.service_ns[:] = jobs.forward_ns + jobs.backward_ns
    jobs.remaining_service_ns[:] = jobs.iterations * jobs.service_ns * jobs.gpus
    jobs.start_ns[:] = NOBODY
    jobs.finish_ns[:] = NOBODY
    gpus.ready[:] = gpus.held[:] = gpus.group[:] = NOBODY
    ports.first_message[:] = ports.held[:] = NOBODY
    seats, links = zeros(seat_count, SEAT), zeros(links_per_seat * seat_count, LINK)
    seats.job[:] = np.repeat(np.arange(len(jobs)), jobs.gpus)
    seats.group[:] = NOBODY
    links.job[:] = np.repeat(np.arange(len(jobs)), links_per_seat * jobs.gpus)
    gangs = zeros(len(jobs), GANG)
    gangs.solo_ns[:] = gangs.shot[:] = gangs.seen_left[:] = NOBODY
    paces.forward_group_ns[:] = paces.backward_group_ns[:] = NOBODY
    tally = zeros(1, TALLY)
    tally.free_groups[:] = len(gpus)
    queues, queue_of = _queues(jobs)
    skips, fair = bool(rules[0].skips_sets), bool(system[0].max_min)

    def integers(count: int) -> Integers:
        return np.zeros(count, np.int64)

    return State(
        cluster=ClusterView(system, jobs, gpus, servers, seats, links, ports),
        rules=rules,
        tally=tally,
        gangs=gangs,
        paces=paces,
        groups=zeros(len(gpus), GROUP),
        heap=zeros(len(gpus) + 2 * len(jobs), EVENT),
        places=np.full(len(gpus) + 2 * len(jobs), NOBODY, np.int64),
        arrivals=np.argsort(jobs.arrival_ns, kind="stable").astype(np.int64),
        fresh=integers(len(jobs)),
        queues=queues,
        queue_of=queue_of,
        queue=integers(len(jobs)),
        active=integers(len(queues)),
        asked=integers(len(jobs)),
        running=integers(len(jobs)),
        idle=integers(len(gpus)),
        touched=integers(len(ports)),
        shares=zeros(len(ports) if fair else 0, SHARE),
        costs=np.zeros(len(jobs) if fair else 0),
        free_groups=np.arange(len(gpus), dtype=np.int64),
        candidates=integers(len(gpus)),
        ended=integers(len(jobs)),
        scratch=integers(len(jobs)),
        shots=zeros(len(jobs) if skips else 0, SHOT),
        members=zeros(len(jobs) if skips else 0, MEMBER),
        postures=zeros(seat_count if skips else 0, POSTURE),
        skipped=integers(len(jobs)),
        timeline=zeros(timeline_rows, TASK),
    )


def _queues(jobs: Records) -> tuple[Records, Integers]:
    """Return a queue for each size of job, each with a part of the queue as large as it can get."""
    sizes = np.stack([jobs.memory_bytes, jobs.gpus], axis=1)
    distinct, queue_of, counts = np.unique(sizes, axis=0, return_inverse=True, return_counts=True)
    queues = zeros(len(distinct), QUEUE)
    queues.memory_bytes[:], queues.gpus[:] = distinct.T
    queues.first[1:] = np.cumsum(counts)[:-1]
    queues.end[:] = queues.first
    return queues, queue_of.reshape(-1).astype(np.int64)
