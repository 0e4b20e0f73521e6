"""Compiled questions about messages, for the engine, the live core and policies."""

from __future__ import annotations

import math

from headway.domain import message_kinds
from headway.domain.records import IN_FLIGHT, NOBODY, ClusterView
from headway.jit import inlined, part
from headway.network import contention, ring

cost_ns_per_byte = inlined(contention.cost_ns_per_byte)
message_latency_ns = inlined(message_kinds.message_latency_ns)
message_size_bytes = inlined(message_kinds.message_size_bytes)
ring_latency_ns = inlined(ring.ring_latency_ns)
ring_weight = inlined(ring.ring_weight)


@inlined
def messages_meet(cluster: ClusterView) -> bool:
    """Whether messages slow each other down at all; if not, they are on no port."""
    return bool(cluster.system[0].messages_meet != 0)


@inlined
def all_reduce_alone_ns(cluster: ClusterView, job: int) -> int:
    """Return how long a job's all-reduce takes, whole and alone: a + floor(b * M).

    Once the job is placed on several servers, a and b are those of that number of servers. With a
    graph it is what all messages, a for each, add to an iteration: s_J - u_J once it is placed.
    """
    record, system = cluster.jobs[job], cluster.system[0]
    if record.graph != NOBODY:
        if record.servers > 0:
            return int(record.service_ns - record.forward_ns - record.backward_ns)
        sending_ns = math.floor(system.b_ns_per_byte * record.gradient_bytes)
        return int(record.messages * system.a_ns + sending_ns)
    message = cluster.messages[record.first_message]
    b_ns_per_byte = message.byte_weight * system.b_ns_per_byte
    return int(message.latency_ns + math.floor(b_ns_per_byte * record.gradient_bytes))


@inlined
def bytes_left(cluster: ClusterView, message: int) -> float:
    """Return the bytes that a message in flight still has to send at this instant."""
    record, now_ns = cluster.messages[message], cluster.system[0].now_ns
    if record.state != IN_FLIGHT or now_ns <= record.since_ns:
        return float(record.bytes_left)
    sent = (now_ns - record.since_ns) / record.cost_ns_per_byte
    return float(max(0.0, record.bytes_left - sent))


@inlined
def messages_in_the_way(cluster: ClusterView, port: int) -> int:
    """Return how many messages on a port are in the way of one more: max(0, messages - c + 1).

    A port that carries c messages has room for one more beside c - 1. A rail carries 1.
    """
    record = cluster.ports[port]
    if record.carries > 1:
        return int(max(0, record.messages - record.carries + 1))
    return int(record.messages)


@inlined
def is_shared(cluster: ClusterView, message: int) -> bool:
    """Whether more jobs send on one of a message's ports than it carries messages."""
    if messages_meet(cluster):
        record = cluster.messages[message]
        for link in range(record.first_link, record.first_link + record.links):
            port = cluster.ports[cluster.links[link].port]
            if port.links > port.carries:
                return True
    return False


@inlined
def most_messages(cluster: ClusterView, message: int) -> int:
    """Return `most`: the largest `messages_in_the_way` on any of the message's links."""
    most = 0
    first = cluster.messages[message].first_link
    for link in range(first, first + cluster.messages[message].links):
        most = max(most, messages_in_the_way(cluster, cluster.links[link].port))
    return most


@inlined
def largest_k(cluster: ClusterView, message: int) -> int:
    """Return k of a message in flight: the most messages on any of its links, itself included."""
    largest = 1
    first = cluster.messages[message].first_link
    for link in range(first, first + cluster.messages[message].links):
        largest = max(largest, cluster.ports[cluster.links[link].port].messages)
    return largest


@inlined
def is_first_rail(cluster: ClusterView, link: int) -> bool:
    """Whether a link is the first of its message to its server; an uplink is always one."""
    if link == cluster.messages[cluster.links[link].message].first_link:
        return True
    server = cluster.ports[cluster.links[link].port].server
    return bool(server == NOBODY or cluster.ports[cluster.links[link - 1].port].server != server)


@part
def share_a_port(cluster: ClusterView, one: int, other: int) -> bool:
    """Whether two messages have a port in common that has no room for both.

    Each lists its links in order.
    """
    links, messages = cluster.links, cluster.messages
    left, right = messages[one].first_link, messages[other].first_link
    left_end = left + messages[one].links
    right_end = right + messages[other].links
    while left < left_end and right < right_end:
        if links[left].port < links[right].port:
            left += 1
        elif links[left].port > links[right].port:
            right += 1
        elif cluster.ports[links[left].port].carries <= 1:
            return True
        else:
            left += 1
    return False
