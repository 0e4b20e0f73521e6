"""Sampling: a set of jobs that does not repeat is measured for a while, then moved forward.

The set is simulated exactly through a *window*, in which every member ends some iterations. Then it
is moved forward by a number of windows as if each would be like this one: every member advances by
the iterations that it ended in the window, as often as there are windows, and the state of the set
relative to the present stays as it is. This is what `cycles` does with a set that repeats, and the
same limits apply: no member finishes, no neighbours change their order, no job arrives.

Two things make it an estimate. The first window after a change is not used, so that the set settles
down. And the two halves of a window say how well it was measured: if a member ended c1 and c2
iterations in w1 and w2 ns, then (c1 w2 - c2 w1)**2 / (w1 w2) estimates the variance of the number
of iterations in such a window. The variance of what the member will have done after m windows more
is m (m + 1) times that. The errors of a set's members, taken as independent and in units of the
service of an iteration, must not exceed the wanted accuracy, relative to the time since the
members' arrivals. If they would, the window is extended instead.
"""

from __future__ import annotations

import math

from headway.domain.records import NOBODY
from headway.engine.snapshots import take_snapshot
from headway.engine.state import State
from headway.jit import inlined, part

SETTLING, FIRST_HALF, SECOND_HALF, JUMPING = range(4)
"""What a set does."""

_QUANTILE = 1.96
"""Of the normal distribution: 95% are within this many standard deviations."""

_PATIENCE = 4
"""Windows after which a set is looked at without waiting for an iteration of its anchor."""


@part
def begin_window(s: State, anchor: int, now_ns: int, phase: int) -> None:
    """Begin to settle, or to measure: count each member's iterations from here."""
    cycles = s.cycles
    take_snapshot(s, anchor, now_ns)
    members = 0
    job = anchor
    while job != NOBODY:
        members += 1
        job = s.job_progress[job].next_member
    cycles[anchor].target = s.rules[0].window * members
    cycles[anchor].patience = _PATIENCE * cycles[anchor].target
    continue_window(s, anchor, phase)


@inlined
def continue_window(s: State, anchor: int, phase: int) -> None:
    """Begin a window from the state of the snapshot."""
    s.cycles[anchor].seen = 0
    s.cycles[anchor].phase = phase


@part
def note_half(s: State, anchor: int, now_ns: int) -> None:
    """Remember how far each member is in the middle of a window."""
    s.cycles[anchor].half_ns = now_ns
    s.cycles[anchor].phase = SECOND_HALF
    job = anchor
    while job != NOBODY:
        s.job_snapshots[job].half_left = s.cluster.jobs[job].iterations_left
        job = s.job_progress[job].next_member


@part
def measure(s: State, anchor: int, now_ns: int) -> None:
    """Take the window that ends now for a period."""
    cycles, jobs = s.cycles, s.cluster.jobs
    cycles[anchor].period_ns = now_ns - cycles[anchor].since_ns
    first_ns = float(cycles[anchor].half_ns - cycles[anchor].since_ns)
    second_ns = float(now_ns - cycles[anchor].half_ns)
    job = anchor
    while job != NOBODY:
        member, left = s.job_snapshots[job], jobs[job].iterations_left
        member.iterations = member.iterations_left - left
        member.messages = s.job_progress[job].sent - member.sent
        first, second = member.iterations_left - member.half_left, member.half_left - left
        iterations = (first * second_ns - second * first_ns) / math.sqrt(first_ns * second_ns)
        member.deviation_ns = iterations * jobs[job].service_ns
        job = s.job_progress[job].next_member


@inlined
def added_variance(s: State, job: int, periods: int) -> float:
    """Return the variance of a member's progress, in ns of service, after some windows more."""
    return float(periods * (periods + 1.0) * s.job_snapshots[job].deviation_ns ** 2)


@part
def within_accuracy(s: State, anchor: int, now_ns: int, periods: int) -> bool:
    """Whether the set may be moved forward by this number of windows."""
    ahead_ns = periods * s.cycles[anchor].period_ns
    variance, elapsed_ns = 0.0, 0.0
    job = anchor
    while job != NOBODY:
        variance += s.job_snapshots[job].variance + added_variance(s, job, periods)
        elapsed_ns += now_ns + ahead_ns - s.cluster.jobs[job].arrival_ns
        job = s.job_progress[job].next_member
    return _QUANTILE * math.sqrt(variance) <= s.rules[0].accuracy * elapsed_ns
