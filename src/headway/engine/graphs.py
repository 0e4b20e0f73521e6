"""Jobs whose iteration is a graph of tasks and messages.

Every node of a job's graph has a count of the nodes that it waits for in this iteration: the task
before it on its rank, what it comes after, the messages before it in its channel. When a node ends,
the counts of its successors go down, and those that reach 0 are ready. A message on one server ends
as soon as it is ready. An iteration has ended when all its nodes have.

`measure_iteration` runs an iteration alone, on a cluster with nothing else on it, to find s_J.
"""

from __future__ import annotations

import math

from headway.domain.records import COMPUTE, NOBODY, READY, ClusterView
from headway.engine.events import remove_first, schedule_rarely
from headway.engine.groups import join_group, leave_group, new_group
from headway.engine.order import alone_bucket_bytes
from headway.engine.ready import make_message_ready, make_ready, note_end, record_task
from headway.engine.solo import message_alone_ns
from headway.engine.state import DONE, GRAPH, State
from headway.engine.watching import ask_admission
from headway.jit import inlined, part
from headway.network.laws.dispatch import update_costs
from headway.network.messages import messages_meet, share_a_port
from headway.network.traffic import end_message, forget_changes, start_message
from headway.policies import registry

_admits = inlined(registry.admits)


@part
def node_of_message(s: State, message: int) -> int:
    """Return the node of a message, or NOBODY if its job has no graph."""
    job = s.cluster.jobs[s.cluster.messages[message].job]
    if job.graph == NOBODY:
        return NOBODY
    return int(s.graphs.graphs[job.graph].tasks + message - job.first_message)


def start_iteration(s: State, job: int, now_ns: int) -> None:
    """Begin an iteration: what waits for nothing is ready."""
    count_anew(s, job)
    graph = s.graphs.graphs[s.cluster.jobs[job].graph]
    for node in range(graph.nodes):
        if s.graphs.nodes[graph.first_node + node].predecessors == 0:
            _make_node_ready(s, job, node, now_ns)
    _settle(s, job, now_ns)


@part
def count_anew(s: State, job: int) -> None:
    """Have every node of a job's graph wait for all its predecessors."""
    graph, progress = s.graphs.graphs[s.cluster.jobs[job].graph], s.job_progress[job]
    progress.tasks_left = graph.nodes
    for node in range(graph.nodes):
        predecessors = s.graphs.nodes[graph.first_node + node].predecessors
        s.graphs.left[progress.first_left + node] = predecessors


@part
def _make_node_ready(s: State, job: int, node: int, now_ns: int) -> None:
    """Put a task in line for its GPU, let a message wait for admission, or note its end."""
    record = s.cluster.jobs[job]
    graph = s.graphs.graphs[record.graph]
    if node < graph.tasks:
        rank = s.graphs.nodes[graph.first_node + node].rank
        make_ready(s, record.first_seat + rank, GRAPH + node, now_ns)
        return
    message = record.first_message + node - graph.tasks
    if s.cluster.messages[message].servers > 1:
        s.cluster.messages[message].unsent_bytes = s.cluster.messages[message].size_bytes
        make_message_ready(s, message)
    else:
        s.graphs.pending[s.tally[0].pending] = node
        s.tally[0].pending += 1


@part
def _end_node(s: State, job: int, node: int, now_ns: int) -> None:
    """Count a node as ended for those that wait for it."""
    progress = s.job_progress[job]
    progress.tasks_left -= 1
    record = s.graphs.nodes[s.graphs.graphs[s.cluster.jobs[job].graph].first_node + node]
    for i in range(record.first_successor, record.first_successor + record.successors):
        successor = s.graphs.successors[i]
        left = s.graphs.left[progress.first_left + successor] - 1
        s.graphs.left[progress.first_left + successor] = left
        if left == 0:
            _make_node_ready(s, job, successor, now_ns)


@part
def _settle(s: State, job: int, now_ns: int) -> None:
    """End the messages that take no time, with all that follows; and the iteration, if all has."""
    while s.tally[0].pending > 0:
        s.tally[0].pending -= 1
        _end_node(s, job, s.graphs.pending[s.tally[0].pending], now_ns)
    if s.job_progress[job].tasks_left == 0:
        note_end(s, job)


def start_task(s: State, seat: int, now_ns: int) -> None:
    """Start a seat's task on its idle GPU, in the group of those of its entry that start now."""
    gpus, seats, groups, paces = s.gpu_progress, s.seat_progress, s.groups, s.paces
    gpu, job, stage = seats[seat].gpu, seats[seat].job, seats[seat].stage
    graph = s.graphs.graphs[s.cluster.jobs[job].graph]
    entry = s.graphs.nodes[graph.first_node + stage - GRAPH].entry
    pace = job * s.rules[0].types + gpus[gpu].type
    group = paces[pace].forward_group
    if paces[pace].forward_group_ns == now_ns and groups[group].entry == entry:
        join_group(s, group, seat)
    else:
        end_ns = now_ns + entry_ns(s, job, entry, gpus[gpu].type)
        group = new_group(s, seat, GRAPH, now_ns, end_ns)
        groups[group].entry = entry
        paces[pace].forward_group = group
        paces[pace].forward_group_ns = now_ns
    seats[seat].group = gpus[gpu].group = group
    if s.job_progress[job].inert != 0:
        s.rare.wake(s, int(job), now_ns)


@inlined
def entry_ns(s: State, job: int, entry: int, gpu_type: int) -> int:
    """Return how long a task of an entry takes on a type of GPU."""
    graph = s.graphs.graphs[s.cluster.jobs[job].graph]
    return int(s.graphs.task_ns[graph.first_time + gpu_type * graph.entries + entry])


def end_tasks(s: State, group: int, now_ns: int) -> None:
    """End the tasks of a group: their GPUs are idle, their successors ready."""
    seats = s.seat_progress
    job, seat = s.groups[group].job, s.groups[group].first_seat
    while seat != NOBODY:
        following = seats[seat].next
        node = seats[seat].stage - GRAPH
        seats[seat].stage = DONE
        leave_group(s, seat)
        if len(s.timeline) > 0:
            gpu, start_ns = seats[seat].gpu, s.groups[group].start_ns
            record_task(s, COMPUTE, job, gpu, node, NOBODY, start_ns, now_ns)
        _end_node(s, job, node, now_ns)
        seat = following
    _settle(s, job, now_ns)


def follow_message(s: State, message: int, now_ns: int) -> None:
    """End a message that is sent."""
    job = s.cluster.messages[message].job
    _end_node(s, job, node_of_message(s, message), now_ns)
    _settle(s, job, now_ns)


def is_held_back(s: State, message: int) -> bool:
    """Whether a message waits for another of its job that is needed before it.

    That is one that is ready or in flight on one of its ports that has no room for both, and has
    more computing behind it; of two with as much, the one with the lower number. So the refusal
    stands until that one ends.
    """
    number = s.cluster.messages[message].job
    if s.cluster.jobs[number].graph == NOBODY or not messages_meet(s.cluster):
        return False
    # Those in flight first: they are few, and mostly the reason.
    if _follows_one_in_flight(s, s.cluster, message):
        return True
    other = s.job_progress[number].waiting
    while other != NOBODY:
        if _holds_back(s, other, message):
            return True
        other = s.waiters[other].later
    return False


@inlined
def _follows_one_in_flight(s: State, cluster: ClusterView, message: int) -> bool:
    """Whether a message of its job that is needed before it is in flight on one of its ports."""
    messages, links = cluster.messages, cluster.links
    first = messages[message].first_link
    for own in range(first, first + messages[message].links):
        port = cluster.ports[links[own].port]
        link = port.first_in_flight if port.carries <= 1 else NOBODY
        while link != NOBODY:
            other = links[link].message
            if messages[other].job == messages[message].job and _is_needed_before(
                s, other, message
            ):
                return True
            link = links[link].next
    return False


@inlined
def _holds_back(s: State, one: int, other: int) -> bool:
    """Whether a waiting message is needed before another of its job, with no room for both."""
    return _is_needed_before(s, one, other) and share_a_port(s.cluster, other, one)


@inlined
def _is_needed_before(s: State, one: int, other: int) -> bool:
    """Whether a message has more computing behind it than another, or as much and comes first."""
    groups = s.cluster.message_groups
    return bool((groups[one].behind_ns, other) > (groups[other].behind_ns, one))


def measure_iteration(s: State, job: int) -> None:
    """Set u_J and s_J of a job that has been put on its GPUs, and its messages in an iteration."""
    jobs, messages, progress = s.cluster.jobs, s.cluster.messages, s.job_progress[job]
    jobs[job].forward_ns = _longest_path_ns(s, job, False)
    jobs[job].service_ns = jobs[job].forward_ns
    if jobs[job].servers > 1:
        jobs[job].service_ns = _alone_ns(s, job, False)
    progress.messages_each = 0
    bucket_bytes = alone_bucket_bytes(s)
    for message in range(jobs[job].first_message, jobs[job].first_message + jobs[job].messages):
        if messages[message].servers > 1:
            buckets = (messages[message].size_bytes + bucket_bytes - 1) // bucket_bytes
            progress.messages_each += max(1, buckets)


@part
def _task_ns_on_its_gpu(s: State, job: int, node: int) -> int:
    record = s.cluster.jobs[job]
    graph = s.graphs.graphs[record.graph]
    task = s.graphs.nodes[graph.first_node + node]
    gpu_type = s.cluster.gpus[s.cluster.seats[record.first_seat + task.rank].gpu].type
    return entry_ns(s, job, task.entry, gpu_type)


def unslowed_ns(s: State, job: int) -> int:
    """Return the length of an iteration in which no message slows or holds back another."""
    return int(_longest_path_ns(s, job, True))


def alone_ns(s: State, job: int) -> int:
    """Return the length of an iteration alone, under the admission of the run."""
    return int(_alone_ns(s, job, True))


@part
def _longest_path_ns(s: State, job: int, sends: bool) -> int:
    """Return the length of the longest path through the graph.

    Messages take no time, which gives u_J, or as long as each does alone.
    """
    graph, end_ns = s.graphs.graphs[s.cluster.jobs[job].graph], s.graphs.times_ns
    for node in range(graph.nodes):
        end_ns[node] = 0
    longest_ns = 0
    for i in range(graph.nodes):
        node = s.graphs.nodes[graph.first_node + i].in_order
        record = s.graphs.nodes[graph.first_node + node]
        node_ns = end_ns[node]
        if node < graph.tasks:
            node_ns += _task_ns_on_its_gpu(s, job, node)
        elif sends:
            message = s.cluster.jobs[job].first_message + node - graph.tasks
            if s.cluster.messages[message].servers > 1:
                node_ns += message_alone_ns(s, message)
        longest_ns = max(longest_ns, node_ns)
        for at in range(record.first_successor, record.first_successor + record.successors):
            successor = s.graphs.successors[at]
            end_ns[successor] = max(end_ns[successor], node_ns)
    return int(longest_ns)


@part
def _alone_ns(s: State, job: int, by_admission: bool) -> int:
    """Return how long an iteration takes that has the network to itself.

    Every message is sent whole as soon as it is ready, which gives s_J, or bucket by bucket when
    the admission of the run lets it start.
    """
    alone, traffic = s.graphs.alone, s.graphs.alone_traffic
    heap, positions = s.graphs.alone_heap, s.graphs.alone_positions
    graph = s.graphs.graphs[s.cluster.jobs[job].graph]
    first = s.cluster.jobs[job].first_message
    count_anew(s, job)
    size, pending, waiting, now_ns = 0, 0, 0, 0
    for node in range(graph.nodes):
        if s.graphs.nodes[graph.first_node + node].predecessors == 0:
            s.graphs.pending[pending] = node
            pending += 1
    while True:
        alone.system[0].now_ns = now_ns
        while pending > 0:
            pending -= 1
            node = s.graphs.pending[pending]
            if node < graph.tasks:
                end_ns = now_ns + _task_ns_on_its_gpu(s, job, node)
                size = schedule_rarely(heap, positions, size, node, end_ns)
            elif s.cluster.messages[first + node - graph.tasks].servers < 2:
                pending = _end_alone(s, job, node, pending)
            else:
                record = s.cluster.messages[first + node - graph.tasks]
                record.unsent_bytes = record.size_bytes
                waiting = _let_wait_alone(s, first + node - graph.tasks, waiting, by_admission)
        waiting = _admit_alone(s, waiting, size == 0, by_admission)
        changed = update_costs(alone, traffic)
        for i in range(changed):
            record = alone.messages[traffic.found[i]]
            sending_ns = math.ceil(record.bytes_left * record.cost_ns_per_byte)
            end_ns = max(now_ns + 1, record.since_ns + sending_ns)
            size = schedule_rarely(
                heap, positions, size, node_of_message(s, traffic.found[i]), end_ns
            )
        forget_changes(traffic)
        if size == 0:
            return int(now_ns)
        now_ns = heap[0].time_ns
        alone.system[0].now_ns = now_ns
        while size > 0 and heap[0].time_ns == now_ns:
            node = heap[0].event
            size = remove_first(heap, positions, size)
            if node >= graph.tasks:
                record = s.cluster.messages[first + node - graph.tasks]
                end_message(alone, traffic, first + node - graph.tasks)
                record.unsent_bytes -= record.bytes
                if record.unsent_bytes > 0:
                    waiting = _let_wait_alone(s, first + node - graph.tasks, waiting, by_admission)
                    continue
            pending = _end_alone(s, job, node, pending)


@part
def _let_wait_alone(s: State, message: int, waiting: int, in_buckets: bool) -> int:
    """Add a message to those that wait, ordered by number; return how many there are."""
    record, now_ns = s.cluster.messages[message], s.graphs.alone.system[0].now_ns
    record.bytes = record.unsent_bytes
    if in_buckets:
        record.bytes = min(record.unsent_bytes, alone_bucket_bytes(s))
    record.state = READY
    record.ready_ns = now_ns
    index = waiting
    while index > 0 and s.graphs.waiting[index - 1] > message:
        s.graphs.waiting[index] = s.graphs.waiting[index - 1]
        index -= 1
    s.graphs.waiting[index] = message
    return waiting + 1


@part
def _admit_alone(s: State, waiting: int, idle: bool, by_admission: bool) -> int:
    """Start the messages of an iteration alone that may; return how many wait.

    If nothing is running and the admission lets none start, the first starts.
    """
    alone, now_ns = s.graphs.alone, s.graphs.alone.system[0].now_ns
    kept = 0
    for i in range(waiting):
        message = s.graphs.waiting[i]
        starts = not by_admission
        if by_admission and not (
            s.rules[0].needed_first != 0 and _waits_for_another(s, message, kept, i, waiting)
        ):
            starts = _admits(ask_admission(s, alone, message), now_ns)
        if starts:
            idle = False
            start_message(alone, s.graphs.alone_traffic, message)
        else:
            s.graphs.waiting[kept] = message
            kept += 1
    if idle and kept > 0:
        start_message(alone, s.graphs.alone_traffic, s.graphs.waiting[0])
        kept -= 1
        for i in range(kept):
            s.graphs.waiting[i] = s.graphs.waiting[i + 1]
    return kept


@part
def _waits_for_another(s: State, message: int, kept: int, i: int, waiting: int) -> bool:
    """Whether a message of an iteration alone waits for one that is needed before it.

    Those that wait are waiting[:kept] and waiting[i:waiting].
    """
    if not messages_meet(s.cluster):
        return False
    if _follows_one_in_flight(s, s.graphs.alone, message):
        return True
    for other in range(waiting):
        if (other < kept or other > i) and _holds_back(s, s.graphs.waiting[other], message):
            return True
    return False


@part
def _end_alone(s: State, job: int, node: int, pending: int) -> int:
    """Add what is ready at the end of a node to those pending; return their number."""
    graph, first = s.graphs.graphs[s.cluster.jobs[job].graph], s.job_progress[job].first_left
    record = s.graphs.nodes[graph.first_node + node]
    for i in range(record.first_successor, record.first_successor + record.successors):
        successor = s.graphs.successors[i]
        s.graphs.left[first + successor] -= 1
        if s.graphs.left[first + successor] == 0:
            s.graphs.pending[pending] = successor
            pending += 1
    return int(pending)
