"""Compiled questions about messages on the network, for the engine and for policies."""

from __future__ import annotations

import math

from headway.domain.records import NOBODY, ClusterView
from headway.jit import inlined
from headway.network import contention

cost_ns_per_byte = inlined(contention.cost_ns_per_byte)
ring_latency_ns = inlined(contention.ring_latency_ns)
ring_weight = inlined(contention.ring_weight)


@inlined
def all_reduce_alone_ns(cluster: ClusterView, job: int) -> int:
    """Return what a job's all-reduce takes, whole and alone: a + floor(b * M).

    Once the job is placed in several servers, a and b are those of as many.
    """
    record = cluster.jobs[job]
    b_ns_per_byte = record.byte_weight * cluster.system[0].b_ns_per_byte
    return int(record.latency_ns + math.floor(b_ns_per_byte * record.gradient_bytes))


@inlined
def bytes_left(cluster: ClusterView, job: int) -> float:
    """Return what a job's running message still has to send at this instant."""
    record = cluster.jobs[job]
    if record.message_k == 0 or cluster.system[0].now_ns <= record.message_since_ns:
        return float(record.message_bytes_left)
    elapsed_ns = cluster.system[0].now_ns - record.message_since_ns
    sent = elapsed_ns / record.message_cost_ns_per_byte
    return float(max(0.0, record.message_bytes_left - sent))


@inlined
def most_messages(cluster: ClusterView, job: int) -> int:
    """Return `most`: the largest number of messages on any of the job's links."""
    most = 0
    first = cluster.jobs[job].first_link
    for link in range(first, first + cluster.jobs[job].links):
        most = max(most, cluster.ports[cluster.links[link].port].messages)
    return most


@inlined
def message_cost_ns_per_byte(cluster: ClusterView, job: int) -> float:
    """Return what a byte of the job's message costs on the slowest of its links.

    That is what it costs if every link is shared equally; with max-min sharing it may cost less.
    """
    system, weight = cluster.system[0], cluster.jobs[job].byte_weight
    if system.contends == 0:
        return float(weight * system.b_ns_per_byte)
    if cluster.jobs[job].links == cluster.jobs[job].servers:
        k = max(1, most_messages(cluster, job))
        cost = cost_ns_per_byte(k, system.b_ns_per_byte, system.eta_ns_per_byte)
        return float(weight * cost)
    slowest = 0.0
    first = cluster.jobs[job].first_link
    for link in range(first, first + cluster.jobs[job].links):
        port = cluster.ports[cluster.links[link].port]
        k = max(1, port.messages)
        cost = port.factor * cost_ns_per_byte(k, system.b_ns_per_byte, system.eta_ns_per_byte)
        slowest = max(slowest, cost)
    return float(weight * slowest)


@inlined
def put_on_ports(cluster: ClusterView, job: int) -> None:
    """Count a job's message on each of its ports, if messages meet at all."""
    jobs, ports, links = cluster.jobs, cluster.ports, cluster.links
    if cluster.system[0].contends == 0:
        return
    first = jobs[job].first_link
    for link in range(first, first + jobs[job].links):
        port = links[link].port
        following = ports[port].first_message
        links[link].next = following
        links[link].previous = NOBODY
        if following != NOBODY:
            links[following].previous = link
        ports[port].first_message = link
        ports[port].messages += 1


@inlined
def take_off_ports(cluster: ClusterView, job: int) -> None:
    """Count a job's message on its ports no more."""
    jobs, ports, links = cluster.jobs, cluster.ports, cluster.links
    if cluster.system[0].contends == 0:
        return
    first = jobs[job].first_link
    for link in range(first, first + jobs[job].links):
        port = links[link].port
        following, previous = links[link].next, links[link].previous
        if previous == NOBODY:
            ports[port].first_message = following
        else:
            links[previous].next = following
        if following != NOBODY:
            links[following].previous = previous
        ports[port].messages -= 1
