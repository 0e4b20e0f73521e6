"""Least delay."""

from __future__ import annotations

import numpy as np

from headway.domain.records import NOBODY, ClusterView
from headway.jit import routine
from headway.network.messages import all_reduce_alone_ns
from headway.policies.ordering import Integers, stable_sort
from headway.policies.registry import placement_policy


@routine
def _put(
    machine: int, job: int, entry: int, first: Integers, after: Integers, who: Integers
) -> None:
    """Add a job to the list of those that use a machine."""
    after[entry] = first[machine]
    who[entry] = job
    first[machine] = entry


@placement_policy("least-delay", steady=True)
def least_delay(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Where it delays others and is delayed least, on an aligned block of servers.

    Every GPU and every server's network is a machine that serves its jobs in the order of their
    remaining times T = C + N, ties by index: C for computing, on each of a job's GPUs, and N for
    sending, on each of its servers if it has more than one. What comes before a job on a machine is
    *ahead* of it. A job is expected to end after E = max(T, ahead + its own work, over its
    machines). A place costs the largest ahead of the new job there, plus what it adds to the E of
    the jobs after it.

    A job gets GPUs of a block of as few servers as could hold it. Blocks of m servers begin at the
    multiples of m; where that leaves fewer than m servers at the end, there is one more, of the
    last m. A job of one GPU goes to the GPU of the least cost; another to the block whose n
    cheapest GPUs together cost least. It waits if no block has room; and, if it must send, while
    more is ahead of it than its own T.
    """
    jobs, gpus, servers = cluster.jobs, cluster.gpus, cluster.servers
    count, wide = jobs[job].gpus, servers[0].gpus
    first_network = len(gpus)

    own_compute = jobs[job].iterations_left * (jobs[job].forward_ns + jobs[job].backward_ns)
    own_sending = 0
    if count > wide:
        own_sending = jobs[job].iterations_left * all_reduce_alone_ns(cluster, job)
    own_time = own_compute + own_sending

    # Who uses each machine, how much, and until when.
    entries = 0
    for other in range(len(jobs)):
        if jobs[other].start_ns != NOBODY and jobs[other].finish_ns == NOBODY:
            entries += jobs[other].gpus + jobs[other].servers
    first = np.full(len(gpus) + len(servers), NOBODY)
    after, who = np.zeros(entries, np.int64), np.zeros(entries, np.int64)
    compute, sending = np.zeros(len(jobs), np.int64), np.zeros(len(jobs), np.int64)
    entry = 0
    for other in range(len(jobs)):
        if jobs[other].start_ns == NOBODY or jobs[other].finish_ns != NOBODY:
            continue
        per_iteration = jobs[other].forward_ns + jobs[other].backward_ns
        compute[other] = jobs[other].iterations_left * per_iteration
        sending[other] = jobs[other].iterations_left * jobs[other].service_ns - compute[other]
        for seat in range(jobs[other].first_seat, jobs[other].first_seat + jobs[other].gpus):
            _put(cluster.seats[seat].gpu, other, entry, first, after, who)
            entry += 1
        if jobs[other].servers > 1:
            for link in range(jobs[other].first_link, jobs[other].first_link + jobs[other].servers):
                machine = first_network + cluster.links[link].port
                _put(machine, other, entry, first, after, who)
                entry += 1
    time = compute + sending
    end = time.copy()
    done = np.zeros(entries, np.int64)  # ahead of the entry's job on its machine, and its own work
    ahead = np.zeros(len(first), np.int64)  # of the new job
    for machine in range(len(first)):
        work = compute if machine < first_network else sending
        at = first[machine]
        while at != NOBODY:
            this = who[at]
            beside = first[machine]
            while beside != NOBODY:
                other = who[beside]
                if (time[other], other) <= (time[this], this):
                    done[at] += work[other]
                beside = after[beside]
            end[this] = max(end[this], done[at])
            if (time[this], this) < (own_time, job):
                ahead[machine] += work[this]
            at = after[at]

    cost = np.zeros(len(gpus), np.int64)
    for gpu in candidates:
        cost[gpu] = ahead[gpu]
        at = first[gpu]
        while at != NOBODY:
            if (time[who[at]], who[at]) > (own_time, job):
                cost[gpu] += max(0, done[at] + own_compute - end[who[at]])
            at = after[at]
    stable_sort(candidates, cost)
    if count == 1:
        return True

    size = (count + wide - 1) // wide
    best, best_cost = NOBODY, 0
    added = np.zeros(len(jobs), np.int64)
    for number in range((len(servers) + size - 1) // size):
        block = min(number * size, len(servers) - size)
        added[:] = 0
        used = np.zeros(len(servers), np.int64)
        taken, delay = 0, 0
        for gpu in candidates:
            if taken == count or not block <= gpus[gpu].server < block + size:
                continue
            taken += 1
            used[gpus[gpu].server] = 1
            delay = max(delay, ahead[gpu])
            at = first[gpu]
            while at != NOBODY:
                added[who[at]] = max(added[who[at]], done[at] + own_compute - end[who[at]])
                at = after[at]
        if taken < count:
            continue
        if count > wide:
            for server in range(len(servers)):
                if used[server] == 0:
                    continue
                delay = max(delay, ahead[first_network + server])
                at = first[first_network + server]
                while at != NOBODY:
                    added[who[at]] = max(added[who[at]], done[at] + own_sending - end[who[at]])
                    at = after[at]
            if delay > own_time:
                continue
        total = delay
        for other in range(len(jobs)):
            if (time[other], other) > (own_time, job):
                total += added[other]
        if best == NOBODY or total < best_cost:
            best, best_cost = block, total
    if best == NOBODY:
        return False
    for gpu in range(len(gpus)):
        cost[gpu] = not best <= gpus[gpu].server < best + size
    stable_sort(candidates, cost)
    return True
