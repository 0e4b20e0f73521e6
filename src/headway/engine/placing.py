"""Steps 2 and 3: the queue, and a place on the cluster for those in it."""

from __future__ import annotations

import numpy as np

from headway.domain.records import NOBODY
from headway.engine.computing import insert_in_order, start_iteration
from headway.engine.state import MOST_REFUSALS, NEVER_ASKED, Integers, Rule, State
from headway.jit import inlined
from headway.network.messages import all_reduce_alone_ns


@inlined
def enqueue(s: State, job: int, priority: Rule) -> None:
    """Step 2: let an arrived job join the queue."""
    parameter = s.rules[0].priority_parameter
    s.cluster.jobs[job].priority_key = priority(s.cluster, job, parameter)
    insert_in_order(s, s.queue, s.tally[0].queue, job)
    s.tally[0].queue += 1
    s.tally[0].fresh_jobs += 1


@inlined
def place(s: State, now_ns: int, placement: Rule, priority: Rule) -> int:
    """Step 3: try the queue in order; return NOBODY, or the job for which a policy spoilt the list.

    A steady policy is not asked again about a job it left queued until some job has finished.
    """
    jobs, tally, rules = s.cluster.jobs, s.tally, s.rules
    everyone = tally[0].left_cluster > 0 or rules[0].placement_steady == 0
    if not everyone and tally[0].fresh_jobs == 0:
        return NOBODY
    loads_known = False
    kept, refused = 0, 0
    for turn in range(tally[0].queue):
        job = s.queue[turn].job
        placed = False
        asked = everyone or s.queue[turn].wake == NEVER_ASKED
        if asked and not _is_hopeless(s, job, refused):
            count = _list_candidates(s, job)
            if count < jobs[job].gpus:
                if refused < MOST_REFUSALS:
                    s.refusals[refused].memory_bytes = jobs[job].memory_bytes
                    s.refusals[refused].gpus = jobs[job].gpus
                    refused += 1
            else:
                if not loads_known:
                    _update_loads(s)
                    loads_known = True
                candidates = s.candidates[:count]
                placed = placement(s.cluster, job, candidates, rules[0].placement_parameter)
        if placed:
            if not _take_first_candidates(s, job):
                return int(job)
            _start_job(s, job, now_ns, priority)
        else:
            s.queue[kept].job = job
            s.queue[kept].wake = 0
            kept += 1
    tally[0].queue = kept
    tally[0].fresh_jobs = 0
    return NOBODY


@inlined
def _is_hopeless(s: State, job: int, refused: int) -> bool:
    """Whether there was no room for less at this instant; room only shrinks during the step."""
    for place in range(refused):
        if (
            s.cluster.jobs[job].memory_bytes >= s.refusals[place].memory_bytes
            and s.cluster.jobs[job].gpus >= s.refusals[place].gpus
        ):
            return True
    return False


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
def _update_loads(s: State) -> None:
    """Bring L_g and L_S up to date."""
    for gpu in range(len(s.cluster.gpus)):
        s.cluster.gpus[gpu].load_ns = 0
    for server in range(len(s.cluster.servers)):
        s.cluster.servers[server].load_ns = 0
    for turn in range(s.tally[0].running):
        _add_load(s, s.running[turn])


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
    used, mask = 0, np.int64(0)
    for turn in range(count):
        gpu = s.candidates[turn]
        gpus[gpu].free_bytes -= jobs[job].memory_bytes
        seats[first + turn].gpu = gpu
        server = gpus[gpu].server
        if used == 0 or links[first + used - 1].server != server:
            links[first + used].server = server
            used += 1
            mask |= np.int64(1) << np.int64(server & 63)
    jobs[job].servers = used
    s.gangs[job].servers_mask = mask
    return True


@inlined
def _start_job(s: State, job: int, now_ns: int, priority: Rule) -> None:
    """Count communication into L_J if there will be any, and begin."""
    jobs = s.cluster.jobs
    if jobs[job].servers > 1:
        jobs[job].service_ns += all_reduce_alone_ns(s.cluster, job)
        jobs[job].remaining_service_ns = (
            jobs[job].iterations_left * jobs[job].service_ns * jobs[job].gpus
        )
    jobs[job].start_ns = now_ns
    jobs[job].priority_key = priority(s.cluster, job, s.rules[0].priority_parameter)
    s.running[s.tally[0].running] = job
    s.tally[0].running += 1
    _add_load(s, job)
    start_iteration(s, job)
