"""Steps 1 and 5 for compute tasks, and the chain of a job's iterations.

Two facts make this quick. Compute tasks of one job and stage that start together end together:
they are one *group* and one event. And a job's place in the priority order moves only when it is
placed or an iteration of its ends, when none of its tasks is ready; so a GPU's list of ready seats,
kept in order as seats join it, stays in order, and dispatch takes the first.
"""

from __future__ import annotations

from headway.domain.records import BACKWARD, FORWARD, NOBODY, Records
from headway.engine.events import schedule
from headway.engine.state import NEVER_ASKED, Rule, State
from headway.jit import inlined


@inlined
def comes_before(s: State, job: int, other: int) -> bool:
    """Priority order: ascending (key, index)."""
    key, other_key = s.cluster.jobs[job].priority_key, s.cluster.jobs[other].priority_key
    return bool(key < other_key or (key == other_key and job < other))


@inlined
def insert_in_order(s: State, entries: Records, size: int, job: int) -> None:
    """Add a job to the first `size` entries, which are in priority order."""
    place = size
    while place > 0 and comes_before(s, job, entries[place - 1].job):
        entries[place] = entries[place - 1]
        place -= 1
    entries[place].job = job
    entries[place].wake = NEVER_ASKED


@inlined
def record_task(s: State, kind: int, job: int, gpu: int, start_ns: int, end_ns: int) -> None:
    """Add a row to the timeline."""
    row = s.tally[0].timeline
    s.timeline[row].kind = kind
    s.timeline[row].job = job
    s.timeline[row].gpu = gpu
    s.timeline[row].iteration = s.cluster.jobs[job].iterations - s.cluster.jobs[job].iterations_left
    s.timeline[row].start_ns = start_ns
    s.timeline[row].end_ns = end_ns
    s.tally[0].timeline = row + 1


@inlined
def _make_ready(s: State, seat: int, stage: int) -> None:
    """Let a seat's next compute task wait for its GPU."""
    gpus, seats = s.cluster.gpus, s.cluster.seats
    gpu = seats[seat].gpu
    job = seats[seat].job
    seats[seat].stage = stage
    following = gpus[gpu].ready
    if following == NOBODY or comes_before(s, job, seats[following].job):
        gpus[gpu].ready = seat
    else:
        previous = following
        following = seats[previous].next
        while following != NOBODY and not comes_before(s, job, seats[following].job):
            previous = following
            following = seats[previous].next
        seats[previous].next = seat
    seats[seat].next = following
    if gpus[gpu].busy == 0 and gpus[gpu].listed == 0:
        gpus[gpu].listed = 1
        s.idle[s.tally[0].idle] = gpu
        s.tally[0].idle += 1


@inlined
def start_iteration(s: State, job: int) -> None:
    """Make every forward task of a job ready."""
    first, count = s.cluster.jobs[job].first_seat, s.cluster.jobs[job].gpus
    s.gangs[job].tasks_left = count
    for seat in range(first, first + count):
        _make_ready(s, seat, FORWARD)


@inlined
def end_iteration(s: State, job: int, now_ns: int, priority: Rule) -> None:
    """Go on to the next iteration, or finish the job and free its memory."""
    jobs, gpus, seats, tally = s.cluster.jobs, s.cluster.gpus, s.cluster.seats, s.tally
    count = jobs[job].gpus
    jobs[job].iterations_left -= 1
    jobs[job].remaining_service_ns -= jobs[job].service_ns * count
    tally[0].compute_tasks += 2 * count
    if jobs[job].iterations_left > 0:
        jobs[job].priority_key = priority(s.cluster, job, s.rules[0].priority_parameter)
        start_iteration(s, job)
        return
    jobs[job].finish_ns = now_ns
    first = jobs[job].first_seat
    for seat in range(first, first + count):
        gpus[seats[seat].gpu].free_bytes += jobs[job].memory_bytes
    place = 0
    while s.running[place] != job:
        place += 1
    tally[0].running -= 1
    s.running[place] = s.running[tally[0].running]
    tally[0].finished += 1
    tally[0].left_cluster += 1


@inlined
def make_message_ready(s: State, job: int) -> None:
    """Let a job's next message, a bucket of what is unsent, wait for admission."""
    jobs, system, tally = s.cluster.jobs, s.cluster.system, s.tally
    jobs[job].message_bytes = min(jobs[job].unsent_bytes, system[0].bucket_bytes)
    insert_in_order(s, s.waiting, tally[0].waiting, job)
    tally[0].waiting += 1
    tally[0].fresh_messages += 1


@inlined
def complete_group(s: State, group: int, now_ns: int, priority: Rule) -> None:
    """End the tasks of a group: their GPUs are idle, their successors ready."""
    gpus, seats, tally = s.cluster.gpus, s.cluster.seats, s.tally
    job, stage, seat = s.groups[group].job, s.groups[group].stage, s.groups[group].first_seat
    s.free_groups[tally[0].free_groups] = group
    tally[0].free_groups += 1
    count = 0
    while seat != NOBODY:
        following = seats[seat].next
        gpu = seats[seat].gpu
        gpus[gpu].busy = 0
        gpus[gpu].listed = 1
        s.idle[tally[0].idle] = gpu
        tally[0].idle += 1
        if len(s.timeline) > 0:
            record_task(s, stage, job, gpu, s.groups[group].start_ns, now_ns)
        if stage == FORWARD:
            _make_ready(s, seat, BACKWARD)
        count += 1
        seat = following
    if stage == BACKWARD:
        s.gangs[job].tasks_left -= count
        if s.gangs[job].tasks_left == 0:
            if s.cluster.jobs[job].servers == 1:
                end_iteration(s, job, now_ns, priority)
            else:
                s.cluster.jobs[job].unsent_bytes = s.cluster.jobs[job].gradient_bytes
                make_message_ready(s, job)


@inlined
def dispatch(s: State, now_ns: int) -> None:
    """Step 5: every idle GPU starts the ready task of the first job in priority order."""
    jobs, gpus, seats, gangs = s.cluster.jobs, s.cluster.gpus, s.cluster.seats, s.gangs
    for place in range(s.tally[0].idle):
        gpu = s.idle[place]
        gpus[gpu].listed = 0
        seat = gpus[gpu].ready
        if seat == NOBODY:
            continue
        gpus[gpu].ready = seats[seat].next
        gpus[gpu].busy = 1
        job = seats[seat].job
        stage = seats[seat].stage
        if stage == FORWARD:
            group, group_ns = gangs[job].forward_group, gangs[job].forward_group_ns
        else:
            group, group_ns = gangs[job].backward_group, gangs[job].backward_group_ns
        if group_ns == now_ns:
            seats[seat].next = s.groups[group].first_seat
            s.groups[group].first_seat = seat
            continue
        s.tally[0].free_groups -= 1
        group = s.free_groups[s.tally[0].free_groups]
        seats[seat].next = NOBODY
        s.groups[group].first_seat = seat
        s.groups[group].job = job
        s.groups[group].stage = stage
        s.groups[group].start_ns = now_ns
        if stage == FORWARD:
            gangs[job].forward_group = group
            gangs[job].forward_group_ns = now_ns
            end_ns = now_ns + jobs[job].forward_ns
        else:
            gangs[job].backward_group = group
            gangs[job].backward_group_ns = now_ns
            end_ns = now_ns + jobs[job].backward_ns
        s.tally[0].heap = schedule(s.heap, s.places, s.tally[0].heap, group, end_ns)
    s.tally[0].idle = 0
