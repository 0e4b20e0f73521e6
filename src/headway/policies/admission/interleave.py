"""Interleaving in time.

S. Rajasekaran, M. Ghobadi, A. Akella, "CASSINI: Network-Aware Job Scheduling in Machine Learning
Clusters", NSDI 2024: jobs that share a link are shifted in time so that one communicates while the
others compute. CASSINI searches for the shifts with the most compatibility on a circle; here every
job has a slot in a cycle, by a rule that needs nothing but the present state.
"""

from __future__ import annotations

import math

from headway.policies import (
    ADMIT,
    LONGEST_NS,
    WAIT,
    ClusterView,
    admission_policy,
    inlined,
    messages_meet,
    most_messages,
    part,
    share_a_port,
)


@inlined
def _alone_ns(cluster: ClusterView, size: int) -> int:
    """Return how long these bytes take alone: the latencies of their buckets, time, rounding up."""
    system = cluster.system[0]
    buckets = max(1, (size + system.bucket_bytes - 1) // system.bucket_bytes)
    return int(buckets * (system.a_ns + 1) + math.floor(system.b_ns_per_byte * size))


@part
def _may_meet(cluster: ClusterView, message: int, job: int) -> bool:
    """Whether a job sends on a port of a message that has no room for both."""
    first = cluster.jobs[job].first_message
    for other in range(first, first + cluster.jobs[job].messages):
        if cluster.messages[other].servers > 1 and share_a_port(cluster, message, other):
            return True
    return False


@admission_policy("interleave")
def interleave(cluster: ClusterView, message: int, parameter: float) -> int:
    """Interleave: start alone, and not in the slots of jobs that it may meet (CASSINI).

    The job and those that share a link with it that carries one message have a slot each, as long
    as the all-reduce alone, one after the other in workload order, in a cycle that begins at time 0
    and lasts as long as the longest iteration of these jobs alone. The job starts when its
    all-reduce, alone, is in no slot of another from beginning to end. Slots that together exceed
    the cycle do not count; a message that fits between no slots starts at once.
    """
    system = cluster.system[0]
    if not messages_meet(cluster):
        return ADMIT
    if most_messages(cluster, message) > 0:
        return WAIT
    job = cluster.messages[message].job
    slots_ns, cycle_ns, begin_ns, met = 0, 0, 0, 0
    for other in range(len(cluster.jobs)):
        record = cluster.jobs[other]
        if record.servers < 2 or record.finish_ns >= 0:
            continue
        if other == job:
            begin_ns = slots_ns
        elif _may_meet(cluster, message, other):
            met += 1
        else:
            continue
        slot_ns = _alone_ns(cluster, record.gradient_bytes)
        slots_ns += slot_ns
        cycle_ns = max(cycle_ns, record.forward_ns + record.backward_ns + slot_ns)
        if slots_ns > LONGEST_NS:
            return ADMIT
    if met == 0 or slots_ns > cycle_ns or cycle_ns > LONGEST_NS:
        return ADMIT
    # Free of others are its own slot, the gap after the last slot, and both in one if they touch.
    own_ns = _alone_ns(cluster, cluster.jobs[job].gradient_bytes)
    left_ns = _alone_ns(cluster, cluster.messages[message].unsent_bytes)
    free_ns = begin_ns if begin_ns + own_ns == slots_ns else slots_ns
    room_ns = cycle_ns - free_ns + (own_ns if begin_ns == 0 else 0) - left_ns
    past_own_ns = (system.now_ns - begin_ns) % cycle_ns
    past_free_ns = (system.now_ns - free_ns) % cycle_ns
    if past_own_ns + left_ns <= own_ns or past_free_ns <= room_ns:
        return ADMIT
    fits, fits_free = left_ns <= own_ns, room_ns >= 0
    if not fits and not fits_free:
        return ADMIT
    wait_ns = cycle_ns - past_own_ns if fits else cycle_ns - past_free_ns
    if fits_free:
        wait_ns = min(wait_ns, cycle_ns - past_free_ns)
    return int(system.now_ns + wait_ns)
