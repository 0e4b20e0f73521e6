"""What a job with a graph would send if its ranks were on some servers. Compiled with graphs."""

from __future__ import annotations

import math

from headway.domain.records import NOBODY, ClusterView, Integers
from headway.network.messages import (
    message_latency_ns,
    message_size_bytes,
    ring_latency_ns,
    ring_weight,
)


def sending_by_server(
    cluster: ClusterView, job: int, server_of: Integers, sending_ns: Integers
) -> None:
    """Set how long the messages of an iteration would take on each server's network.

    Rank r of the job, which has a graph, would be on server_of[r]; these ascend, from 0, and count
    its servers only. Each message counts as if it were alone, on all its servers; those on one
    server take no time.
    """
    record, system, ranks = cluster.jobs[job], cluster.system[0], cluster.ranks
    ring = system.ring_size > 0
    for server in range(len(sending_ns)):
        sending_ns[server] = 0
    for message in range(record.first_message, record.first_message + record.messages):
        group = cluster.message_groups[message]
        first, end = group.first_rank, group.first_rank + group.ranks
        servers, together, most, last = 0, 0, 0, NOBODY
        for i in range(first, end):
            server = server_of[ranks[i]]
            together = together + 1 if server == last else 1
            servers += server != last
            most, last = max(most, together), server
        if servers == 1:
            continue
        a_ns, weight = system.a_ns, 1.0
        if ring:
            a_ns = ring_latency_ns(system.a_ns, servers, system.ring_size)
            weight = ring_weight(servers, system.ring_size)
        size = message_size_bytes(group.kind, group.bytes, most, ring)
        alone_ns = message_latency_ns(group.kind, a_ns)
        alone_ns += math.floor(weight * system.b_ns_per_byte * size)
        last = NOBODY
        for i in range(first, end):
            if server_of[ranks[i]] != last:
                last = server_of[ranks[i]]
                sending_ns[last] += alone_ns
