"""Policies of your own, in plain Python, which Headway compiles to machine code.

Try them:

    headway simulate paper --placement FILE:my_placement
    headway simulate paper --priority FILE:my_priority
    headway simulate paper --admission FILE:my_admission:0.5
    headway compare paper --policies paper,FILE:my_placement+srsf:1

`cluster` holds arrays of records that a policy reads: jobs, messages, gpus, servers, ports, seats,
links and system. Every field is explained in the documentation under "Policies". Use numbers,
tuples, loops and NumPy; lists, dicts and text cannot be compiled. Delete what you do not need.
"""

from __future__ import annotations

from headway.policies import (
    ClusterView,
    Integers,
    Parameter,
    admission_policy,
    most_messages,
    placement_policy,
    priority_policy,
    stable_sort,
)


@placement_policy("my_placement")
def my_placement(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Which GPUs a job gets: those with the least load, server by server."""
    # `candidates` are the GPUs with enough free memory. Put them in order: the job gets the first
    # of them. Return False to leave the job in the queue for now. The sort is stable, so sort by
    # the least important key first.
    stable_sort(candidates, cluster.gpus.load_ns)
    stable_sort(candidates, cluster.gpus.server)
    return True


@priority_policy("my_priority")
def my_priority(cluster: ClusterView, job: int, parameter: float) -> int:
    """Which job goes first: the one with the fewest iterations left."""
    # The job with the lowest number goes first, in the queue, on a GPU and on the network.
    return int(cluster.jobs[job].iterations_left)


@admission_policy("my_admission", parameter=Parameter("share", least=0))
def my_admission(cluster: ClusterView, message: int, share: float) -> bool:
    """When an all-reduce may start: alone, or beside one other if it is short."""
    # `share` is the number after the colon in my_admission:0.5.
    if most_messages(cluster, message) == 0:
        return True
    job = cluster.messages[message].job
    sending_ns = cluster.messages[message].size_bytes * cluster.system[0].b_ns_per_byte
    computing_ns = cluster.jobs[job].forward_ns + cluster.jobs[job].backward_ns
    return bool(most_messages(cluster, message) == 1 and sending_ns < share * computing_ns)
