"""The kernel: one instant after another, in the five steps of docs/model.md ("One instant").

It stops at the end of an instant when its budget is spent, so that Python can show progress, take
Ctrl-C or empty the timeline, and goes on from the same state. Where it stops changes no result.

Two things make it quick. Compute tasks of one job and stage that start together end together: they
are one *group* and one event. And a job's place in the priority order moves only when an iteration of
its ends, when none of its tasks is ready; so a GPU's list of ready seats, kept in order as seats
join it, stays in order, and dispatch takes the first.
"""

from __future__ import annotations

import math

from headway.domain.limits import HORIZON_NS
from headway.domain.records import BACKWARD, FORWARD, MESSAGE, NOBODY
from headway.engine.events import remove_first, schedule
from headway.engine.state import Integers, State
from headway.jit import inlined
from headway.network.messages import cost_ns_per_byte

BUDGET_SPENT, FINISHED, STALLED, OUT_OF_TIME, TIMELINE_FULL, BAD_PLACEMENT = 0, 1, 2, 3, 4, 5


@inlined
def _before(s: State, job: int, other: int) -> bool:
    """Priority order: ascending (key, index)."""
    jobs = s.cluster.jobs
    key, other_key = jobs[job].priority_key, jobs[other].priority_key
    return key < other_key or (key == other_key and job < other)


@inlined
def _insert_in_order(s: State, members, size: int, job: int) -> None:
    place = size
    while place > 0 and _before(s, job, members[place - 1]):
        members[place] = members[place - 1]
        place -= 1
    members[place] = job


@inlined
def _make_ready(s: State, seat: int, stage: int) -> None:
    """Let a seat's next compute task wait for its GPU."""
    gpus, seats = s.cluster.gpus, s.cluster.seats
    gpu = seats[seat].gpu
    job = seats[seat].job
    seats[seat].stage = stage
    following = gpus[gpu].ready
    if following == NOBODY or _before(s, job, seats[following].job):
        gpus[gpu].ready = seat
    else:
        previous = following
        following = seats[previous].next
        while following != NOBODY and not _before(s, job, seats[following].job):
            previous = following
            following = seats[previous].next
        seats[previous].next = seat
    seats[seat].next = following
    if gpus[gpu].busy == 0 and gpus[gpu].listed == 0:
        gpus[gpu].listed = 1
        s.idle[s.tally[0].idle] = gpu
        s.tally[0].idle += 1


@inlined
def _record(s: State, kind: int, job: int, gpu: int, start_ns: int, end_ns: int) -> None:
    row = s.tally[0].timeline
    s.timeline[row].kind = kind
    s.timeline[row].job = job
    s.timeline[row].gpu = gpu
    s.timeline[row].iteration = s.cluster.jobs[job].iterations - s.cluster.jobs[job].iterations_left
    s.timeline[row].start_ns = start_ns
    s.timeline[row].end_ns = end_ns
    s.tally[0].timeline = row + 1


@inlined
def _start_iteration(s: State, job: int) -> None:
    first, count = s.cluster.jobs[job].first_seat, s.cluster.jobs[job].gpus
    s.gangs[job].tasks_left = count
    for seat in range(first, first + count):
        _make_ready(s, seat, FORWARD)


@inlined
def _end_iteration(s: State, job: int, now_ns: int, priority, priority_parameter: float) -> None:
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    count = jobs[job].gpus
    jobs[job].iterations_left -= 1
    jobs[job].remaining_service_ns -= jobs[job].service_ns * count
    s.tally[0].tasks += 2 * count
    s.tally[0].compute_tasks += 2 * count
    if jobs[job].iterations_left > 0:
        jobs[job].priority_key = priority(s.cluster, job, priority_parameter)
        _start_iteration(s, job)
        return
    jobs[job].finish_ns = now_ns
    first = jobs[job].first_seat
    for seat in range(first, first + count):
        gpus[seats[seat].gpu].free_bytes += jobs[job].memory_bytes
    place = 0
    while s.running[place] != job:
        place += 1
    s.tally[0].running -= 1
    s.running[place] = s.running[s.tally[0].running]
    s.tally[0].finished += 1
    s.tally[0].left_cluster += 1


@inlined
def _complete_group(
    s: State, group: int, now_ns: int, priority, priority_parameter: float, recording: bool
) -> None:
    gpus, seats = s.cluster.gpus, s.cluster.seats
    job, stage, seat = s.groups[group].job, s.groups[group].stage, s.groups[group].first_seat
    s.free_groups[s.tally[0].free_groups] = group
    s.tally[0].free_groups += 1
    idle = s.tally[0].idle
    count = 0
    while seat != NOBODY:
        following = seats[seat].next
        gpu = seats[seat].gpu
        gpus[gpu].busy = 0
        gpus[gpu].listed = 1
        s.idle[idle] = gpu
        idle += 1
        s.tally[0].idle = idle
        if recording:
            _record(s, stage, job, gpu, s.groups[group].start_ns, now_ns)
        if stage == FORWARD:
            _make_ready(s, seat, BACKWARD)
        count += 1
        seat = following
    if stage == BACKWARD:
        s.gangs[job].tasks_left -= count
        if s.gangs[job].tasks_left == 0:
            if s.cluster.jobs[job].servers == 1:
                _end_iteration(s, job, now_ns, priority, priority_parameter)
            else:
                _insert_in_order(s, s.waiting, s.tally[0].waiting, job)
                s.tally[0].waiting += 1
                s.gangs[job].fresh = 1
                s.tally[0].fresh_messages += 1


@inlined
def _touch(s: State, server: int) -> None:
    if s.cluster.servers[server].touched == 0:
        s.cluster.servers[server].touched = 1
        s.touched[s.tally[0].touched] = server
        s.tally[0].touched += 1


@inlined
def _complete_message(
    s: State, job: int, now_ns: int, priority, priority_parameter: float, recording: bool
) -> None:
    jobs, servers, links = s.cluster.jobs, s.cluster.servers, s.cluster.links
    if s.cluster.system[0].contends != 0:
        first = jobs[job].first_seat
        for link in range(first, first + jobs[job].servers):
            server = links[link].server
            following, previous = links[link].next, links[link].previous
            if previous == NOBODY:
                servers[server].first_link = following
            else:
                links[previous].next = following
            if following != NOBODY:
                links[following].previous = previous
            servers[server].messages -= 1
            _touch(s, server)
    if recording:
        _record(s, MESSAGE, job, NOBODY, jobs[job].message_start_ns, now_ns)
    jobs[job].message_k = 0
    s.tally[0].left_network += 1
    s.tally[0].tasks += 1
    _end_iteration(s, job, now_ns, priority, priority_parameter)


@inlined
def _update_loads(s: State) -> None:
    """Bring L_g and L_S up to date."""
    jobs, gpus, servers, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.servers, s.cluster.seats
    for gpu in range(len(gpus)):
        gpus[gpu].load_ns = 0
    for server in range(len(servers)):
        servers[server].load_ns = 0
    for place in range(s.tally[0].running):
        _add_load(s, s.running[place])


@inlined
def _add_load(s: State, job: int) -> None:
    jobs, gpus, servers, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.servers, s.cluster.seats
    first = jobs[job].first_seat
    for seat in range(first, first + jobs[job].gpus):
        gpu = seats[seat].gpu
        gpus[gpu].load_ns += jobs[job].remaining_service_ns
        servers[gpus[gpu].server].load_ns += jobs[job].remaining_service_ns


@inlined
def _sort(values: Integers, count: int) -> None:
    """Insertion sort: a policy's first n are often in order already."""
    for end in range(1, count):
        value = values[end]
        place = end
        while place > 0 and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value


@inlined
def _seat_job(s: State, job: int) -> bool:
    """Give a job the first n candidates; refuse a list that a policy has spoilt."""
    jobs, gpus, seats, links = s.cluster.jobs, s.cluster.gpus, s.cluster.seats, s.cluster.links
    first, count = jobs[job].first_seat, jobs[job].gpus
    for place in range(count):
        gpu = s.candidates[place]
        if gpu < 0 or gpu >= len(gpus) or gpus[gpu].free_bytes < jobs[job].memory_bytes:
            return False
        for earlier in range(place):
            if s.candidates[earlier] == gpu:
                return False
    _sort(s.candidates, count)
    used = 0
    for place in range(count):
        gpu = s.candidates[place]
        gpus[gpu].free_bytes -= jobs[job].memory_bytes
        seats[first + place].gpu = gpu
        server = gpus[gpu].server
        if used == 0 or links[first + used - 1].server != server:
            links[first + used].server = server
            used += 1
    jobs[job].servers = used
    return True


@inlined
def _place(
    s: State, now_ns: int, priority, priority_parameter: float,
    placement, placement_parameter: float, everyone: bool,
) -> int:
    """Step 3; return NOBODY, or the job for which the policy answered nonsense."""
    jobs, gpus = s.cluster.jobs, s.cluster.gpus
    loads_known = False
    kept = 0
    for turn in range(s.tally[0].queue):
        job = s.queue[turn]
        if everyone or s.gangs[job].fresh != 0:
            s.gangs[job].fresh = 0
            count = 0
            for gpu in range(len(gpus)):
                if gpus[gpu].free_bytes >= jobs[job].memory_bytes:
                    s.candidates[count] = gpu
                    count += 1
            if count >= jobs[job].gpus:
                if not loads_known:
                    _update_loads(s)
                    loads_known = True
                if placement(s.cluster, job, s.candidates[:count], placement_parameter):
                    if not _seat_job(s, job):
                        return job
                    if jobs[job].servers > 1:
                        jobs[job].service_ns += s.cluster.system[0].a_ns + math.floor(
                            s.cluster.system[0].b_ns_per_byte * jobs[job].gradient_bytes
                        )
                        jobs[job].remaining_service_ns = (
                            jobs[job].iterations_left * jobs[job].service_ns * jobs[job].gpus
                        )
                    jobs[job].priority_key = priority(s.cluster, job, priority_parameter)
                    jobs[job].start_ns = now_ns
                    s.running[s.tally[0].running] = job
                    s.tally[0].running += 1
                    _add_load(s, job)
                    _start_iteration(s, job)
                    continue
        s.queue[kept] = job
        kept += 1
    s.tally[0].queue = kept
    return NOBODY


@inlined
def _rate(s: State, job: int, now_ns: int) -> None:
    """Give a message its k and its end if its k has changed."""
    jobs, servers, links, system = s.cluster.jobs, s.cluster.servers, s.cluster.links, s.cluster.system
    k = 1
    if system[0].contends != 0:
        first = jobs[job].first_seat
        for link in range(first, first + jobs[job].servers):
            k = max(k, servers[links[link].server].messages)
    if k == jobs[job].message_k:
        return
    b, eta = system[0].b_ns_per_byte, system[0].eta_ns_per_byte
    if jobs[job].message_k > 0 and now_ns > jobs[job].message_since_ns:
        sent = (now_ns - jobs[job].message_since_ns) / cost_ns_per_byte(jobs[job].message_k, b, eta)
        jobs[job].message_bytes_left = max(0.0, jobs[job].message_bytes_left - sent)
        jobs[job].message_since_ns = now_ns
    jobs[job].message_k = k
    sending_ns = math.ceil(jobs[job].message_bytes_left * cost_ns_per_byte(k, b, eta))
    end_ns = max(now_ns + 1, jobs[job].message_since_ns + sending_ns)
    event = len(s.cluster.gpus) + job
    s.tally[0].heap = schedule(s.heap, s.places, s.tally[0].heap, event, end_ns)


@inlined
def _send(s: State, job: int, now_ns: int) -> None:
    """Put a job's message on its servers; it is rated at the end of the step."""
    jobs, servers, links, system = s.cluster.jobs, s.cluster.servers, s.cluster.links, s.cluster.system
    jobs[job].message_k = 0
    jobs[job].message_start_ns = now_ns
    jobs[job].message_since_ns = now_ns + system[0].a_ns
    jobs[job].message_bytes_left = jobs[job].gradient_bytes
    if system[0].contends == 0:
        _rate(s, job, now_ns)
        return
    first = jobs[job].first_seat
    for link in range(first, first + jobs[job].servers):
        server = links[link].server
        following = servers[server].first_link
        links[link].next = following
        links[link].previous = NOBODY
        if following != NOBODY:
            links[following].previous = link
        servers[server].first_link = link
        servers[server].messages += 1
        _touch(s, server)


@inlined
def _admit(s: State, now_ns: int, admission, admission_parameter: float, everyone: bool) -> None:
    """Step 4 up to the new rates."""
    kept = 0
    for turn in range(s.tally[0].waiting):
        job = s.waiting[turn]
        if everyone or s.gangs[job].fresh != 0:
            s.gangs[job].fresh = 0
            if admission(s.cluster, job, admission_parameter):
                _send(s, job, now_ns)
                continue
        s.waiting[kept] = job
        kept += 1
    s.tally[0].waiting = kept


@inlined
def _rate_touched(s: State, now_ns: int) -> None:
    servers, links = s.cluster.servers, s.cluster.links
    for place in range(s.tally[0].touched):
        server = s.touched[place]
        servers[server].touched = 0
        link = servers[server].first_link
        while link != NOBODY:
            _rate(s, links[link].job, now_ns)
            link = links[link].next
    s.tally[0].touched = 0


@inlined
def _dispatch(s: State, now_ns: int) -> None:
    """Step 5."""
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
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
            joined = s.gangs[job].forward_group_ns == now_ns
            group = s.gangs[job].forward_group
        else:
            joined = s.gangs[job].backward_group_ns == now_ns
            group = s.gangs[job].backward_group
        if joined:
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
            s.gangs[job].forward_group_ns = now_ns
            s.gangs[job].forward_group = group
            end_ns = now_ns + jobs[job].forward_ns
        else:
            s.gangs[job].backward_group_ns = now_ns
            s.gangs[job].backward_group = group
            end_ns = now_ns + jobs[job].backward_ns
        s.tally[0].heap = schedule(s.heap, s.places, s.tally[0].heap, group, end_ns)
    s.tally[0].idle = 0


def advance(
    s: State,
    placement, placement_parameter: float, placement_steady: bool,
    priority, priority_parameter: float,
    admission, admission_parameter: float, admission_steady: bool,
    budget: int,
) -> int:
    """Run up to `budget` instants; return why it stopped."""
    jobs, gpus = s.cluster.jobs, s.cluster.gpus
    job_count, gpu_count = len(jobs), len(gpus)
    recording = len(s.timeline) > 0
    for _ in range(budget):
        if s.tally[0].finished == job_count:
            return FINISHED
        if recording and s.tally[0].timeline + gpu_count + job_count > len(s.timeline):
            return TIMELINE_FULL
        heap_size = s.tally[0].heap
        arrived = s.tally[0].arrived
        if heap_size > 0:
            now_ns = s.heap[0].time_ns
            if arrived < job_count:
                now_ns = min(now_ns, jobs[s.arrivals[arrived]].arrival_ns)
        elif arrived < job_count:
            now_ns = jobs[s.arrivals[arrived]].arrival_ns
        else:
            return STALLED
        if now_ns > HORIZON_NS:
            return OUT_OF_TIME
        s.cluster.system[0].now_ns = now_ns

        # 1. Completions.
        while s.tally[0].heap > 0 and s.heap[0].time_ns == now_ns:
            event = s.heap[0].event
            s.tally[0].heap = remove_first(s.heap, s.places, s.tally[0].heap)
            if event < gpu_count:
                _complete_group(s, event, now_ns, priority, priority_parameter, recording)
            else:
                _complete_message(
                    s, event - gpu_count, now_ns, priority, priority_parameter, recording
                )

        # 2. Arrivals.
        while arrived < job_count and jobs[s.arrivals[arrived]].arrival_ns == now_ns:
            job = s.arrivals[arrived]
            arrived += 1
            s.tally[0].arrived = arrived
            jobs[job].priority_key = priority(s.cluster, job, priority_parameter)
            _insert_in_order(s, s.queue, s.tally[0].queue, job)
            s.tally[0].queue += 1
            s.gangs[job].fresh = 1
            s.tally[0].fresh_jobs += 1

        # 3. Placement.
        if s.tally[0].queue > 0:
            everyone = s.tally[0].left_cluster > 0 or not placement_steady
            if everyone or s.tally[0].fresh_jobs > 0:
                culprit = _place(
                    s, now_ns, priority, priority_parameter,
                    placement, placement_parameter, everyone,
                )
                if culprit != NOBODY:
                    s.tally[0].culprit = culprit
                    return BAD_PLACEMENT
                s.tally[0].fresh_jobs = 0
        s.tally[0].left_cluster = 0

        # 4. Admission.
        if s.tally[0].waiting > 0:
            everyone = s.tally[0].left_network > 0 or not admission_steady
            if everyone or s.tally[0].fresh_messages > 0:
                _admit(s, now_ns, admission, admission_parameter, everyone)
                s.tally[0].fresh_messages = 0
        s.tally[0].left_network = 0
        if s.tally[0].touched > 0:
            _rate_touched(s, now_ns)

        # 5. Dispatch.
        _dispatch(s, now_ns)
    return BUDGET_SPENT
