"""Start a simulation from a moment of a run: fill the arrays with what is going on then.

It runs once, so it is not compiled: it calls the engine's own steps as the Python that they are.
"""

from __future__ import annotations

import numpy as np

from headway.domain.errors import InputError
from headway.domain.moment import InFlight, Moment, PendingMessage, StartedJob
from headway.domain.records import BACKWARD, FORWARD, IN_FLIGHT, NOBODY, NOT_READY, READY
from headway.domain.workload import Workload
from headway.engine.admission import admit
from headway.engine.compute import dispatch
from headway.engine.events import schedule
from headway.engine.graphs import count_anew, entry_ns
from headway.engine.groups import join_group, new_group
from headway.engine.placement import enqueue, put_job
from headway.engine.ready import let_wait, make_ready
from headway.engine.state import DONE, GRAPH, State
from headway.engine.watching import ask_about
from headway.network.messages import largest_k
from headway.network.placed_jobs import take_off_cluster
from headway.network.traffic import put_on_ports, rate_again


def resume(s: State, moment: Moment, workload: Workload) -> int:
    """Bring a simulation that has not begun to a moment of its workload, which has been checked.

    Return NOBODY, or the job for which the placement returned invalid candidates if it was asked.
    """
    tally, jobs = s.tally[0], s.cluster.jobs
    s.cluster.system[0].now_ns = tally.front_ns = moment.time_ns
    tally.arrived = int((jobs.arrival_ns <= moment.time_ns).sum())
    for job in moment.started:
        _start(s, job, workload)
    going = [job for job in moment.started if job.finish_ns is None]
    started = {job.job for job in moment.started}
    for index in s.arrivals[: tally.arrived].tolist():
        if index not in started:
            parameter = s.rules[0].priority_parameter
            jobs[index].priority_key = s.priority(s.cluster, index, parameter)
            enqueue(s, index)
    # Running tasks first: what is ready joins the lists of GPUs that are taken.
    for job in going:
        _run_tasks(s, job)
    for job in going:
        _line_up_tasks(s, job)
    pending = [(job.job, message) for job in going for message in job.messages]
    for index, message in pending:
        if message.in_flight is None:
            _wait(s, jobs[index].first_message + message.number, message)
    flights = [
        (message.in_flight, jobs[index].first_message + message.number, message)
        for index, message in pending
        if message.in_flight is not None
    ]
    for flight, number, message in sorted(flights, key=lambda one: one[0].order):
        _send(s, number, message, flight)
    for _, number, _ in flights:
        s.cluster.messages[number].k = largest_k(s.cluster, number)
    s.cluster.gpus.closed[list(moment.closed_gpus)] = 1
    return NOBODY if moment.settled else _decide(s, moment.time_ns)


def _decide(s: State, now_ns: int) -> int:
    """Take steps 3 to 5 of an instant, with every queued job and waiting message tried."""
    messages = s.cluster.messages
    for message in np.flatnonzero(messages.state == IN_FLIGHT).tolist():
        rate_again(s.cluster, s.traffic, message)
    s.tally[0].left_cluster = 1
    misplaced = int(s.rare.place(s, now_ns))
    s.tally[0].left_cluster = 0
    for message in np.flatnonzero(messages.state == READY).tolist():
        ask_about(s, message)
    admit(s, now_ns)
    dispatch(s, now_ns)
    return misplaced


def _start(s: State, started: StartedJob, workload: Workload) -> None:
    """Put a job on its GPUs; if it has finished, take it off again."""
    job, jobs, tally = started.job, s.cluster.jobs, s.tally[0]
    first = jobs[job].first_seat
    s.cluster.seats.gpu[first : first + jobs[job].gpus] = started.gpus
    jobs[job].iterations_left = jobs[job].iterations - started.iterations_done
    put_job(s, job, started.start_ns)
    if started.finish_ns is not None:
        jobs[job].finish_ns = started.finish_ns
        take_off_cluster(s.cluster, job)
        tally.running -= 1
        tally.finished += 1
        return
    beside = s.cluster.seats.beside[first : first + jobs[job].gpus]
    others = s.cluster.seats.job[beside[beside != NOBODY]]
    if len(others) > 0 and (jobs[job].exclusive or jobs.exclusive[others].any()):
        raise InputError(
            f"job '{workload[job].job_id}' shares a GPU that a job has to itself.", field="initial"
        )
    if (s.cluster.gpus.free_bytes[list(started.gpus)] < 0).any():
        raise InputError(
            f"job '{workload[job].job_id}' has a GPU without enough memory left.", field="initial"
        )


def _stages(s: State, started: StartedJob) -> list[int]:
    """Return the stage of each rank: of the task that it does next or now, or DONE."""
    record = s.cluster.jobs[started.job]
    if record.graph == NOBODY:
        return [(FORWARD, BACKWARD, DONE)[done] for done in started.tasks_done]
    return [
        GRAPH + tasks[done] if done < len(tasks) else DONE
        for tasks, done in zip(_streams(s, started), started.tasks_done, strict=True)
    ]


def _streams(s: State, started: StartedJob) -> list[list[int]]:
    """Return the tasks of each rank of a graph, in order."""
    record = s.cluster.jobs[started.job]
    graph = s.graphs.graphs[record.graph]
    streams: list[list[int]] = [[] for _ in range(record.gpus)]
    ranks = s.graphs.nodes.rank[graph.first_node : graph.first_node + graph.tasks].tolist()
    for task, rank in enumerate(ranks):
        streams[rank].append(task)
    return streams


def _run_tasks(s: State, started: StartedJob) -> None:
    """Count what a job has done in this iteration, and start groups for its running tasks."""
    job = started.job
    record, progress = s.cluster.jobs[job], s.job_progress[job]
    progress.ended_ns = s.cluster.system[0].now_ns
    if record.graph == NOBODY:
        progress.tasks_left = sum(done < 2 for done in started.tasks_done)
    else:
        count_anew(s, job)
        graph = s.graphs.graphs[record.graph]
        streams = zip(_streams(s, started), started.tasks_done, strict=True)
        for task in (task for tasks, done in streams for task in tasks[:done]):
            _count_end(s, job, task)
        for number in started.messages_done:
            _count_end(s, job, int(graph.tasks) + number)
    groups: dict[tuple[int, int, int], int] = {}
    for rank, (stage, start_ns) in enumerate(
        zip(_stages(s, started), started.task_start_ns, strict=True)
    ):
        seat = int(record.first_seat) + rank
        s.seat_progress[seat].stage = stage
        if start_ns is None:
            continue
        gpu = s.seat_progress[seat].gpu
        kind = int(s.gpu_progress[gpu].type)
        entry = NOBODY
        if record.graph != NOBODY:
            graph = s.graphs.graphs[record.graph]
            entry = int(s.graphs.nodes[graph.first_node + stage - GRAPH].entry)
        same = (entry if entry != NOBODY else stage, kind, start_ns)
        if same in groups:
            join_group(s, groups[same], seat)
        else:
            end_ns = start_ns + _task_ns(s, job, stage, entry, kind)
            own = stage if entry == NOBODY else GRAPH
            groups[same] = new_group(s, seat, own, start_ns, end_ns)
            s.groups[groups[same]].entry = entry
        s.seat_progress[seat].group = s.gpu_progress[gpu].group = groups[same]


def _count_end(s: State, job: int, node: int) -> None:
    """Count a node of a job's graph as ended for those that wait for it."""
    progress = s.job_progress[job]
    progress.tasks_left -= 1
    record = s.graphs.nodes[s.graphs.graphs[s.cluster.jobs[job].graph].first_node + node]
    first = int(record.first_successor)
    for successor in s.graphs.successors[first : first + record.successors].tolist():
        s.graphs.left[progress.first_left + successor] -= 1


def _task_ns(s: State, job: int, stage: int, entry: int, kind: int) -> int:
    """Return how long a task takes on a type of GPU."""
    if entry != NOBODY:
        return entry_ns(s, job, entry, kind)
    pace = s.paces[job * int(s.rules[0].types) + kind]
    return int(pace.forward_ns if stage == FORWARD else pace.backward_ns)


def _line_up_tasks(s: State, started: StartedJob) -> None:
    """Put the tasks that are ready and do not run in line for their GPUs."""
    record, progress = s.cluster.jobs[started.job], s.job_progress[started.job]
    for rank, start_ns in enumerate(started.task_start_ns):
        seat = int(record.first_seat) + rank
        stage = int(s.seat_progress[seat].stage)
        if start_ns is not None or stage == DONE:
            continue
        if stage >= GRAPH and s.graphs.left[progress.first_left + stage - GRAPH] > 0:
            s.seat_progress[seat].stage = DONE
            continue
        make_ready(s, seat, stage, s.cluster.system[0].now_ns)


def _wait(s: State, number: int, message: PendingMessage) -> None:
    """Let a message wait for admission, as it was left waiting."""
    rules, record = s.rules[0], s.cluster.messages[number]
    record.unsent_bytes = message.unsent_bytes
    let_wait(s, number, message.ready_ns)
    record.bytes = s.waiters[number].bytes = _next_bytes(s, message)
    if rules.admission_steady == 0 or rules.admission_by_port != 0:
        ask_about(s, number)
    if message.not_before_ns is not None:
        _plan(s, number, message.not_before_ns)


def _send(s: State, number: int, message: PendingMessage, flight: InFlight) -> None:
    """Put a message on the network."""
    record = s.cluster.messages[number]
    if record.state != NOT_READY or record.servers < 2:
        raise InputError("a message is in flight between GPUs of one server.", field="initial")
    record.state = IN_FLIGHT
    record.unsent_bytes = message.unsent_bytes
    record.bytes = _next_bytes(s, message)
    record.ready_ns = message.ready_ns
    record.start_ns = flight.start_ns
    record.since_ns = flight.since_ns
    record.bytes_left = flight.bytes_left
    record.cost_ns_per_byte = flight.cost_ns_per_byte
    put_on_ports(s.cluster, number)
    _plan(s, number, flight.end_ns)


def _next_bytes(s: State, message: PendingMessage) -> int:
    """Return the bytes of the bucket that waits or is in flight."""
    if message.is_whole and s.rules[0].buckets_if_shared != 0:
        return message.unsent_bytes
    return min(message.unsent_bytes, int(s.cluster.system[0].bucket_bytes))


def _plan(s: State, number: int, time_ns: int) -> None:
    """Plan the event of a message: its end, or when to ask about it again."""
    event = len(s.cluster.gpus) + number
    s.tally[0].heap = schedule(s.heap, s.positions, s.tally[0].heap, event, time_ns)
