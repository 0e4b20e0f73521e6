"""The state of a running simulation: arrays made once, sized by its GPUs, jobs and messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from headway.domain.graph import Graph
from headway.domain.layout import prepare_jobs
from headway.domain.records import (
    LINK,
    MESSAGE,
    MESSAGE_GROUP,
    NOBODY,
    ROW,
    SEAT,
    TASK,
    ClusterView,
    Integers,
    Records,
    zeros,
)
from headway.jit import Columns, View, signature
from headway.network.traffic import Traffic, make_traffic
from headway.policies.compilation import SIGNATURES
from headway.policies.registry import NO_LIMIT

JOB_PROGRESS = np.dtype(
    [
        ("tasks_left", np.int64),  # before the iteration's barrier; of a graph, with its messages
        ("tasks_each", np.int64),  # compute tasks of an iteration
        ("messages_each", np.int64),  # messages of an iteration that take time, once it is placed
        ("first_left", np.int64),  # where its counts in `left` begin, if it has a graph
        ("sent", np.int64),  # messages since the start
        ("solo_ns", np.int64),  # when its latest known iteration began, if it is solo; or NOBODY
        ("period_ns", np.int64),  # from one iteration to the next while it is solo
        ("mark", np.int64),  # the search that met it last; see `cycles`
        ("seen_left", np.int64),  # the iterations left when a search met it last
        ("ended_ns", np.int64),  # when its latest iteration ended; only if sets are sampled
        ("lasted_ns", np.int64),  # how long that iteration took
        ("index", np.int32),  # in the list of running jobs
        ("cycle", np.int32),  # the set that it belongs to: the number of the set's anchor
        ("next_member", np.int32),  # of that set
        ("inert", np.int32),  # whether some set takes it to be inert
        ("surprises", np.int32),  # how often that was wrong
        ("waiting", np.int32),  # the first of its waiting messages; only with `needed_first`
    ],
    align=True,
)

GPU_PROGRESS = np.dtype(
    [
        ("ready", np.int32),  # the first seat, in priority order, with a task to start
        ("group", np.int32),  # of the task that runs on it, or NOBODY
        ("listed", np.int32),  # whether dispatch will look at it at this instant
        ("type", np.int32),  # as in the view
    ],
    align=True,
)

SEAT_PROGRESS = np.dtype(
    [
        ("stage", np.int32),  # the compute task that it does next or now, or DONE; see GRAPH
        ("group", np.int32),  # the group that its task runs in, or NOBODY
        ("next", np.int32),  # in the GPU's list of ready seats, or in the group
        ("job", np.int32),  # as in the view; here because the inner loops need all of these
        ("gpu", np.int32),
    ],
    align=True,
)

DONE = 2
"""The stage of a seat without a task to do; FORWARD and BACKWARD are the others, and for a task
of a graph GRAPH and more.
"""

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
"""A job on one type of GPU: its tasks' times, its latest groups. Of job j on type t: j * T + t.

With a graph its latest group of all is the forward group.
"""

GROUP = np.dtype(
    [
        ("start_ns", np.int64),
        ("end_ns", np.int64),
        ("job", np.int32),
        ("stage", np.int32),
        ("first_seat", np.int32),
        ("seats", np.int32),
        ("entry", np.int32),  # of the job's graph
    ],
    align=True,
)
"""Compute tasks of one job, stage and type that started, and so will end, together: one event."""

FUSED, SOLO = 3, 4
"""Stages of a group: forward and backward as one, see `compute`; a job to its end, see `solo`."""

GRAPH = 5
"""The stage of a group of tasks of a graph; that of a seat is GRAPH plus the number of its task."""

ITERATION_GRAPH = np.dtype(
    [
        ("first_node", np.int64),
        ("nodes", np.int64),  # tasks first, then messages
        ("tasks", np.int64),
        ("messages", np.int64),
        ("entries", np.int64),  # of tasks
        ("first_time", np.int64),  # entry e takes task_ns[first_time + t * entries + e] on type t
        ("first_group", np.int64),  # of its messages, in `Graphs.groups`
    ],
    align=True,
)
"""What an iteration of some jobs is; see `graphs`."""

NODE = np.dtype(
    [
        ("first_successor", np.int32),
        ("successors", np.int32),
        ("predecessors", np.int32),
        ("rank", np.int32),  # of a task
        ("entry", np.int32),
        ("in_order", np.int32),  # the node that comes i-th in some topological order, for node i
    ],
    align=True,
)
"""A task or a message of a graph, by its number in the graph."""

EVENT = np.dtype([("time_ns", np.int64), ("event", np.int64)], align=True)
"""With G GPUs, M messages and J jobs: the end of group e < G; the end of message e - G < M or the
time before which it must not start; the return of a set that was skipped, e - G - M < J its anchor.
"""

QUEUE = np.dtype(
    [
        ("memory_bytes", np.int64),
        ("gpus", np.int64),
        ("exclusive", np.int64),
        ("first", np.int64),  # the jobs in it are queue[first:end]
        ("end", np.int64),
        ("next", np.int64),  # the index of the job to be tried next in this step
        ("kept", np.int64),  # tried in this step and left queued
        ("closed", np.int64),  # whether there is no room for these in this step
    ],
    align=True,
)
"""The queued jobs of one size, a part of the queue, in priority order."""

CYCLE = np.dtype(
    [
        ("since_ns", np.int64),  # the time of the snapshot that is compared with
        ("period_ns", np.int64),
        ("periods", np.int64),  # how many the set is skipped; 0 if it is not
        ("ends", np.int64),  # looks at the set; one for each iteration of its anchor
        ("snapshot_at", np.int64),  # the number of them at which to take the next snapshot
        ("look_at", np.int64),  # … and at which to compare next
        ("pause", np.int64),  # iterations of a job without a set until it looks for one
        ("others", np.int64),  # iterations of other members since it was looked at
        ("index", np.int64),  # in the list of sets that are skipped
        ("patience", np.int64),  # after how many others to dissolve it; if sampled, to look at it
        # Of a set that is sampled; see `sampling`.
        ("phase", np.int64),
        ("active", np.int64),  # members that were not just waiting for a GPU
        ("seen", np.int64),  # iterations of all members since settling or the window began
        ("target", np.int64),  # how many of them end that
        ("half_ns", np.int64),  # when the first half of the window ended
        ("window_ns", np.int64),  # the length of the window
        ("moved_ns", np.int64),  # how far the set was moved forward since it was measured
        ("expires", np.int64),  # whether it must be measured again when it comes back
    ],
    align=True,
)
"""A set of jobs that may disturb each other, by the number of its anchor; see `cycles`."""

JOB_SNAPSHOT = np.dtype(
    [
        ("iterations_left", np.int64),
        ("priority_key", np.int64),
        ("last_key", np.int64),  # when the set returns
        ("iterations", np.int64),  # ended in one period
        ("messages", np.int64),  # likewise
        ("sent", np.int64),
        ("tasks_left", np.int64),
        # Of a member of a set that is sampled.
        ("ended_ns", np.int64),  # when its latest iteration had ended
        ("half_left", np.int64),  # iterations, at half of the window
        ("half_ended_ns", np.int64),  # likewise
        ("rate", np.float64),  # iterations in a ns
        ("carry", np.float64),  # part of an iteration that it was not yet moved forward by
        ("deviation_ns", np.float64),  # of its progress in a window, estimated, in ns of service
        ("variance", np.float64),  # of its progress so far
    ],
    align=True,
)

MESSAGE_SNAPSHOT = np.dtype(
    [
        ("state", np.int64),
        ("k", np.int64),
        ("unsent_bytes", np.int64),
        ("bytes", np.int64),
        ("age_ns", np.int64),
        ("since_ns", np.int64),  # relative to the time of the snapshot
        ("end_ns", np.int64),  # likewise
        ("bytes_left", np.float64),
        ("cost_ns_per_byte", np.float64),
    ],
    align=True,
)

SEAT_SNAPSHOT = np.dtype([("stage", np.int64), ("age_ns", np.int64)], align=True)
"""The stage of a seat, and how long its task has run, or NOBODY."""

WAITER = np.dtype(
    [
        ("key", np.int64),  # its job's priority key, as in the view, like the next three
        ("bytes", np.int64),
        ("first_link", np.int32),
        ("links", np.int32),
        ("priority", np.int32),  # of its job
        ("asked", np.int32),  # whether it is among those to ask the admission about
        ("port", np.int32),  # the port that it watches, or NOBODY
        ("refused_by", np.int32),  # the port that refused it last, or NOBODY
        ("before", np.int32),  # in the list of the port's watchers
        ("beside", np.int32),  # the next in that list
        ("earlier", np.int32),  # in the list of its job's waiting messages, if one is kept
        ("later", np.int32),
    ],
    align=True,
)
"""A message that waits for admission; see `watching`."""

WATCHED = np.dtype(
    [
        ("limit_bytes", np.int64),  # no message of this size may start until one ends here
        ("watcher", np.int32),  # the first of the list of its watchers, or NOBODY
        ("has_more", np.int32),  # whether others may be asked about after the one that was
    ],
    align=True,
)
"""A port and the messages that watch it."""

RULES = np.dtype(
    [
        ("placement_parameter", np.float64),
        ("priority_parameter", np.float64),
        ("admission_parameter", np.float64),
        ("placement_steady", np.int64),
        ("admission_steady", np.int64),
        ("admission_by_port", np.int64),
        ("needed_first", np.int64),  # whether messages of a graph wait for those needed before
        ("buckets_if_shared", np.int64),  # whether messages are cut only if they share a port
        ("fuses", np.int64),  # whether a forward and its backward may be one event
        ("skips_solo", np.int64),  # whether jobs may run to their end without events
        ("skips_sets", np.int64),  # whether sets that repeat may be skipped forward
        ("reserves", np.int64),  # whether GPUs are kept for some queued jobs: of priority above 0
        ("types", np.int64),  # of GPUs
        ("window", np.int64),  # iterations of each job, on average, to sample; 0: be exact
        ("accuracy", np.float64),  # wanted, if sets are sampled
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
        ("pending", np.int64),
        ("running", np.int64),
        ("idle", np.int64),
        ("free_groups", np.int64),
        ("ended", np.int64),
        ("skipped", np.int64),
        ("timeline", np.int64),
        # What has happened since the start.
        ("arrived", np.int64),
        ("finished", np.int64),
        ("compute_tasks", np.int64),
        ("messages", np.int64),
        ("skipped_tasks", np.int64),  # compute tasks and messages without events
        ("estimated_tasks", np.int64),  # those of them that were sampled
        ("instants", np.int64),
        ("questions", np.int64),  # to the admission
        ("searches", np.int64),
        ("front_ns", np.int64),  # the latest instant so far
        # The present.
        ("waiting", np.int64),  # messages ready and not admitted
        ("left_cluster", np.int64),  # jobs, since the placement was last asked
        ("misplaced", np.int64),  # the job for which a placement returned invalid candidates
    ],
    align=True,
)
"""One record of counts."""

Rule = Callable[..., Any]
"""A compiled policy; its parameter, the last argument, is in `RULES`."""


Step = Callable[..., Any]
"""A step of the kernel that is compiled on its own."""


class RareSteps(View):
    """What happens far less often than a task: see the functions of these names.

    They are compiled on their own, beside the kernel, and called by address, so that the first
    start takes half the time.
    """

    arrive: Annotated[Step, signature(None, State, int)]
    place: Annotated[Step, signature(int, State, int)]
    go_solo: Annotated[Step, signature(None, State, int, int, bool, int)]
    interrupt: Annotated[Step, signature(None, State, int, int)]
    look_at_sets: Annotated[Step, signature(None, State, int, int)]
    skip_forward: Annotated[Step, signature(bool, State, int, int, int)]
    return_set: Annotated[Step, signature(None, State, int, int)]
    bring_back: Annotated[Step, signature(None, State, int, int, int)]
    bring_all_back: Annotated[Step, signature(None, State, int)]
    forget_sets_beside: Annotated[Step, signature(None, State, int, int)]
    wake: Annotated[Step, signature(None, State, int, int)]
    trust_again: Annotated[Step, signature(None, State, int)]


class GraphSteps(View):
    """What is done for jobs with graphs; see the functions of these names in `graphs`, `cuts`.

    They are compiled only if some job has a graph.
    """

    measure_iteration: Annotated[Step, signature(None, State, int)]
    start_iteration: Annotated[Step, signature(None, State, int, int)]
    start_task: Annotated[Step, signature(None, State, int, int)]
    end_tasks: Annotated[Step, signature(None, State, int, int)]
    follow_message: Annotated[Step, signature(None, State, int, int)]
    is_held_back: Annotated[Step, signature(bool, State, int)]
    unslowed_ns: Annotated[Step, signature(int, State, int)]
    alone_ns: Annotated[Step, signature(int, State, int)]
    sending_by_server: Annotated[Step, signature(None, ClusterView, int, ROW, ROW)]


class GraphState(View):
    """Jobs whose iteration is a graph; see `graphs`."""

    graphs: Annotated[Records, ITERATION_GRAPH]
    nodes: Annotated[Records, NODE]
    successors: Integers
    task_ns: Integers
    left: Integers  # by job and node: what it still waits for in this iteration
    left_snapshots: Integers
    pending: Integers  # scratch: nodes
    times_ns: Integers  # scratch: by node
    waiting: Integers  # scratch: messages
    # A cluster with nothing else on it, for an iteration alone; it shares all but clock and ports.
    alone: ClusterView
    alone_traffic: Traffic
    alone_heap: Annotated[Records, EVENT]
    alone_positions: Integers


class State(View):
    """The view that policies see, and the engine's own bookkeeping."""

    cluster: ClusterView
    placement: Annotated[Rule, SIGNATURES["placement"]]
    priority: Annotated[Rule, SIGNATURES["priority"]]
    admission: Annotated[Rule, SIGNATURES["admission"]]
    rare: RareSteps
    graph_steps: GraphSteps
    rules: Annotated[Records, RULES]
    tally: Annotated[Records, TALLY]
    traffic: Traffic
    job_progress: Annotated[Records, JOB_PROGRESS]
    gpu_progress: Annotated[Records, GPU_PROGRESS]
    seat_progress: Annotated[Records, SEAT_PROGRESS]
    paces: Annotated[Records, PACE]
    groups: Annotated[Records, GROUP]
    heap: Annotated[Records, EVENT]
    positions: Integers  # of each event in the heap, or NOBODY
    arrivals: Integers  # jobs by (arrival, index)
    fresh: Integers  # arrived at this instant; in priority order
    queues: Annotated[Records, QUEUE]
    queue_of: Integers  # the queue of each job
    queue: Integers  # arrived, not placed; each queue's part in priority order
    active: Integers  # the queues that are not empty
    asked: Integers  # messages to ask the admission about; in priority order
    waiters: Annotated[Records, WAITER]  # by message
    watched: Annotated[Records, WATCHED]  # by port
    running: Integers  # placed, not finished; in no order
    idle: Integers  # GPUs that dispatch must look at
    free_groups: Integers  # a stack
    candidates: Integers  # scratch for placement
    ended: Integers  # jobs whose iteration ended at this instant and whose set may repeat
    scratch: Integers  # jobs: whose iteration ended, or placed, or found in the search for a set
    visited: Integers  # by GPU, then by port: the latest search for a set that visited it
    latest: Integers  # likewise: the job found there last
    by_priority: Integers  # scratch: the members of a set in priority order
    cycles: Annotated[Records, CYCLE]
    job_snapshots: Annotated[Records, JOB_SNAPSHOT]
    message_snapshots: Annotated[Records, MESSAGE_SNAPSHOT]
    seat_snapshots: Annotated[Records, SEAT_SNAPSHOT]
    skipped: Integers  # the anchors of the sets that are skipped
    timeline: Annotated[Records, TASK]
    graphs: GraphState


@dataclass(frozen=True, slots=True)
class Graphs:
    """The graphs of a workload's jobs, each once, as flat arrays; see `GraphState`."""

    sources: list[Graph]
    shortest_ns: list[list[int]]  # by graph: each task's time on the fastest type for it
    of_job: Integers  # NOBODY for a job without one
    graphs: Records
    nodes: Records
    successors: Integers
    task_ns: Integers
    groups: Records  # by graph and message
    ranks: Integers


def make_state(
    system: Records,
    jobs: Records,
    servers: Records,
    gpus: Records,
    ports: Records,
    paces: Records,
    graphs: Graphs,
    rules: Records,
    policies: Sequence[Rule],
    rare: RareSteps,
    graph_steps: GraphSteps,
    timeline_rows: int,
    extra: Columns,
) -> State:
    """Lay out a simulation that has not begun; `policies` decide in the order of `State`."""
    placement, priority, admission = policies
    seat_count = int(jobs.gpus.sum())
    jobs.first_seat[1:] = np.cumsum(jobs.gpus)[:-1]
    of_graph = graphs.graphs[graphs.of_job[graphs.of_job != NOBODY]]
    has_graph = graphs.of_job != NOBODY
    jobs.messages[:] = 1
    jobs.messages[has_graph] = of_graph.messages
    jobs.first_message[1:] = np.cumsum(jobs.messages)[:-1]
    jobs.iterations_left[:] = jobs.iterations
    jobs.service_ns[:] = jobs.forward_ns + jobs.backward_ns
    jobs.remaining_service_ns[:] = jobs.iterations * jobs.service_ns * jobs.gpus
    # A message has a link for each rail that its ranks may use, and for each switch above it.
    links_per_seat = 1 + _tiers(ports)
    rails = int(servers.rails.sum())
    messages = zeros(int(jobs.messages.sum()), MESSAGE)
    messages.job[:] = np.repeat(np.arange(len(jobs)), jobs.messages)
    messages.size_bytes[:] = jobs.gradient_bytes[messages.job]
    prepare_jobs(jobs, messages, int(system[0].a_ns))
    jobs.graph[:] = graphs.of_job
    groups = _message_groups(jobs, messages, graphs)
    ranks = jobs.gpus[messages.job] if len(groups) == 0 else groups.ranks
    most_links = links_per_seat * np.minimum(ranks, rails)
    messages.first_link[1:] = np.cumsum(most_links)[:-1]
    seats, links = zeros(seat_count, SEAT), zeros(int(most_links.sum()), LINK)
    seats.job[:] = np.repeat(np.arange(len(jobs)), jobs.gpus)
    job_progress = zeros(len(jobs), JOB_PROGRESS)
    job_progress.tasks_each[:] = 2 * jobs.gpus
    job_progress.tasks_each[has_graph] = of_graph.tasks
    job_progress.solo_ns[:] = job_progress.cycle[:] = job_progress.seen_left[:] = NOBODY
    job_progress.waiting[:] = NOBODY
    gpu_progress, seat_progress = zeros(len(gpus), GPU_PROGRESS), zeros(seat_count, SEAT_PROGRESS)
    gpu_progress.ready[:] = gpu_progress.group[:] = seat_progress.group[:] = NOBODY
    gpu_progress.type[:], seat_progress.job[:] = gpus.type, seats.job
    paces.forward_group_ns[:] = paces.backward_group_ns[:] = NOBODY
    tally = zeros(1, TALLY)
    tally.free_groups[:] = len(gpus)
    waiters, watched = zeros(len(messages), WAITER), zeros(len(ports), WATCHED)
    waiters.priority[:] = jobs.priority[messages.job]
    waiters.port[:] = waiters.refused_by[:] = watched.watcher[:] = NOBODY
    watched.limit_bytes[:] = NO_LIMIT
    queues, queue_of = _queues(jobs)
    skips = bool(rules[0].skips_sets)
    events = len(gpus) + len(messages) + len(jobs)

    def integers(count: int) -> Integers:
        return np.zeros(count, np.int64)

    cluster = ClusterView(
        system=system,
        jobs=jobs,
        messages=messages,
        message_groups=groups,
        ranks=graphs.ranks,
        gpus=gpus,
        servers=servers,
        seats=seats,
        links=links,
        sending_ns=integers(len(links) if has_graph.any() else 0),
        shares=np.zeros(len(links) if rails > len(servers) else 0),
        ports=ports,
        extra=extra,
        sending_by_server=graph_steps.sending_by_server,
    )
    return State(
        cluster=cluster,
        placement=placement,
        priority=priority,
        admission=admission,
        rare=rare,
        graph_steps=graph_steps,
        rules=rules,
        tally=tally,
        traffic=make_traffic(len(messages), len(ports)),
        job_progress=job_progress,
        gpu_progress=gpu_progress,
        seat_progress=seat_progress,
        paces=paces,
        groups=zeros(len(gpus), GROUP),
        heap=zeros(events, EVENT),
        positions=np.full(events, NOBODY, np.int64),
        arrivals=np.argsort(jobs.arrival_ns, kind="stable").astype(np.int64),
        fresh=integers(len(jobs)),
        queues=queues,
        queue_of=queue_of,
        queue=integers(len(jobs)),
        active=integers(len(queues)),
        asked=integers(len(messages)),
        waiters=waiters,
        watched=watched,
        running=integers(len(jobs)),
        idle=integers(len(gpus)),
        free_groups=np.arange(len(gpus), dtype=np.int64),
        candidates=integers(len(gpus)),
        ended=integers(len(jobs)),
        scratch=integers(len(jobs)),
        visited=integers(len(gpus) + len(ports)),
        latest=integers(len(gpus) + len(ports)),
        by_priority=integers(len(jobs)),
        cycles=zeros(len(jobs) if skips else 0, CYCLE),
        job_snapshots=zeros(len(jobs) if skips else 0, JOB_SNAPSHOT),
        message_snapshots=zeros(len(messages) if skips else 0, MESSAGE_SNAPSHOT),
        seat_snapshots=zeros(seat_count if skips else 0, SEAT_SNAPSHOT),
        skipped=integers(len(jobs)),
        timeline=zeros(timeline_rows, TASK),
        graphs=_graph_state(cluster, job_progress, graphs, skips),
    )


def _tiers(ports: Records) -> int:
    """Return how many uplinks there are above a rail."""
    tiers, port = 0, int(ports.above[0])
    while port != NOBODY:
        tiers, port = tiers + 1, int(ports.above[port])
    return tiers


def _message_groups(jobs: Records, messages: Records, graphs: Graphs) -> Records:
    """Return the groups of all messages, or none if no job has a graph."""
    if len(graphs.graphs) == 0:
        return zeros(0, MESSAGE_GROUP)
    groups = zeros(len(messages), MESSAGE_GROUP)
    groups.ranks[:] = jobs.gpus[messages.job]
    for job in np.flatnonzero(graphs.of_job != NOBODY).tolist():
        graph, first = graphs.graphs[graphs.of_job[job]], jobs[job].first_message
        own = graphs.groups[graph.first_group : graph.first_group + graph.messages]
        groups[first : first + graph.messages] = own
    return groups


def _graph_state(
    cluster: ClusterView, job_progress: Records, graphs: Graphs, skips: bool
) -> GraphState:
    """Return room for the jobs with graphs."""
    has_graph = graphs.of_job != NOBODY
    nodes = np.zeros(len(has_graph), np.int64)
    nodes[has_graph] = graphs.graphs.nodes[graphs.of_job[has_graph]]
    job_progress.first_left[1:] = np.cumsum(nodes)[:-1]
    most_nodes = int(nodes.max())
    total, some = int(nodes.sum()), bool(has_graph.any())
    ports = cluster.ports.copy()
    return GraphState(
        graphs=graphs.graphs,
        nodes=graphs.nodes,
        successors=graphs.successors,
        task_ns=graphs.task_ns,
        left=np.zeros(total, np.int64),
        left_snapshots=np.zeros(total if skips else 0, np.int64),
        pending=np.zeros(most_nodes, np.int64),
        times_ns=np.zeros(most_nodes, np.int64),
        waiting=np.zeros(most_nodes, np.int64),
        alone=cluster.replace(system=cluster.system.copy(), ports=ports),
        alone_traffic=make_traffic(len(cluster.messages) if some else 0, len(ports)),
        alone_heap=zeros(most_nodes, EVENT),
        alone_positions=np.full(most_nodes, NOBODY, np.int64),
    )


def _queues(jobs: Records) -> tuple[Records, Integers]:
    """Return a queue for each size of job, each with a part of the queue as large as it can get."""
    sizes = np.stack([jobs.memory_bytes, jobs.gpus, jobs.exclusive], axis=1)
    distinct, queue_of, counts = np.unique(sizes, axis=0, return_inverse=True, return_counts=True)
    queues = zeros(len(distinct), QUEUE)
    queues.memory_bytes[:], queues.gpus[:], queues.exclusive[:] = distinct.T
    queues.first[1:] = np.cumsum(counts)[:-1]
    queues.end[:] = queues.first
    return queues, queue_of.reshape(-1).astype(np.int64)
