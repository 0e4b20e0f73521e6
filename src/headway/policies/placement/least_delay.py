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
    is_first_rail,
    placement_policy,
    put_least_first,
    routine,
    sort_by_key,
)

LEFT_OVER = 2**63 - 1
"""The price of a GPU that is in no unit."""


class Lines(NamedTuple):
    """The jobs in line on each machine: GPU g of G is number g, server S's network G + S.

    Behind the new job on machine m are, in order, jobs[i] for first[m] <= i < first[m + 1].
    """

    ahead: Integers  # work ahead of the new job, by machine
    first: Integers
    jobs: Integers
    before: Integers  # work ahead of jobs[i] on its machine …
    work: Integers  # … and its own there
    time: Integers  # T of each job
    end: Integers  # E of each job behind the new one
    added: Integers  # the delay of that job by an option …
    option: Integers  # … the one that was looked at last


@routine
def block_size(cluster: ClusterView, job: int) -> int:
    """Return the least number of servers of which some block, empty, could hold the job."""
    jobs, gpus, servers = cluster.jobs, cluster.gpus, cluster.servers
    wanted, needed = jobs[job].gpus, jobs[job].memory_bytes
    before = np.zeros(len(servers) + 1, np.int64)  # GPUs large enough in the servers before each
    most = 0
    for server in range(len(servers)):
        enough = 0
        for gpu in range(
            servers[server].first_gpu, servers[server].first_gpu + servers[server].gpus
        ):
            enough += gpus[gpu].memory_bytes >= needed
        before[server + 1] = before[server] + enough
        most = max(most, enough)
    for size in range((wanted + most - 1) // most, len(servers)):
        for number in range((len(servers) + size - 1) // size):
            block = min(number * size, len(servers) - size)
            if before[block + size] - before[block] >= wanted:
                return size
    return len(servers)


@routine
def sending(cluster: ClusterView, link: int) -> int:
    """Return N on a port, of the job of a link in the port's list.

    What it sends on several rails of a server counts on the first that it uses.
    """
    jobs = cluster.jobs
    job = cluster.messages[cluster.links[link].message].job
    per_iteration = jobs[job].service_ns - jobs[job].forward_ns - jobs[job].backward_ns
    if not is_first_rail(cluster, link):
        per_iteration = 0
    if jobs[job].graph != NOBODY:
        per_iteration = cluster.sending_ns[link]
    return int(jobs[job].iterations_left * per_iteration)


@routine
def ahead_on_network(cluster: ClusterView, job: int, own_time: int, server: int) -> int:
    """Return what is ahead of the job on a server's network."""
    jobs, links, messages = cluster.jobs, cluster.links, cluster.messages
    ahead, first = 0, cluster.servers[server].first_port
    for port in range(first, first + cluster.servers[server].rails):
        link = cluster.ports[port].held
        while link != NOBODY:
            other = messages[links[link].message].job
            time = jobs[other].iterations_left * jobs[other].service_ns
            if (time, other) < (own_time, job):
                ahead += sending(cluster, link)
            link = links[link].beside
    return ahead


@routine
def expected_end(time: int, ahead: int, own: int) -> int:
    """Return E of a job by one machine: from its T, the work ahead of it there, and its own.

    Half of what is ahead may pass while the job is busy on other machines.
    """
    return max(time + ahead // 2, ahead + own)


@routine
def line_up(cluster: ClusterView, job: int, own_time: int) -> Lines:
    """Line up the placed jobs on the machines that they use."""
    jobs, gpus, servers, seats = cluster.jobs, cluster.gpus, cluster.servers, cluster.seats
    ports, links, messages = cluster.ports, cluster.links, cluster.messages
    compute, time = np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64)
    end, added = np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64)
    option, found_on = np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64)
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
                option[other] = found_on[other] = NOBODY
            length += 1
            seat = seats[seat].beside
        entries += length
        longest = max(longest, length)
    for server in range(len(servers)):
        length, first_port = 0, servers[server].first_port
        for port in range(first_port, first_port + servers[server].rails):
            length += ports[port].links
        entries += length
        longest = max(longest, length)

    machines = len(gpus) + len(servers)
    ahead, first = np.zeros(machines, np.int64), np.zeros(machines + 1, np.int64)
    waiting, before = np.empty(entries, np.int64), np.empty(entries, np.int64)
    work, here = np.empty(entries, np.int64), np.empty(len(jobs), np.int64)
    behind = np.empty(longest, np.int64)
    entry = 0
    for machine in range(machines):
        computes = machine < len(gpus)
        length, rails, port = 0, 1, 0
        if not computes:
            rails = servers[machine - len(gpus)].rails
            port = servers[machine - len(gpus)].first_port
        for rail in range(rails):
            at = gpus[machine].held if computes else ports[port + rail].held
            while at != NOBODY:
                other = seats[at].job if computes else messages[links[at].message].job
                own = compute[other] if computes else sending(cluster, at)
                if (time[other], other) < (own_time, job):
                    ahead[machine] += own
                elif found_on[other] == machine:
                    here[other] += own
                else:
                    found_on[other] = machine
                    here[other] = own
                    behind[length] = other
                    length += 1
                at = seats[at].beside if computes else links[at].beside
        if length > 1:
            sort_by_key(behind[:length], time)
        line = ahead[machine]
        for turn in range(length):
            other = behind[turn]
            waiting[entry], before[entry], work[entry] = other, line, here[other]
            end[other] = max(end[other], expected_end(time[other], line, here[other]))
            line += here[other]
            entry += 1
        first[machine + 1] = entry
    return Lines(ahead, first, waiting, before, work, time, end, added, option)


@routine
def add_to(lines: Lines, machine: int, work: int, option: int) -> int:
    """Add a machine to an option; return by how much more this delays the jobs behind it."""
    more = 0
    for entry in range(lines.first[machine], lines.first[machine + 1]):
        other = lines.jobs[entry]
        if lines.option[other] != option:
            lines.option[other] = option
            lines.added[other] = 0
        ahead = lines.before[entry] + work
        added = expected_end(lines.time[other], ahead, lines.work[entry]) - lines.end[other]
        if added > lines.added[other]:
            more += added - lines.added[other]
            lines.added[other] = added
    return more


@routine
def recut(cluster: ClusterView, chosen: Integers, server_of: Integers) -> bool:
    """Set the servers of a job's ranks, counted from 0; return whether they have changed."""
    changed, place = False, 0
    for rank in range(len(server_of)):
        if rank > 0 and cluster.gpus[chosen[rank]].server != cluster.gpus[chosen[rank - 1]].server:
            place += 1
        changed = changed or server_of[rank] != place
        server_of[rank] = place
    return changed


@routine
def set_sending(cluster: ClusterView, job: int, server_of: Integers, sending_ns: Integers) -> None:
    """Set what is left to send on each server of a job with a graph."""
    cluster.sending_by_server(cluster, job, server_of, sending_ns)
    for server in range(len(sending_ns)):
        sending_ns[server] *= cluster.jobs[job].iterations_left


@routine
def whole_units(start: Integers, block: int, size: int, unit: int) -> int:
    """Return how many candidates a block offers, where each server gives a multiple of `unit`."""
    offered = 0
    for server in range(block, block + size):
        offered += (start[server + 1] - start[server]) // unit * unit
    return int(offered)


@routine
def set_prices(
    candidates: Integers, start: Integers, cost: Integers, unit: int, price: Integers
) -> None:
    """Set the price of each candidate: the cost of the most expensive GPU of its unit.

    A server's units are its cheapest `unit` GPUs, the next ones, and so on. What is left over costs
    more than any unit.
    """
    for server in range(len(start) - 1):
        inside = candidates[start[server] : start[server + 1]].copy()
        sort_by_key(inside, cost)
        whole = len(inside) // unit * unit
        for i in range(len(inside)):
            price[inside[i]] = cost[inside[i // unit * unit + unit - 1]] if i < whole else LEFT_OVER


@routine
def take_empty_servers(
    cluster: ClusterView, candidates: Integers, start: Integers, count: int, size: int
) -> bool:
    """Bring the GPUs of the first empty servers to the front, if `size` of them are enough."""
    taken, used = 0, 0
    for server in range(len(cluster.servers)):
        here = start[server + 1] - start[server]
        if here == 0 or not is_empty(cluster, server):
            continue
        here = min(here, count - taken)
        bring_forward(candidates, start[server], here, taken)
        taken += here
        used += 1
        if taken == count:
            return True
        if used == size:
            return False
    return False


@routine
def is_empty(cluster: ClusterView, server: int) -> bool:
    """Return whether no job is on a server."""
    first = cluster.servers[server].first_gpu
    for gpu in range(first, first + cluster.servers[server].gpus):
        if cluster.gpus[gpu].held != NOBODY:
            return False
    return True


@placement_policy("least-delay", steady=True, timeless=True)
def least_delay(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Least delay: where it delays others and is delayed least, on an aligned block of servers.

    Every GPU and every server's network is a machine that serves its jobs in the order of their
    remaining times T = C + N, ties by index: C for computing, on each of a job's GPUs, and N for
    sending, on each of the servers that it sends on. What comes before a job on a machine is
    *ahead* of it. A job is expected to end after E, the largest of T + ahead / 2 and of ahead + its
    own work, over its machines. An option costs the largest ahead of the new job there, plus what
    it adds to the E of the jobs after it.

    With a graph, N differs from server to server: it is the time of the messages there, each alone.
    T of the new job is then the largest of C and of N with as many GPUs on each server, and its
    work on a server follows from the ranks that an option puts there. The largest of that over its
    servers is part of the cost, and a block also offers GPUs in units of each divisor of n, so that
    ranks that talk a lot may stay together.

    A job gets GPUs of a block of as few servers as could hold it on an empty cluster. Blocks of m
    servers begin at the multiples of m; where that leaves fewer than m servers at the end, there is
    one more, of the last m. A job of one GPU goes to the GPU of the least cost; another to the
    block whose n cheapest GPUs together cost least. If it must send (m > 1), a block where more is
    ahead of it than its own T does not count; and if no block is left, it goes to the first empty
    servers, if m of them are enough. Otherwise it waits.
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
    # What it sends on each of its servers; with a graph, for its ranks as they were looked at last.
    server_of, own_sending = np.empty(count, np.int64), np.empty(size, np.int64)
    own_time = own_compute
    if size > 1 and jobs[job].graph == NOBODY:
        for server in range(size):
            own_sending[server] = jobs[job].iterations_left * all_reduce_alone_ns(cluster, job)
        own_time += own_sending[0]
    elif size > 1:
        rank = 0
        for server in range(size):
            for _ in range((count + size - 1 - server) // size):
                server_of[rank] = server
                rank += 1
        set_sending(cluster, job, server_of, own_sending)
        for server in range(size):
            own_time = max(own_time, own_sending[server])

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
        return size > 1 and take_empty_servers(cluster, candidates, start, count, size)

    lines = line_up(cluster, job, own_time)
    cost = np.empty(len(gpus), np.int64)
    for gpu in candidates:
        cost[gpu] = lines.ahead[gpu] + add_to(lines, gpu, own_compute, gpu)
    if count == 1:
        put_least_first(candidates, cost, 1)
        return True

    has_graph = size > 1 and jobs[job].graph != NOBODY
    best, best_unit, best_cost = NOBODY, 1, 0
    offered, price = np.empty(len(candidates), np.int64), cost.copy()
    for unit in range(1, count // 2 + 1 if has_graph else 2):
        if count % unit != 0:
            continue
        if unit > 1:
            set_prices(candidates, start, cost, unit, price)
        for number in range(blocks):
            block = min(number * size, len(servers) - size)
            if open_to_it[block + size] - open_to_it[block] < count:
                continue
            if whole_units(start, block, size, unit) < count:
                continue
            room = start[block + size] - start[block]
            for i in range(room):
                offered[i] = candidates[start[block] + i]
            put_least_first(offered[:room], price, count)
            if has_graph and recut(cluster, offered, server_of):
                set_sending(cluster, job, server_of, own_sending)
            option = len(gpus) + unit * blocks + number
            delay, added, own, server, place = 0, 0, 0, NOBODY, 0
            for turn in range(count):
                gpu = offered[turn]
                delay = max(delay, lines.ahead[gpu])
                added += add_to(lines, gpu, own_compute, option)
                # GPUs of a server come one after the other.
                if size > 1 and gpus[gpu].server != server:
                    server = gpus[gpu].server
                    delay = max(delay, lines.ahead[len(gpus) + server])
                    added += add_to(lines, len(gpus) + server, own_sending[place], option)
                    if has_graph:
                        own = max(own, own_sending[place])
                    place += 1
            if size > 1 and delay > own_time:
                continue
            if best == NOBODY or delay + added + own < best_cost:
                best, best_unit, best_cost = block, unit, delay + added + own
    if best == NOBODY:
        return size > 1 and take_empty_servers(cluster, candidates, start, count, size)
    if has_graph:
        set_prices(candidates, start, cost, best_unit, price)
    put_least_first(candidates[start[best] : start[best + size]], price, count)
    bring_forward(candidates, start[best], count, 0)
    return True
