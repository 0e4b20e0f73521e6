"""Steps 2 and 3: the queue, and a place on the cluster for those in it.

Queued jobs of one size, that is, of as many GPUs with as much memory, have a queue of their own. If
there is no room for one of them there is none for the others, nor for those that need more of both;
so a step passes over whole queues, and its cost grows with the sizes, not with the jobs that wait.
"""

from __future__ import annotations

from headway.domain.records import NOBODY
from headway.engine.computing import insert_in_order, start_iteration
from headway.engine.order import comes_before
from headway.engine.repeating import forget_sets_beside, trust_again
from headway.engine.solo import catch_up, interrupt
from headway.engine.state import Integers, Rule, State
from headway.jit import inlined, part
from headway.network.messages import all_reduce_alone_ns, ring_latency_ns, ring_weight

_NO_ROOM, _REFUSED, _PLACED, _SPOILT = range(4)


@inlined
def arrive(s: State, job: int, priority: Rule) -> None:
    """Step 2: let a job arrive."""
    parameter = s.rules[0].priority_parameter
    s.cluster.jobs[job].priority_key = priority(s.cluster, job, parameter)
    insert_in_order(s, s.fresh, 0, s.tally[0].fresh, job)
    s.tally[0].fresh += 1


@inlined
def _enqueue(s: State, job: int) -> None:
    """Let a job join the queue of its size."""
    queues, tally = s.queues, s.tally
    queue = s.queue_of[job]
    if queues[queue].first == queues[queue].end:
        s.active[tally[0].active] = queue
        tally[0].active += 1
    insert_in_order(s, s.queue, queues[queue].first, queues[queue].end, job)
    queues[queue].end += 1
    tally[0].queue += 1


@part
def place(s: State, now_ns: int, placement: Rule, priority: Rule) -> int:
    """Step 3: try the queue in order; return NOBODY, or the job for which a policy spoilt the list.

    A steady policy is not asked again about a job it left queued until some job has finished.
    """
    tally = s.tally
    if s.rules[0].placement_steady != 0 and (tally[0].left_cluster == 0 or tally[0].queue == 0):
        culprit = _place_fresh(s, now_ns, placement, priority)
    else:
        for turn in range(tally[0].fresh):
            _enqueue(s, s.fresh[turn])
        culprit = _place_all(s, now_ns, placement, priority)
    tally[0].fresh = 0
    for turn in range(tally[0].placed):
        _begin(s, s.scratch[turn], now_ns, priority)
    tally[0].placed = 0
    return culprit


@inlined
def _place_fresh(s: State, now_ns: int, placement: Rule, priority: Rule) -> int:
    """Try those that have arrived at this instant; queue the rest."""
    loads_known = False
    for turn in range(s.tally[0].fresh):
        job = s.fresh[turn]
        answer = _try(s, job, now_ns, loads_known, placement, priority)
        if answer == _SPOILT:
            return int(job)
        loads_known = loads_known or answer != _NO_ROOM
        if answer != _PLACED:
            _enqueue(s, job)
    return NOBODY


@inlined
def _place_all(s: State, now_ns: int, placement: Rule, priority: Rule) -> int:
    """Try all queued jobs in order, but for the queues whose jobs there is no room for."""
    queues, tally = s.queues, s.tally
    for turn in range(tally[0].active):
        queue = s.active[turn]
        queues[queue].turn = queues[queue].first
        queues[queue].kept = 0
        queues[queue].closed = 0
    loads_known = False
    culprit = NOBODY
    while culprit == NOBODY:
        queue = _first_queue(s)
        if queue == NOBODY:
            break
        job = s.queue[queues[queue].turn]
        answer = _try(s, job, now_ns, loads_known, placement, priority)
        if answer == _NO_ROOM:
            _close(s, queue)
            continue
        loads_known = True
        queues[queue].turn += 1
        if answer == _PLACED:
            # Those kept so far close the gap.
            last = queues[queue].turn - 1
            for spot in range(last, last - queues[queue].kept, -1):
                s.queue[spot] = s.queue[spot - 1]
            tally[0].queue -= 1
        else:
            queues[queue].kept += 1
            if answer == _SPOILT:
                culprit = int(job)
    left = 0
    for turn in range(tally[0].active):
        queue = s.active[turn]
        queues[queue].first = queues[queue].turn - queues[queue].kept
        if queues[queue].first < queues[queue].end:
            s.active[left] = queue
            left += 1
    tally[0].active = left
    return culprit


@inlined
def _first_queue(s: State) -> int:
    """Return the queue whose next job comes first, or NOBODY when all have been tried."""
    best = NOBODY
    for turn in range(s.tally[0].active):
        queue = s.active[turn]
        if s.queues[queue].closed == 0 and s.queues[queue].turn < s.queues[queue].end:
            job = s.queue[s.queues[queue].turn]
            if best == NOBODY or comes_before(s, job, s.queue[s.queues[best].turn]):
                best = queue
    return best


@inlined
def _close(s: State, full: int) -> None:
    """Pass over the queues of jobs that need no less than those for which there is no room."""
    queues = s.queues
    for turn in range(s.tally[0].active):
        queue = s.active[turn]
        if (
            queues[queue].memory_bytes >= queues[full].memory_bytes
            and queues[queue].gpus >= queues[full].gpus
        ):
            queues[queue].closed = 1


@part
def _try(
    s: State, job: int, now_ns: int, loads_known: bool, placement: Rule, priority: Rule
) -> int:
    """Place a job if there is room and the policy wants it."""
    count = _list_candidates(s, job)
    if count < s.cluster.jobs[job].gpus:
        return _NO_ROOM
    if not loads_known:
        _update_loads(s, now_ns, priority)
    candidates = s.candidates[:count]
    if not placement(s.cluster, job, candidates, s.rules[0].placement_parameter):
        return _REFUSED
    if not _take_first_candidates(s, job):
        return _SPOILT
    _start_job(s, job, now_ns, priority)
    return _PLACED


@inlined
def _list_candidates(s: State, job: int) -> int:
    """List the GPUs with enough free memory, ascending; return how many there are."""
    count = 0
    for gpu in range(len(s.cluster.gpus)):
        if s.cluster.gpus[gpu].free_bytes >= s.cluster.jobs[job].memory_bytes:
            s.candidates[count] = gpu
            count += 1
    return count


@inlined
def _update_loads(s: State, now_ns: int, priority: Rule) -> None:
    """Bring L_g and L_S up to date."""
    for gpu in range(len(s.cluster.gpus)):
        s.cluster.gpus[gpu].load_ns = 0
    for server in range(len(s.cluster.servers)):
        s.cluster.servers[server].load_ns = 0
    for turn in range(s.tally[0].running):
        job = s.running[turn]
        if s.gangs[job].solo_ns != NOBODY:
            catch_up(s, job, now_ns, priority)
        _add_load(s, job)


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
    """Sort by insertion: a policy's first n are often in order already."""
    for end in range(1, count):
        value = values[end]
        spot = end
        while spot > 0 and values[spot - 1] > value:
            values[spot] = values[spot - 1]
            spot -= 1
        values[spot] = value


@inlined
def _take_first_candidates(s: State, job: int) -> bool:
    """Give a job the first n candidates, unless they are not n distinct GPUs with room for it."""
    jobs, gpus, seats, links = s.cluster.jobs, s.cluster.gpus, s.cluster.seats, s.cluster.links
    first, count = jobs[job].first_seat, jobs[job].gpus
    if count > len(gpus):
        return False
    _sort(s.candidates, count)
    for turn in range(count):
        gpu = s.candidates[turn]
        if gpu < 0 or gpu >= len(gpus) or (turn > 0 and s.candidates[turn - 1] == gpu):
            return False
        if gpus[gpu].free_bytes < jobs[job].memory_bytes:
            return False
    first_link, used = jobs[job].first_link, 0
    for turn in range(count):
        gpu = s.candidates[turn]
        gpus[gpu].free_bytes -= jobs[job].memory_bytes
        seats[first + turn].gpu = gpu
        server = gpus[gpu].server
        if used == 0 or links[first_link + used - 1].port != server:
            links[first_link + used].port = server
            used += 1
    jobs[job].servers = jobs[job].links = used
    _add_uplinks(s, job)
    return True


@inlined
def _add_uplinks(s: State, job: int) -> None:
    """Give a job that crosses racks the ports of their uplinks, in ascending order."""
    jobs, servers, links = s.cluster.jobs, s.cluster.servers, s.cluster.links
    first, count = jobs[job].first_link, jobs[job].servers
    used = count
    if len(s.cluster.ports) == len(servers):
        return
    for link in range(first, first + count):
        uplink = len(servers) + servers[links[link].port].rack
        place = used
        while place > count and links[first + place - 1].port > uplink:
            place -= 1
        if place > count and links[first + place - 1].port == uplink:
            continue
        for spot in range(used, place, -1):
            links[first + spot].port = links[first + spot - 1].port
        links[first + place].port = uplink
        used += 1
    if used > count + 1:
        jobs[job].links = used


@inlined
def _start_job(s: State, job: int, now_ns: int, priority: Rule) -> None:
    """Count the times of its slowest GPU, and communication if any, into L_J; list it everywhere.

    It begins at the end of the step, so that others in the queue see the jobs that it disturbs as
    the instant's completions left them.
    """
    jobs, gpus, seats, paces = s.cluster.jobs, s.cluster.gpus, s.cluster.seats, s.paces
    ports, links = s.cluster.ports, s.cluster.links
    slowest = NOBODY
    first = jobs[job].first_seat
    for seat in range(first, first + jobs[job].gpus):
        pace = job * s.rules[0].types + gpus[seats[seat].gpu].type
        if slowest == NOBODY or (
            paces[pace].forward_ns + paces[pace].backward_ns
            > paces[slowest].forward_ns + paces[slowest].backward_ns
        ):
            slowest = pace
    jobs[job].forward_ns = paces[slowest].forward_ns
    jobs[job].backward_ns = paces[slowest].backward_ns
    jobs[job].service_ns = jobs[job].forward_ns + jobs[job].backward_ns
    if jobs[job].servers > 1:
        measured = s.cluster.system[0].ring_servers
        if measured > 0:
            a_ns, used = s.cluster.system[0].a_ns, jobs[job].servers
            jobs[job].latency_ns = ring_latency_ns(a_ns, used, measured)
            jobs[job].byte_weight = ring_weight(used, measured)
        jobs[job].service_ns += all_reduce_alone_ns(s.cluster, job)
    jobs[job].remaining_service_ns = (
        jobs[job].iterations_left * jobs[job].service_ns * jobs[job].gpus
    )
    jobs[job].start_ns = now_ns
    jobs[job].priority_key = priority(s.cluster, job, s.rules[0].priority_parameter)
    s.gangs[job].place = s.tally[0].running
    s.running[s.tally[0].running] = job
    s.tally[0].running += 1
    _add_load(s, job)
    for seat in range(first, first + jobs[job].gpus):
        gpu = seats[seat].gpu
        seats[seat].beside = gpus[gpu].held
        gpus[gpu].held = seat
    if jobs[job].servers > 1:
        for link in range(jobs[job].first_link, jobs[job].first_link + jobs[job].links):
            port = links[link].port
            links[link].beside = ports[port].held
            ports[port].held = link
            ports[port].jobs += 1
    s.scratch[s.tally[0].placed] = job
    s.tally[0].placed += 1


@inlined
def _begin(s: State, job: int, now_ns: int, priority: Rule) -> None:
    """Start a placed job; those that it may now disturb are no longer skipped."""
    jobs, seats, links = s.cluster.jobs, s.cluster.seats, s.cluster.links
    first = jobs[job].first_seat
    for seat in range(first, first + jobs[job].gpus):
        other = seats[seat].beside
        while other != NOBODY:
            if s.gangs[seats[other].job].solo_ns != NOBODY:
                interrupt(s, int(seats[other].job), now_ns, priority)
            other = seats[other].beside
    if jobs[job].servers > 1 and s.cluster.system[0].contends != 0:
        for link in range(jobs[job].first_link, jobs[job].first_link + jobs[job].links):
            other = links[link].beside
            if other != NOBODY and s.gangs[links[other].job].solo_ns != NOBODY:
                interrupt(s, int(links[other].job), now_ns, priority)
    forget_sets_beside(s, job, now_ns, priority)
    trust_again(s, job)
    start_iteration(s, job, now_ns, priority)
