"""When neighbours in a set that is moved forward change their order.

Keys only fall or only rise, so jobs on one GPU or port keep their order until two of them that are
next to each other in it change places. These pairs are found by going through the members in order.
"""

from __future__ import annotations

import math

from headway.domain.records import NOBODY, UNLISTED
from headway.engine.order import comes_before, key_with
from headway.engine.sampling import progress_in
from headway.engine.state import State
from headway.jit import inlined, part
from headway.network.messages import messages_meet


@part
def change_of_order_ns(s: State, anchor: int, most_ns: int) -> int:
    """Return when, soon after, neighbours have changed their order; `most_ns` if not before."""
    jobs, seats, links = s.cluster.jobs, s.cluster.seats, s.cluster.links
    members, gpu_count = _list_by_priority(s, anchor), len(s.cluster.gpus)
    for i in range(members):
        job = s.by_priority[i]
        s.job_snapshots[job].last_key = _key_after(s, job, most_ns)
    s.tally[0].searches += 1
    meet = messages_meet(s.cluster)
    change_ns = most_ns
    for i in range(members):
        job = s.by_priority[i]
        compared = NOBODY
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            before = _one_before(s, job, seats[seat].gpu)
            if before != NOBODY and before != compared:  # noqa: PLR1714
                compared = before
                change_ns = _sooner(s, before, job, change_ns)
        first = jobs[job].first_message
        count = jobs[job].messages if meet else 0
        for number in range(first, first + count):
            message = s.cluster.messages[number]
            for link in range(message.first_link, message.first_link + message.links):
                if links[link].beside == UNLISTED:
                    continue
                before = _one_before(s, job, gpu_count + links[link].port)
                if before != NOBODY and before != compared:  # noqa: PLR1714
                    compared = before
                    change_ns = _sooner(s, before, job, change_ns)
    return int(change_ns)


@part
def _list_by_priority(s: State, anchor: int) -> int:
    """List the members of a set in priority order, and link them so; return their number.

    The anchor stays the first of the links. Most are in order since the last time.
    """
    members, job = 0, anchor
    while job != NOBODY:
        index = members
        while index > 0 and comes_before(s, job, s.by_priority[index - 1]):
            s.by_priority[index] = s.by_priority[index - 1]
            index -= 1
        s.by_priority[index] = job
        members += 1
        job = s.job_progress[job].next_member
    following = NOBODY
    for i in range(members - 1, -1, -1):
        job = s.by_priority[i]
        if job != anchor:
            s.job_progress[job].next_member = following
            following = job
    s.job_progress[anchor].next_member = following
    return members


@inlined
def _key_after(s: State, job: int, passed_ns: int) -> int:
    """Return the key of a member that is moved forward by this time."""
    left = s.cluster.jobs[job].iterations_left - math.floor(progress_in(s, job, passed_ns))
    return key_with(s, job, max(1, left))


@inlined
def _one_before(s: State, job: int, spot: int) -> int:
    """Note that a member is on a GPU or port; return the one before it there, or NOBODY."""
    before = NOBODY
    if s.visited[spot] == s.tally[0].searches:
        before = s.latest[spot]
    s.visited[spot] = s.tally[0].searches
    s.latest[spot] = job
    return before


@inlined
def _sooner(s: State, job: int, other: int, change_ns: int) -> int:
    """Return when two neighbours, the first before the second, have changed their order."""
    if s.cluster.jobs[job].priority != s.cluster.jobs[other].priority:
        return change_ns
    if _in_order(s.job_snapshots[job].last_key, job, s.job_snapshots[other].last_key, other):
        return change_ns
    return _meeting_ns(s, job, other, change_ns)


@inlined
def _in_order(key: int, job: int, other_key: int, other: int) -> bool:
    return bool(key < other_key or (key == other_key and job < other))


@part
def _meeting_ns(s: State, job: int, other: int, most_ns: int) -> int:
    """Return when, soon after, two members have changed their order; `most_ns` if not before."""
    low_ns, high_ns, middle_ns = 0, most_ns, most_ns
    while True:
        if _in_order(_key_after(s, job, middle_ns), job, _key_after(s, other, middle_ns), other):
            low_ns = middle_ns
        else:
            high_ns = middle_ns
        if high_ns - low_ns <= max(1, high_ns // 16):
            return high_ns
        middle_ns = (low_ns + high_ns) // 2
