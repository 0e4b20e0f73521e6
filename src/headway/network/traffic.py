"""Messages on the ports of a cluster: connected, in flight, rated. Compiled.

The simulator and the live core both use these operations; they differ in what triggers a decision
and in when a message ends.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from headway.domain.records import (
    IN_FLIGHT,
    NOBODY,
    NOT_READY,
    READY,
    UNLISTED,
    ClusterView,
    Floats,
    Integers,
    Records,
    zeros,
)
from headway.jit import View, inlined, part
from headway.network.messages import (
    bytes_left,
    largest_k,
    message_latency_ns,
    message_size_bytes,
    messages_meet,
    ring_latency_ns,
    ring_weight,
)

COUNTS = np.dtype(
    [
        ("touched", np.int64),  # ports listed in `touched`
        ("sent", np.int64),  # messages listed in `sent`
        ("searches", np.int64),  # for messages whose cost may have changed
    ],
    align=True,
)

SHARE = np.dtype(
    [
        ("equal_ns_per_byte", np.float64),  # F: the cost of a byte if all messages share equally
        ("open_ns_per_byte", np.float64),  # … and if the open ones share equally what is left
        ("left", np.float64),  # shares
        ("open", np.int64),  # messages without a cost
    ],
    align=True,
)
"""A port while fair shares are being found."""


class Traffic(View):
    """What has changed since costs were last updated, and room to update them."""

    counts: Annotated[Records, COUNTS]
    touched: Integers  # ports that a message has joined or left
    is_touched: Integers  # by port
    sent: Integers  # messages that have started, where they do not meet
    seen: Integers  # by message: the search that found it last
    searched: Integers  # by the first message of a job: the latest search for those that wait
    found: Integers  # messages
    costs: Floats  # by message, in ns per byte
    shares: Annotated[Records, SHARE]  # by port
    scratch: Integers  # ports


def make_traffic(messages: int, ports: int) -> Traffic:
    """Return room for the costs of `messages` messages on `ports` ports."""
    return Traffic(
        counts=zeros(1, COUNTS),
        touched=np.zeros(ports, np.int64),
        is_touched=np.zeros(ports, np.int64),
        sent=np.zeros(messages, np.int64),
        seen=np.zeros(messages, np.int64),
        searched=np.zeros(messages, np.int64),
        found=np.zeros(messages, np.int64),
        costs=np.zeros(messages),
        shares=zeros(ports, SHARE),
        scratch=np.zeros(ports, np.int64),
    )


@part
def connect(cluster: ClusterView, message: int) -> None:
    """Link a message of a placed job to its ports; with several servers the job is in their lists.

    Its latency and the weight of its bytes follow from the number of its servers. All messages of a
    job are connected one after the other.
    """
    messages, links, ports = cluster.messages, cluster.links, cluster.ports
    record = messages[message]
    most_together = _find_servers(cluster, message)
    _add_uplinks(cluster, message)
    if record.servers > 1:
        _set_costs(cluster, message, most_together)
    for link in range(record.first_link, record.first_link + record.links):
        port = links[link].port
        held = ports[port].held
        links[link].message = message
        links[link].beside = UNLISTED
        if record.servers > 1 and (
            held == NOBODY or messages[links[held].message].job != record.job
        ):
            links[link].beside = held
            ports[port].held = link
            ports[port].links += 1
    if record.servers > 1 and cluster.jobs[record.job].graph != NOBODY:
        _add_sending(cluster, message)


@part
def _add_sending(cluster: ClusterView, message: int) -> None:
    """Add the time of a message alone to what its job sends in an iteration, port by port.

    The job is the first in its ports' lists, because it was connected last. Of several rails of a
    server, the first that the message uses counts for all.
    """
    record, links = cluster.messages[message], cluster.links
    b_ns_per_byte = record.byte_weight * cluster.system[0].b_ns_per_byte
    alone_ns = record.latency_ns + math.floor(b_ns_per_byte * record.size_bytes)
    last = NOBODY
    for link in range(record.first_link, record.first_link + record.links):
        port = cluster.ports[links[link].port]
        if links[link].beside != UNLISTED:
            cluster.sending_ns[link] = 0
        if port.server == NOBODY or port.server != last:
            cluster.sending_ns[port.held] += alone_ns
        last = port.server


@part
def _set_costs(cluster: ClusterView, message: int, most_together: int) -> None:
    """Set what follows from a message's servers: its latency, its bytes' weight and their number.

    `most_together` is the most of its ranks that are on one server.
    """
    record, system = cluster.messages[message], cluster.system[0]
    ring_size = system.ring_size
    latency_ns = system.a_ns
    if ring_size > 0:
        latency_ns = ring_latency_ns(system.a_ns, record.servers, ring_size)
        record.byte_weight = ring_weight(record.servers, ring_size)
    record.latency_ns = latency_ns
    if cluster.jobs[record.job].graph != NOBODY:
        group = cluster.message_groups[message]
        record.latency_ns = message_latency_ns(group.kind, latency_ns)
        size = message_size_bytes(group.kind, group.bytes, most_together, ring_size > 0)
        record.size_bytes = size


@part
def _insert(cluster: ClusterView, low: int, end: int, port: int) -> int:
    """Insert a port into links[low:end], ascending, unless it is there; return the new end."""
    links = cluster.links
    index = end
    while index > low and links[index - 1].port > port:
        index -= 1
    if index > low and links[index - 1].port == port:
        return end
    for moved in range(end, index, -1):
        links[moved].port = links[moved - 1].port
    links[index].port = port
    return end + 1


@part
def _find_servers(cluster: ClusterView, message: int) -> int:
    """Link a message to the rails of its ranks, ascending; return the most ranks on a server.

    If servers have several rails, each carries a share of the bytes: that of the server's ranks.
    """
    jobs, gpus, seats, shares = cluster.jobs, cluster.gpus, cluster.seats, cluster.shares
    record = cluster.messages[message]
    job, first = record.job, record.first_link
    all_ranks = jobs[job].graph == NOBODY
    first_rank, count = 0, jobs[job].gpus
    if not all_ranks:
        first_rank = cluster.message_groups[message].first_rank
        count = cluster.message_groups[message].ranks
    servers, together, most, last = 0, 0, 0, NOBODY
    low, end = first, first  # the links of the last server are those from `low`
    for i in range(first_rank, first_rank + count):
        rank = i if all_ranks else cluster.ranks[i]
        gpu = seats[jobs[job].first_seat + rank].gpu
        server = cluster.servers[gpus[gpu].server]
        if gpus[gpu].server != last:
            last, together, low = gpus[gpu].server, 0, end
            servers += 1
        together += 1
        most = max(most, together)
        port = server.first_port + (gpu - server.first_gpu) * server.rails // server.gpus
        top = _insert(cluster, first, end, port)
        if len(shares) > 0:
            if top > end:
                shares[end] = 0.0
            # Each share is a number of ranks over `together`, which has grown by one.
            for link in range(low, top):
                ranks = round(shares[link] * (together - 1)) + (link == top - 1)
                shares[link] = ranks / together
        end = top
    record.servers = servers
    record.links = end - first
    return most


@part
def _add_uplinks(cluster: ClusterView, message: int) -> None:
    """Link a message to the uplinks of its switches in each tier where it has several."""
    messages, links, ports = cluster.messages, cluster.links, cluster.ports
    first = messages[message].first_link
    low, end = first, first + messages[message].links
    while ports[links[low].port].above != NOBODY:
        top = end
        for link in range(low, end):
            top = _insert(cluster, end, top, ports[links[link].port].above)
        if top == end + 1:
            return
        if len(cluster.shares) > 0:
            for link in range(end, top):
                cluster.shares[link] = 1.0
        messages[message].links = top - first
        low, end = end, top


@part
def disconnect(cluster: ClusterView, message: int) -> None:
    """Take a message's links out of the lists of their ports; it must not be in flight."""
    messages, links, ports = cluster.messages, cluster.links, cluster.ports
    first = messages[message].first_link
    for link in range(first, first + messages[message].links):
        if links[link].beside == UNLISTED:
            continue
        port = links[link].port
        ports[port].links -= 1
        before = ports[port].held
        if before == link:
            ports[port].held = links[link].beside
        else:
            while links[before].beside != link:
                before = links[before].beside
            links[before].beside = links[link].beside


@inlined
def touch(traffic: Traffic, port: int) -> None:
    """Remember that the messages on a port have changed."""
    if traffic.is_touched[port] == 0:
        traffic.is_touched[port] = 1
        traffic.touched[traffic.counts[0].touched] = port
        traffic.counts[0].touched += 1


@inlined
def forget_changes(traffic: Traffic) -> None:
    """Forget what has changed: all messages have their costs."""
    for i in range(traffic.counts[0].touched):
        traffic.is_touched[traffic.touched[i]] = 0
    traffic.counts[0].touched = 0
    traffic.counts[0].sent = 0


@inlined
def _join(cluster: ClusterView, link: int) -> None:
    """Count the message of a link on the link's port."""
    links, ports = cluster.links, cluster.ports
    port = links[link].port
    links[link].next = ports[port].first_in_flight
    ports[port].first_in_flight = link
    ports[port].messages += 1


@inlined
def _leave(cluster: ClusterView, link: int) -> None:
    """Undo `_join`."""
    links, ports = cluster.links, cluster.ports
    port = links[link].port
    before = ports[port].first_in_flight
    if before == link:
        ports[port].first_in_flight = links[link].next
    else:
        while links[before].next != link:
            before = links[before].next
        links[before].next = links[link].next
    ports[port].messages -= 1


@inlined
def put_on_ports(cluster: ClusterView, message: int) -> None:
    """Count a message on each of its ports, if messages meet at all."""
    if messages_meet(cluster):
        first = cluster.messages[message].first_link
        for link in range(first, first + cluster.messages[message].links):
            _join(cluster, link)


@inlined
def start_message(cluster: ClusterView, traffic: Traffic, message: int) -> None:
    """Put a message, which is ready, on the network; its cost must be updated next."""
    record, now_ns = cluster.messages[message], cluster.system[0].now_ns
    record.state = IN_FLIGHT
    record.k = 0
    record.cost_ns_per_byte = 0.0
    record.start_ns = now_ns
    record.since_ns = now_ns + record.latency_ns
    record.bytes_left = record.bytes
    if messages_meet(cluster):
        for link in range(record.first_link, record.first_link + record.links):
            _join(cluster, link)
            touch(traffic, cluster.links[link].port)
    else:
        traffic.sent[traffic.counts[0].sent] = message
        traffic.counts[0].sent += 1


def rate_again(cluster: ClusterView, traffic: Traffic, message: int) -> None:
    """Have the cost of a message in flight updated with the others, though nothing has changed."""
    record = cluster.messages[message]
    if messages_meet(cluster):
        for link in range(record.first_link, record.first_link + record.links):
            touch(traffic, cluster.links[link].port)
    else:
        traffic.sent[traffic.counts[0].sent] = message
        traffic.counts[0].sent += 1


@inlined
def end_message(cluster: ClusterView, traffic: Traffic, message: int) -> None:
    """Take a message off the network; the costs of others must be updated next."""
    record = cluster.messages[message]
    meet = messages_meet(cluster)
    for link in range(record.first_link, record.first_link + record.links):
        touch(traffic, cluster.links[link].port)
        if meet:
            _leave(cluster, link)
    record.state = NOT_READY
    record.k = 0


@part
def list_waiting(cluster: ClusterView, traffic: Traffic) -> int:
    """List the waiting messages of all jobs that send on a touched port; return how many.

    They are traffic.found[:count]. A steady policy is asked again about these.
    """
    counts = traffic.counts
    counts[0].searches += 1
    found = 0
    for i in range(counts[0].touched):
        link = cluster.ports[traffic.touched[i]].held
        while link != NOBODY:
            job = cluster.jobs[cluster.messages[cluster.links[link].message].job]
            link = cluster.links[link].beside
            if traffic.searched[job.first_message] == counts[0].searches:
                continue
            traffic.searched[job.first_message] = counts[0].searches
            for message in range(job.first_message, job.first_message + job.messages):
                if cluster.messages[message].state == READY:
                    traffic.found[found] = message
                    found += 1
    return found


@inlined
def rate(cluster: ClusterView, message: int, cost_ns_per_byte: float) -> bool:
    """If a message's cost has changed, count what it sent at the old one; return whether it has."""
    record, now_ns = cluster.messages[message], cluster.system[0].now_ns
    if cost_ns_per_byte == record.cost_ns_per_byte:
        return False
    record.bytes_left = bytes_left(cluster, message)
    record.since_ns = max(now_ns, record.since_ns)
    record.k = largest_k(cluster, message)
    record.cost_ns_per_byte = cost_ns_per_byte
    return True
