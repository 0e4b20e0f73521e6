"""Sampling: a set of jobs that does not repeat is measured for a while, then moved forward.

The set is simulated exactly through a *window*, in which its members end some iterations each. That
gives every member a *rate*: the iterations that it ended, and what it did of others at both ends of
the window, over the length of the window. Then the set is moved forward for some time: every member
advances by its rate, and the state of the set relative to the present stays as it is. `cycles` does
it, as it does with a set that repeats, with a period of 1 ns, under the same conditions: no member
finishes, no job arrives or is placed beside it. What is left of an iteration is carried over to the
next time. When neighbours change their order, the set is measured again.

The error is limited in three ways. After a job came or went the set first settles; a small one for
longer, because its members come to take turns in a way that delays them less. If they come to
repeat, the set is skipped exactly instead. A window is good for a limited time, so that progress
which varies slowly is measured again and again. And the halves of a window say how well it was
measured: if a member did p1 and p2 iterations in w1 and w2 ns, then (p1 w2 - p2 w1)**2 / (w1 w2)
estimates the variance of its progress in such a window, and m (m + 1) times that is the variance of
what it will have done after m windows more. These errors, in ns of service, must not add up, as
independent ones do, to more than the wanted accuracy allows for the time that the members have been
in the system. If they would, the set is measured for longer.
"""

from __future__ import annotations

import math

from headway.domain.records import NOBODY, NOT_READY
from headway.engine.snapshots import take_snapshot
from headway.engine.state import DONE, State
from headway.jit import inlined, part

SETTLING, FIRST_HALF, SECOND_HALF, MEASURED = range(4)
"""Phases of a set: before and in a window, and with rates to move it by."""

_QUANTILE = 1.96
"""Standard deviations that 95% of a normal distribution are within."""

_LEAST_DEVIATION = 0.1
"""The standard deviation of progress, in iterations, to expect at least: what is done of an
iteration at both ends of a window is guessed from the time since it began.
"""

_LEAST_RELATIVE_DEVIATION = 0.1
"""The relative standard deviation of progress to expect at least: a window is too short to show how
the progress varies over many windows.
"""

_SETTLE = 200
"""How long a set settles before its first window, in windows: this number divided by the square of
the number of active members, at least one. A few jobs come to take turns, often so that they
repeat, which may take hundreds of iterations. Larger sets hardly ever do.
"""

_LONGER_EACH, _LONGER_ALL = 4, 16
"""How many times longer the windows of small sets are, because they cost little: the first number,
or the second divided by the number of members, if that is less.
"""

_REACH, _REACH_OF_TIME = 64, 1 / 32
"""How far a window reaches: this number of windows, or this part of the time that the members have
been in the system, whichever is more.
"""


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
    take_snapshot(s, anchor, now_ns)
    active = 0
    job = anchor
    while job != NOBODY:
        if not does_nothing(s, job):
            active += 1
        job = s.job_progress[job].next_member
    s.cycles[anchor].active = max(1, active)
    enter(s, anchor, phase)


@part
def enter(s: State, anchor: int, phase: int) -> None:
    """Begin a phase: count iterations, up to as many as it takes."""
    cycles, active = s.cycles, s.cycles[anchor].active
    if phase == SETTLING:
        windows = _SETTLE // active**2
    else:
        windows = min(_LONGER_EACH, _LONGER_ALL // active)
    cycles[anchor].phase = phase
    cycles[anchor].seen = 0
    cycles[anchor].target = s.rules[0].window * max(1, windows) * active


@part
def note_half(s: State, anchor: int, now_ns: int) -> None:
    """Remember how far every member is at half of a window."""
    s.cycles[anchor].phase = SECOND_HALF
    s.cycles[anchor].half_ns = now_ns
    job = anchor
    while job != NOBODY:
        s.job_snapshots[job].half_left = s.cluster.jobs[job].iterations_left
        s.job_snapshots[job].half_ended_ns = s.job_progress[job].ended_ns
        job = s.job_progress[job].next_member


@part
def end_window(s: State, anchor: int, now_ns: int) -> None:
    """Measure the progress of every member in the window that ends now."""
    cycles, jobs = s.cycles, s.cluster.jobs
    since_ns, half_ns = cycles[anchor].since_ns, cycles[anchor].half_ns
    _begin_to_move(s, anchor, now_ns - since_ns)
    first_ns, second_ns = float(half_ns - since_ns), float(now_ns - half_ns)
    job = anchor
    while job != NOBODY:
        member, left = s.job_snapshots[job], jobs[job].iterations_left
        ended_ns, lasted_ns = s.job_progress[job].ended_ns, s.job_progress[job].lasted_ns
        if member.iterations_left > left:
            lasted_ns = (ended_ns - member.ended_ns) / (member.iterations_left - left)
        lasted_ns = max(lasted_ns, jobs[job].forward_ns + jobs[job].backward_ns)
        at_start = min(1.0, (since_ns - member.ended_ns) / lasted_ns)
        at_half = min(1.0, (half_ns - member.half_ended_ns) / lasted_ns)
        at_end = min(1.0, (now_ns - ended_ns) / lasted_ns)
        first = member.iterations_left - member.half_left + at_half - at_start
        second = member.half_left - left + at_end - at_half
        done = max(0.0, first + second)
        member.rate = done / (first_ns + second_ns)
        off = (first * second_ns - second * first_ns) / math.sqrt(first_ns * second_ns)
        least = max(_LEAST_DEVIATION, _LEAST_RELATIVE_DEVIATION * done)
        member.deviation_ns = max(abs(off), least) * jobs[job].service_ns
        job = s.job_progress[job].next_member


@part
def measure_repetition(s: State, anchor: int) -> None:
    """Take the exact period of a set that cannot be skipped exactly for its window."""
    period_ns = s.cycles[anchor].period_ns
    _begin_to_move(s, anchor, period_ns)
    job = anchor
    while job != NOBODY:
        member = s.job_snapshots[job]
        member.rate = member.iterations / period_ns
        member.deviation_ns = _LEAST_DEVIATION * s.cluster.jobs[job].service_ns
        job = s.job_progress[job].next_member


@part
def _begin_to_move(s: State, anchor: int, window_ns: int) -> None:
    """From now on a set is moved by the rates in a window, with a period of 1 ns."""
    enter(s, anchor, MEASURED)
    s.cycles[anchor].period_ns = 1
    s.cycles[anchor].window_ns = window_ns
    s.cycles[anchor].moved_ns = 0
    s.cycles[anchor].expires = 0


@inlined
def progress_in(s: State, job: int, passed_ns: int) -> float:
    """Return the iterations of a member in this time, with what was carried over."""
    member = s.job_snapshots[job]
    return float(member.rate * passed_ns + member.carry)


@part
def carry_over(s: State, job: int, passed_ns: int) -> int:
    """Return the whole iterations of a member in this time, and carry the rest over."""
    progress = progress_in(s, job, passed_ns)
    count = min(math.floor(progress), s.cluster.jobs[job].iterations_left - 1)
    s.job_snapshots[job].carry = min(1.0, progress - count)
    return int(count)


@inlined
def _variance_factor(s: State, anchor: int, more_ns: float) -> float:
    """Return by how much the factor m (m + 1) grows if a set is moved on."""
    window_ns, moved_ns = s.cycles[anchor].window_ns, s.cycles[anchor].moved_ns
    before, after = moved_ns / window_ns, (moved_ns + more_ns) / window_ns
    return float(after * (after + 1.0) - before * (before + 1.0))


@part
def mean_age_ns(s: State, anchor: int, now_ns: int) -> float:
    """Return how long the members of a set have been in the system on average."""
    elapsed_ns, members = 0.0, 0
    job = anchor
    while job != NOBODY:
        elapsed_ns += now_ns - s.cluster.jobs[job].arrival_ns
        members += 1
        job = s.job_progress[job].next_member
    return elapsed_ns / members


@part
def accurate_ns(s: State, anchor: int, now_ns: int, most_ns: int) -> int:
    """Return for how long, at most, a set may be moved forward and still be known well enough."""
    cycle = s.cycles[anchor]
    variance, squares = 0.0, 0.0
    members = 0
    job = anchor
    while job != NOBODY:
        member = s.job_snapshots[job]
        variance += member.variance
        squares += member.deviation_ns * member.deviation_ns
        members += 1
        job = s.job_progress[job].next_member
    age_ns = mean_age_ns(s, anchor, now_ns)
    reach_ns = max(_REACH * cycle.window_ns, int(_REACH_OF_TIME * age_ns))
    low_ns = 0
    middle_ns = high_ns = max(0, min(most_ns, reach_ns - cycle.moved_ns))
    while high_ns - low_ns > max(1, low_ns // 16):
        grown = squares * _variance_factor(s, anchor, middle_ns)
        error_ns = _QUANTILE * math.sqrt(variance + grown)
        if error_ns <= s.rules[0].accuracy * members * (age_ns + middle_ns):
            low_ns = middle_ns
        else:
            high_ns = middle_ns
        middle_ns = (low_ns + high_ns) // 2
    return int(low_ns)


@part
def count_estimates(s: State, anchor: int, passed_ns: int) -> None:
    """Add up what moving a set forward left to an estimate."""
    factor = _variance_factor(s, anchor, passed_ns)
    job = anchor
    while job != NOBODY:
        member = s.job_snapshots[job]
        member.variance += factor * member.deviation_ns * member.deviation_ns
        job = s.job_progress[job].next_member
    s.cycles[anchor].moved_ns += passed_ns
