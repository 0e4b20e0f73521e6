"""Steps 2 and 3: the queue, and GPUs for the jobs in it.

Queued jobs of one size, that is, with the same number of GPUs and the same memory, all exclusive or
all not, have a queue of their own. If there is no room for one of them there is none for the
others, nor for those that need no less of anything; so a step passes over whole queues, and its
cost grows with the number of sizes, not with the number of jobs that wait. That also holds where
GPUs are kept for jobs of a priority above 0: the later a job is in the order, the fewer are left to
it.
"""

from __future__ import annotations

from headway.domain.occupancy import (
    add_load,
    add_up_loads,
    assign_first,
    could_hold,
    list_candidates,
)
from headway.domain.records import NOBODY, NOT_RESERVED, PLACEMENT
from headway.engine.compute import insert_in_order, start_iteration
from headway.engine.order import buckets_of, comes_before
from headway.engine.ready import record_task
from headway.engine.solo import catch_up
from headway.engine.state import State
from headway.jit import part
from headway.network.messages import messages_meet
from headway.network.placed_jobs import one_service_ns, put_on_cluster

_NO_ROOM, _REFUSED, _PLACED, _INVALID = range(4)


def arrive(s: State, job: int) -> None:
    """Step 2: a job arrives."""
    parameter = s.rules[0].priority_parameter
    s.cluster.jobs[job].priority_key = s.priority(s.cluster, job, parameter)
    insert_in_order(s, s.fresh, 0, s.tally[0].fresh, job)
    s.tally[0].fresh += 1


@part
def enqueue(s: State, job: int) -> None:
    """Add a job to the queue of its size."""
    queues, tally = s.queues, s.tally
    queue = s.queue_of[job]
    if queues[queue].first == queues[queue].end:
        s.active[tally[0].active] = queue
        tally[0].active += 1
    insert_in_order(s, s.queue, queues[queue].first, queues[queue].end, job)
    queues[queue].end += 1
    tally[0].queue += 1


def place(s: State, now_ns: int) -> int:
    """Step 3: try the queue in order.

    Return NOBODY, or the job for which the policy returned invalid candidates. A steady policy is
    not asked again about a job that it left queued until some job has finished.
    """
    tally = s.tally
    if s.rules[0].placement_steady != 0 and (tally[0].left_cluster == 0 or tally[0].queue == 0):
        misplaced = _place_fresh(s, now_ns)
    else:
        for i in range(tally[0].fresh):
            enqueue(s, s.fresh[i])
        misplaced = _place_all(s, now_ns)
    tally[0].fresh = 0
    for i in range(tally[0].placed):
        _begin(s, s.scratch[i], now_ns)
    tally[0].placed = 0
    return misplaced


@part
def _place_fresh(s: State, now_ns: int) -> int:
    """Try the jobs that have arrived at this instant; queue those that are not placed."""
    loads_known = False
    for i in range(s.tally[0].fresh):
        job = s.fresh[i]
        answer = _try(s, job, now_ns, loads_known)
        if answer == _INVALID:
            return int(job)
        loads_known = loads_known or answer != _NO_ROOM
        if answer != _PLACED:
            enqueue(s, job)
    return NOBODY


@part
def _place_all(s: State, now_ns: int) -> int:
    """Try all queued jobs in order, except in queues whose jobs there is no room for."""
    queues, tally = s.queues, s.tally
    for i in range(tally[0].active):
        queue = s.active[i]
        queues[queue].next = queues[queue].first
        queues[queue].kept = 0
        queues[queue].closed = 0
    loads_known = False
    misplaced = NOBODY
    while misplaced == NOBODY:
        queue = _first_queue(s)
        if queue == NOBODY:
            break
        job = s.queue[queues[queue].next]
        answer = _try(s, job, now_ns, loads_known)
        if answer == _NO_ROOM:
            _close(s, queue)
            continue
        loads_known = True
        queues[queue].next += 1
        if answer == _PLACED:
            # Those kept so far close the gap.
            last = queues[queue].next - 1
            for index in range(last, last - queues[queue].kept, -1):
                s.queue[index] = s.queue[index - 1]
            queues[queue].first += 1
            tally[0].queue -= 1
        else:
            queues[queue].kept += 1
            if answer == _INVALID:
                misplaced = int(job)
    left = 0
    for i in range(tally[0].active):
        queue = s.active[i]
        if queues[queue].first < queues[queue].end:
            s.active[left] = queue
            left += 1
    tally[0].active = left
    return misplaced


@part
def _first_queue(s: State) -> int:
    """Return the queue whose next job comes first, or NOBODY when all have been tried."""
    best = NOBODY
    for i in range(s.tally[0].active):
        queue = s.active[i]
        if s.queues[queue].closed == 0 and s.queues[queue].next < s.queues[queue].end:
            job = s.queue[s.queues[queue].next]
            if best == NOBODY or comes_before(s, job, s.queue[s.queues[best].next]):
                best = queue
    return best


@part
def _close(s: State, full: int) -> None:
    """Close the queues of jobs that need no less than those for which there is no room."""
    queues = s.queues
    for i in range(s.tally[0].active):
        queue = s.active[i]
        if (
            queues[queue].memory_bytes >= queues[full].memory_bytes
            and queues[queue].gpus >= queues[full].gpus
            and queues[queue].exclusive >= queues[full].exclusive
        ):
            queues[queue].closed = 1


@part
def _try(s: State, job: int, now_ns: int, loads_known: bool) -> int:
    """Place a job if there is room and the policy wants it."""
    if s.rules[0].reserves != 0:
        s.cluster.system[0].reserved_bytes = _reserved_bytes(s, job)
    count = list_candidates(s.cluster, job, s.candidates)
    if count < s.cluster.jobs[job].gpus:
        return _NO_ROOM
    if not loads_known:
        _update_loads(s, now_ns)
    candidates = s.candidates[:count]
    if not s.placement(s.cluster, job, candidates, s.rules[0].placement_parameter):
        return _REFUSED
    if not assign_first(s.cluster, job, candidates):
        return _INVALID
    _start_job(s, job, now_ns)
    return _PLACED


@part
def _reserved_bytes(s: State, job: int) -> int:
    """Return the memory of the smallest GPUs that are kept for queued jobs of higher priority.

    These have been tried before. A queue's first job has the highest priority in it.
    """
    jobs, queues = s.cluster.jobs, s.queues
    least = NOT_RESERVED
    for i in range(s.tally[0].active):
        queue = s.active[i]
        if queues[queue].first == queues[queue].end:
            continue
        priority = jobs[s.queue[queues[queue].first]].priority
        if (
            priority > max(0, jobs[job].priority)
            and queues[queue].memory_bytes < least
            and could_hold(s.cluster, queues[queue].gpus, queues[queue].memory_bytes)
        ):
            least = queues[queue].memory_bytes
    return int(least)


@part
def _update_loads(s: State, now_ns: int) -> None:
    """Bring L_g and L_S up to date."""
    for i in range(s.tally[0].running):
        job = s.running[i]
        if s.job_progress[job].solo_ns != NOBODY:
            catch_up(s, job, now_ns)
    add_up_loads(s.cluster)


@part
def _seat(s: State, job: int) -> None:
    """Copy a job's GPUs to its seats, and set its times to those on the slowest of them.

    The time of a graph is set when its messages are connected.
    """
    jobs, gpus, seats, paces = s.cluster.jobs, s.cluster.gpus, s.cluster.seats, s.paces
    slowest = NOBODY
    first = jobs[job].first_seat
    for seat in range(first, first + jobs[job].gpus):
        s.seat_progress[seat].gpu = seats[seat].gpu
        pace = job * s.rules[0].types + gpus[seats[seat].gpu].type
        if slowest == NOBODY or (
            paces[pace].forward_ns + paces[pace].backward_ns
            > paces[slowest].forward_ns + paces[slowest].backward_ns
        ):
            slowest = pace
    jobs[job].forward_ns = paces[slowest].forward_ns
    jobs[job].backward_ns = paces[slowest].backward_ns


@part
def put_job(s: State, job: int, start_ns: int) -> None:
    """Put a job on the GPUs of its seats and on ports, with s_J, L_J and its key as they are there.

    It is among the running jobs from then on.
    """
    jobs = s.cluster.jobs
    _seat(s, job)
    put_on_cluster(s.cluster, job)
    if jobs[job].graph != NOBODY:
        s.graph_steps.measure_iteration(s, job)
    else:
        jobs[job].service_ns = one_service_ns(s.cluster, job)
        s.job_progress[job].messages_each = buckets_of(s, job)
    jobs[job].remaining_service_ns = (
        jobs[job].iterations_left * jobs[job].service_ns * jobs[job].gpus
    )
    jobs[job].start_ns = start_ns
    jobs[job].priority_key = s.priority(s.cluster, job, s.rules[0].priority_parameter)
    s.job_progress[job].index = s.tally[0].running
    s.running[s.tally[0].running] = job
    s.tally[0].running += 1


@part
def _start_job(s: State, job: int, now_ns: int) -> None:
    """Put a job on its GPUs.

    Its first iteration begins at the end of the step, so that others in the queue see the jobs that
    it disturbs as the instant's completions left them.
    """
    jobs = s.cluster.jobs
    put_job(s, job, now_ns)
    add_load(s.cluster, job)
    if len(s.timeline) > 0:
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            gpu = s.cluster.seats[seat].gpu
            record_task(s, PLACEMENT, job, gpu, NOBODY, NOBODY, now_ns, now_ns)
    s.scratch[s.tally[0].placed] = job
    s.tally[0].placed += 1


@part
def _begin(s: State, job: int, now_ns: int) -> None:
    """Start a placed job's first iteration; jobs that it may now disturb are no longer skipped."""
    jobs, seats, links = s.cluster.jobs, s.cluster.seats, s.cluster.links
    first = jobs[job].first_seat
    for seat in range(first, first + jobs[job].gpus):
        other = seats[seat].beside
        while other != NOBODY:
            if s.job_progress[seats[other].job].solo_ns != NOBODY:
                s.rare.interrupt(s, int(seats[other].job), now_ns)
            other = seats[other].beside
    if jobs[job].servers > 1 and messages_meet(s.cluster):
        first = jobs[job].first_message
        for number in range(first, first + jobs[job].messages):
            message = s.cluster.messages[number]
            for link in range(message.first_link, message.first_link + message.links):
                other = links[link].beside
                if other >= 0:
                    neighbour = s.cluster.messages[links[other].message].job
                    if s.job_progress[neighbour].solo_ns != NOBODY:
                        s.rare.interrupt(s, int(neighbour), now_ns)
    s.rare.forget_sets_beside(s, job, now_ns)
    s.rare.trust_again(s, job)
    s.job_progress[job].ended_ns = now_ns
    start_iteration(s, job, now_ns)
