"""Compiled questions about messages on the network, for the engine and for policies."""

from __future__ import annotations

import math

from headway.domain.records import ClusterView
from headway.jit import inlined
from headway.network import contention

cost_ns_per_byte = inlined(contention.cost_ns_per_byte)


@inlined
def all_reduce_alone_ns(cluster: ClusterView, job: int) -> int:
    """Return what a job's all-reduce takes, whole and alone: a + floor(b * M)."""
    system = cluster.system[0]
    return int(system.a_ns + math.floor(system.b_ns_per_byte * cluster.jobs[job].gradient_bytes))


@inlined
def bytes_left(cluster: ClusterView, job: int) -> float:
    """Return what a job's running message still has to send at this instant."""
    record = cluster.jobs[job]
    if record.message_k == 0 or cluster.system[0].now_ns <= record.message_since_ns:
        return float(record.message_bytes_left)
    sent = (cluster.system[0].now_ns - record.message_since_ns) / cost_ns_per_byte(
        record.message_k, cluster.system[0].b_ns_per_byte, cluster.system[0].eta_ns_per_byte
    )
    return float(max(0.0, record.message_bytes_left - sent))


@inlined
def most_messages(cluster: ClusterView, job: int) -> int:
    """Return `most`: the largest number of messages on any of the job's servers."""
    most = 0
    first = cluster.jobs[job].first_seat
    for link in range(first, first + cluster.jobs[job].servers):
        most = max(most, cluster.servers[cluster.links[link].server].messages)
    return most
