"""Least delay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headway.policies import (
    NOBODY,
    ClusterView,
    Integers,
    all_reduce_alone_ns,
    bring_forward,
    count_by_server,
    placement_policy,
    put_least_first,
    routine,
    sort_by_key,
)


class Lines(NamedTuple):
    """The jobs in line on each machine: GPU g of G is number g, server S's network G + S.

    Behind the new job on machine m are, in order, jobs[i] for first[m] <= i < first[m + 1].
    """

    ahead: Integers  # work ahead of the new job, by machine
    first: Integers
    jobs: Integers
    done: Integers  # work ahead of jobs[i] on its machine, and its own there
    end: Integers  # E of each job behind the new one
    added: Integers  # the delay of that job by an option …
    option: Integers  # … the one that was looked at last


@routine
def block_size(cluster: ClusterView, job: int) -> int:
    """Return the least number of servers of which some block, empty, could hold the job."""
    jobs, gpus, seats, servers = cluster.jobs, cluster.gpus, cluster.seats, cluster.servers
    wanted, needed = jobs[job].gpus, jobs[job].memory_bytes
    before = np.zeros(len(servers) + 1, np.int64)  # GPUs large enough in the servers before each
    most = 0
    for server in range(len(servers)):
        enough = 0
        for gpu in range(
            servers[server].first_gpu, servers[server].first_gpu + servers[server].gpus
        ):
            memory, seat = gpus[gpu].free_bytes, gpus[gpu].held
            while memory < needed and seat != NOBODY:
                memory += jobs[seats[seat].job].memory_bytes
                seat = seats[seat].beside
            enough += memory >= needed
        before[server + 1] = before[server] + enough
        most = max(most, enough)
    for size in range((wanted + most - 1) // most, len(servers)):
        for number in range((len(servers) + size - 1) // size):
            block = min(number * size, len(servers) - size)
            if before[block + size] - before[block] >= wanted:
                return size
    return len(servers)


@routine
def ahead_on_network(cluster: ClusterView, job: int, own_time: int, server: int) -> int:
    """Return what is ahead of the job on a server's network."""
    jobs, links, messages = cluster.jobs, cluster.links, cluster.messages
    ahead, link = 0, cluster.ports[server].held
    while link != NOBODY:
        other = messages[links[link].message].job
        time = jobs[other].iterations_left * jobs[other].service_ns
        if (time, other) < (own_time, job):
            per_iteration = jobs[other].forward_ns + jobs[other].backward_ns
            ahead += time - jobs[other].iterations_left * per_iteration
        link = links[link].beside
    return ahead


@routine
def line_up(cluster: ClusterView, job: int, own_time: int) -> Lines:
    """Line up the placed jobs on the machines that they use."""
    jobs, gpus, servers, seats = cluster.jobs, cluster.gpus, cluster.servers, cluster.seats
    ports, links, messages = cluster.ports, cluster.links, cluster.messages
    compute, time = np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64)
    end, added = np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64)
    option = np.empty(len(jobs), np.int64)
    # These are filled in for placed jobs only: there may be many more in the queue.
    known = np.zeros(len(jobs), np.bool_)
    entries, longest = 0, 0
    for gpu in range(len(gpus)):
        length = 0
        seat = gpus[gpu].held
        while seat != NOBODY:
            other = seats[seat].job
            if not known[other]:
                known[other] = True
                per_iteration = jobs[other].forward_ns + jobs[other].backward_ns
                compute[other] = jobs[other].iterations_left * per_iteration
                time[other] = jobs[other].iterations_left * jobs[other].service_ns
                end[other] = time[other]
                option[other] = NOBODY
            length += 1
            seat = seats[seat].beside
        entries += length
        longest = max(longest, length)
    for server in range(len(servers)):
        entries += ports[server].links
        longest = max(longest, ports[server].links)

    machines = len(gpus) + len(servers)
    ahead, first = np.zeros(machines, np.int64), np.zeros(machines + 1, np.int64)
    waiting, done = np.empty(entries, np.int64), np.empty(entries, np.int64)
    behind = np.empty(longest, np.int64)
    entry = 0
    for machine in range(machines):
        computes = machine < len(gpus)
        length = 0
        at = gpus[machine].held if computes else ports[machine - len(gpus)].held
        while at != NOBODY:
            other = seats[at].job if computes else messages[links[at].message].job
            if (time[other], other) < (own_time, job):
                ahead[machine] += compute[other] if computes else time[other] - compute[other]
            else:
                behind[length] = other
                length += 1
            at = seats[at].beside if computes else links[at].beside
        if length > 1:
            sort_by_key(behind[:length], time)
        line = ahead[machine]
        for turn in range(length):
            other = behind[turn]
            line += compute[other] if computes else time[other] - compute[other]
            waiting[entry], done[entry] = other, line
            end[other] = max(end[other], line)
            entry += 1
        first[machine + 1] = entry
    return Lines(ahead, first, waiting, done, end, added, option)


@routine
def add_to(lines: Lines, machine: int, work: int, option: int) -> int:
    """Add a machine to an option; return by how much more this delays the jobs behind it."""
    more = 0
    for entry in range(lines.first[machine], lines.first[machine + 1]):
        other = lines.jobs[entry]
        if lines.option[other] != option:
            lines.option[other] = option
            lines.added[other] = 0
        added = lines.done[entry] + work - lines.end[other]
        if added > lines.added[other]:
            more += added - lines.added[other]
            lines.added[other] = added
    return more


@placement_policy("least-delay", steady=True, timeless=True)
def least_delay(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Least delay: where it delays others and is delayed least, on an aligned block of servers.

    Every GPU and every server's network is a machine that serves its jobs in the order of their
    remaining times T = C + N, ties by index: C for computing, on each of a job's GPUs, and N for
    sending, on each of the servers that it sends on. What comes before a job on a machine is
    *ahead* of it. A job is expected to end after E = max(T, ahead + its own work, over its
    machines). An option costs the largest ahead of the new job there, plus what it adds to the E of
    the jobs after it.

    A job gets GPUs of a block of as few servers as could hold it on an empty cluster. Blocks of m
    servers begin at the multiples of m; where that leaves fewer than m servers at the end, there is
    one more, of the last m. A job of one GPU goes to the GPU of the least cost; another to the
    block whose n cheapest GPUs together cost least. It waits if no block has room; and, if it must
    send (m > 1), while more is ahead of it than its own T.
    """
    jobs, gpus, servers = cluster.jobs, cluster.gpus, cluster.servers
    count = jobs[job].gpus
    size = 1 if count == 1 else block_size(cluster, job)
    # The candidates of server S are those from start[S] to start[S + 1].
    start = np.zeros(len(servers) + 1, np.int64)
    counts = count_by_server(cluster, candidates)
    for server in range(len(servers)):
        start[server + 1] = start[server] + counts[server]
    own_compute = jobs[job].iterations_left * (jobs[job].forward_ns + jobs[job].backward_ns)
    own_sending = 0
    if size > 1:
        own_sending = jobs[job].iterations_left * all_reduce_alone_ns(cluster, job)
    own_time = own_compute + own_sending

    # Most refusals need no more than this: candidates in the servers before each where it may send.
    open_to_it = np.zeros(len(servers) + 1, np.int64)
    for server in range(len(servers)):
        here = start[server + 1] - start[server]
        if size > 1 and here > 0 and ahead_on_network(cluster, job, own_time, server) > own_time:
            here = 0
        open_to_it[server + 1] = open_to_it[server] + here
    blocks = (len(servers) + size - 1) // size
    most = 0
    for number in range(blocks):
        block = min(number * size, len(servers) - size)
        most = max(most, open_to_it[block + size] - open_to_it[block])
    if most < count:
        return False

    lines = line_up(cluster, job, own_time)
    cost = np.empty(len(gpus), np.int64)
    for gpu in candidates:
        cost[gpu] = lines.ahead[gpu] + add_to(lines, gpu, own_compute, gpu)
    if count == 1:
        put_least_first(candidates, cost, 1)
        return True

    best, best_cost = NOBODY, 0
    offered = np.empty(len(candidates), np.int64)
    for number in range(blocks):
        block = min(number * size, len(servers) - size)
        if open_to_it[block + size] - open_to_it[block] < count:
            continue
        room = start[block + size] - start[block]
        for i in range(room):
            offered[i] = candidates[start[block] + i]
        put_least_first(offered[:room], cost, count)
        option = len(gpus) + number
        delay, added, server = 0, 0, NOBODY
        for turn in range(count):
            gpu = offered[turn]
            delay = max(delay, lines.ahead[gpu])
            added += add_to(lines, gpu, own_compute, option)
            # GPUs of a server come one after the other.
            if size > 1 and gpus[gpu].server != server:
                server = gpus[gpu].server
                delay = max(delay, lines.ahead[len(gpus) + server])
                added += add_to(lines, len(gpus) + server, own_sending, option)
        if size > 1 and delay > own_time:
            continue
        if best == NOBODY or delay + added < best_cost:
            best, best_cost = block, delay + added
    if best == NOBODY:
        return False
    put_least_first(candidates[start[best] : start[best + size]], cost, count)
    bring_forward(candidates, start[best], count, 0)
    return True
