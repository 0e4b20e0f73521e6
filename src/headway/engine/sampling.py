"""Sampling: a set of jobs that does not repeat is measured for a while, then moved forward.

The set is simulated exactly through a *window*, in which its members end some iterations each. Then
it is moved forward by a number of windows as if all would be like this one: every member advances
by its iterations in the window, times that number, and the state of the set relative to the present
stays as it is. This is what `cycles` does with a set that repeats, under the same conditions: no
member finishes, no job arrives or is placed beside it. When one of these interferes, the set is
brought back by whole windows, catches up event by event, and is moved on if it is still the same.
When neighbours change their order, the set is measured again.

What makes it an estimate is checked in three ways. After a change the set first settles down for as
long as a window. A window is good for a limited number of others, so that progress which varies
slowly is measured again and again. And the halves of a window say how well it was measured: if a
member ended c1 and c2 iterations in w1 and w2 ns, then (c1 w2 - c2 w1)**2 / (w1 w2) estimates the
variance of its iterations in such a window, and m (m + 1) times that is the variance of what it
will have ended after m windows more. These errors, in ns of service, must not add up, as
independent ones do, to more than the wanted accuracy allows for the time that the members have been
in the system. If they would, the set is measured for longer.
"""

from __future__ import annotations

import math

from headway.domain.records import NOBODY, NOT_READY
from headway.engine.snapshots import take_snapshot
from headway.engine.state import DONE, State
from headway.jit import inlined, part

SETTLING, FIRST_HALF, SECOND_HALF, MEASURED, EXPIRED = range(5)
"""Phases of a set: before and in a window; with a window to move it by; until it comes back."""

_QUANTILE = 1.96
"""Standard deviations that 95% of a normal distribution are within."""

_ROUNDING = math.sqrt(1 / 6)
"""The standard deviation of a number of iterations that is rounded at both ends of a window."""

_UNSEEN = 0.1
"""The relative standard deviation of progress to expect at least: a window is too short to show how
the progress varies over many windows.
"""

_REACH, _REACH_OF_TIME = 64, 1 / 32
"""How far a window reaches: this number of windows, or this part of the time that the members have
been in the system, whichever is more.
"""

_PATIENCE = 4
"""Windows after which to look at a set without waiting for its anchor."""


@part
def does_nothing(s: State, job: int) -> bool:
    """Whether a job has tasks that wait for their GPU, and neither runs nor sends anything."""
    jobs, seats = s.cluster.jobs, s.seat_progress
    first = jobs[job].first_message
    for message in range(first, first + jobs[job].messages):
        if s.cluster.messages[message].state != NOT_READY:
            return False
    ready = False
    for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
        if seats[seat].group != NOBODY:
            return False
        ready = ready or seats[seat].stage != DONE
    return ready


@part
def begin_window(s: State, anchor: int, now_ns: int, phase: int) -> None:
    """Begin to settle, or to measure: count every member's iterations from here."""
    cycles = s.cycles
    take_snapshot(s, anchor, now_ns)
    members = 0
    job = anchor
    while job != NOBODY:
        if not does_nothing(s, job):
            members += 1
        job = s.job_progress[job].next_member
    cycles[anchor].phase = phase
    cycles[anchor].seen = 0
    cycles[anchor].target = s.rules[0].window * max(1, members)
    cycles[anchor].patience = _PATIENCE * cycles[anchor].target


@part
def note_half(s: State, anchor: int, now_ns: int) -> None:
    """Remember how far every member is at half of a window."""
    s.cycles[anchor].phase = SECOND_HALF
    s.cycles[anchor].half_ns = now_ns
    job = anchor
    while job != NOBODY:
        s.job_snapshots[job].half_left = s.cluster.jobs[job].iterations_left
        job = s.job_progress[job].next_member


@part
def end_window(s: State, anchor: int, now_ns: int) -> None:
    """Take the window that ends now for the period of the set."""
    cycles, jobs = s.cycles, s.cluster.jobs
    cycles[anchor].phase = MEASURED
    cycles[anchor].seen = 0
    cycles[anchor].period_ns = now_ns - cycles[anchor].since_ns
    cycles[anchor].moved = 0
    first_ns = float(cycles[anchor].half_ns - cycles[anchor].since_ns)
    second_ns = float(now_ns - cycles[anchor].half_ns)
    job = anchor
    while job != NOBODY:
        member, left = s.job_snapshots[job], jobs[job].iterations_left
        member.iterations = member.iterations_left - left
        member.messages = member.iterations * s.job_progress[job].messages_each
        first, second = member.iterations_left - member.half_left, member.half_left - left
        off = (first * second_ns - second * first_ns) / math.sqrt(first_ns * second_ns)
        least = max(_ROUNDING, _UNSEEN * member.iterations)
        member.deviation_ns = max(abs(off), least) * jobs[job].service_ns
        job = s.job_progress[job].next_member


@part
def measure_repetition(s: State, anchor: int) -> None:
    """Take the exact period of a set that cannot be skipped exactly for its window."""
    s.cycles[anchor].phase = MEASURED
    s.cycles[anchor].seen = 0
    s.cycles[anchor].moved = 0
    job = anchor
    while job != NOBODY:
        s.job_snapshots[job].deviation_ns = _ROUNDING * s.cluster.jobs[job].service_ns
        job = s.job_progress[job].next_member


@inlined
def added_variance(s: State, anchor: int, job: int, periods: int) -> float:
    """Return by how much some windows more raise the variance of a member's progress."""
    moved = s.cycles[anchor].moved
    terms = (moved + periods) * (moved + periods + 1.0) - moved * (moved + 1.0)
    deviation_ns = s.job_snapshots[job].deviation_ns
    return float(terms * deviation_ns * deviation_ns)


@part
def within_accuracy(s: State, anchor: int, now_ns: int, periods: int) -> bool:
    """Whether a set is still known well enough after being moved by this number of windows."""
    period_ns = s.cycles[anchor].period_ns
    back_ns = now_ns + periods * period_ns
    variance, elapsed_ns = 0.0, 0.0
    members = 0
    job = anchor
    while job != NOBODY:
        variance += s.job_snapshots[job].variance + added_variance(s, anchor, job, periods)
        elapsed_ns += back_ns - s.cluster.jobs[job].arrival_ns
        members += 1
        job = s.job_progress[job].next_member
    moved = s.cycles[anchor].moved + periods
    if moved > _REACH and moved * period_ns * members > _REACH_OF_TIME * elapsed_ns:
        return False
    return bool(_QUANTILE * math.sqrt(variance) <= s.rules[0].accuracy * elapsed_ns)


@part
def count_estimates(s: State, anchor: int, periods: int) -> None:
    """Add up what moving a set by this number of windows left to an estimate."""
    job = anchor
    while job != NOBODY:
        member = s.job_snapshots[job]
        member.variance += added_variance(s, anchor, job, periods)
        tasks = member.iterations * s.job_progress[job].tasks_each + member.messages
        s.tally[0].estimated_tasks += periods * tasks
        job = s.job_progress[job].next_member
    s.cycles[anchor].moved += periods
