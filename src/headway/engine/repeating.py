"""Repeating: a set of jobs that does the same again and again is skipped forward.

Jobs that hold a GPU together, or have a port together, may disturb each other; a *set* is all that
are connected in this way, by others if need be. Left out are jobs that do nothing for now: those
that are solo, and those that are *inert*, waiting for a GPU that others do not leave to them. As
long as they stay so they pass nothing on, and when one ceases to be so, its neighbours' sets are
forgotten.

Nothing outside a set can then change what happens in it until a job is placed on its GPUs or ports.
What happens next in it depends on its state *relative to the present* (the stages of its seats, the
ages of its running tasks, what its messages have left and since when, who waits) and on the order
of those that share a GPU or a port. Times are integers, and what is not is computed from their
differences. So if the relative state at two instants is the same, bit by bit, and the order was and
remains the same, the time between them is a *period*: it will be repeated until a job of the set
finishes, a solo job beside it does, or the order changes.

The state is looked at when an iteration of one job of the set, its *anchor*, has ended, at the end
of the instant. It is compared with a copy that is renewed at the 1st, 2nd, 4th, 8th … such end, so
that a repetition is found soon after it begins (Brent's cycle detection) and looking costs little
where there is none. A set that repeats is moved forward by as many whole periods as nothing can
interfere with: its events leave the queue, and one event brings them back. If something may happen
before that, because the queue is tried or an inert job beside it stirs, the set is brought back by
the whole periods that have passed, and catches up event by event. The clock goes back for it, which
does no harm: nothing that happened meanwhile concerns it before the present.
"""

from __future__ import annotations

from headway.domain.limits import HORIZON_NS
from headway.domain.records import DONE, NOBODY
from headway.engine.events import cancel_rarely, schedule_rarely
from headway.engine.order import comes_before, key_with, skip_iterations
from headway.engine.state import SOLO, Rule, State
from headway.jit import inlined, part

_WORTH = 4
"""Periods; fewer are not skipped."""

_PAUSE = 16
"""Iterations of the anchor until the next look at a set that repeats but could not be skipped."""

_STUCK = 1 << 12
"""Iterations of others after which an anchor is taken to be starved."""

_SURPRISES = 4
"""After so many a job is not taken to be inert any more, until a job comes or goes beside it."""


@part
def _dissolve(s: State, anchor: int) -> None:
    """Forget a set."""
    job = anchor
    while job != NOBODY:
        s.gangs[job].shot = NOBODY
        job = s.gangs[job].next_member


@part
def forget_sets_beside(s: State, job: int, now_ns: int, priority: Rule) -> None:
    """Forget the set of a job and those of its neighbours, because the job changes its ways.

    Sets that are skipped are brought back first, to the last end of a period.
    """
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    ports, links = s.cluster.ports, s.cluster.links
    if s.rules[0].skips_sets == 0:
        return
    for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
        near = gpus[seats[seat].gpu].held
        while near != NOBODY:
            _forget(s, int(s.gangs[seats[near].job].shot), now_ns, priority)
            near = seats[near].beside
    if jobs[job].servers > 1:
        for link in range(jobs[job].first_link, jobs[job].first_link + jobs[job].links):
            near = ports[links[link].port].held
            while near != NOBODY:
                _forget(s, int(s.gangs[links[near].job].shot), now_ns, priority)
                near = links[near].beside


@inlined
def _forget(s: State, anchor: int, now_ns: int, priority: Rule) -> None:
    if anchor != NOBODY:
        if s.shots[anchor].periods > 0:
            passed_ns = now_ns - s.shots[anchor].since_ns
            _return(s, anchor, passed_ns // s.shots[anchor].period_ns, priority)
        _dissolve(s, anchor)


@part
def stir(s: State, job: int, now_ns: int, priority: Rule) -> None:
    """Let a job that was inert be so no longer."""
    s.gangs[job].inert = 0
    s.gangs[job].surprises += 1
    forget_sets_beside(s, job, now_ns, priority)


@part
def trust_again(s: State, job: int) -> None:
    """Let those beside a job that comes or goes be taken to be inert again."""
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
        near = gpus[seats[seat].gpu].held
        while near != NOBODY:
            s.gangs[seats[near].job].surprises = 0
            near = seats[near].beside


@inlined
def note_iteration(s: State, job: int) -> None:
    """Remember that an iteration of a job ended, if this may be a time to look at its set."""
    if s.rules[0].skips_sets == 0:
        return
    anchor = s.gangs[job].shot
    if anchor == NOBODY or anchor == job:  # noqa: PLR1714, SIM109
        s.ended[s.tally[0].ended] = job
        s.tally[0].ended += 1
        return
    s.shots[anchor].others += 1
    if s.shots[anchor].others > _STUCK:
        _dissolve(s, int(anchor))


@part
def look_at_sets(s: State, now_ns: int, next_arrival_ns: int, priority: Rule) -> None:
    """Look at the sets whose anchors ended an iteration at this instant.

    While a set catches up, the state of others is not of this instant: nothing is looked at.
    """
    catching_up = now_ns < s.tally[0].front_ns or (
        s.tally[0].heap > 0 and s.heap[0].time_ns <= now_ns
    )
    if not catching_up:
        for turn in range(s.tally[0].ended):
            job = s.ended[turn]
            if s.gangs[job].solo_ns == NOBODY:
                if s.gangs[job].shot == NOBODY:
                    s.shots[job].ends = 0
                    s.shots[job].copy_at = 1
                    s.shots[job].look_at = 0
                    _look(s, job, now_ns, next_arrival_ns, priority)
                elif s.gangs[job].shot == job:
                    _look(s, job, now_ns, next_arrival_ns, priority)
    s.tally[0].ended = 0


@inlined
def _look(s: State, anchor: int, now_ns: int, next_arrival_ns: int, priority: Rule) -> None:
    """Compare a set with its copy; skip it forward if it repeats; renew the copy when it is due."""
    shots = s.shots
    shots[anchor].ends += 1
    shots[anchor].others = 0
    ends = shots[anchor].ends
    if ends > 1 and ends >= shots[anchor].look_at and _is_alike(s, anchor, now_ns):
        shots[anchor].period_ns = now_ns - shots[anchor].since_ns
        job = anchor
        while job != NOBODY:
            s.members[job].iterations = (
                s.members[job].iterations_left - s.cluster.jobs[job].iterations_left
            )
            s.members[job].messages = s.gangs[job].sent - s.members[job].sent
            job = s.gangs[job].next_member
        if _skip(s, anchor, now_ns, next_arrival_ns, priority):
            return
        shots[anchor].look_at = ends + _PAUSE
    if ends >= shots[anchor].copy_at:
        _gather(s, anchor)
        _copy(s, anchor, now_ns)
        shots[anchor].copy_at = 2 * ends


@part
def _gather(s: State, anchor: int) -> None:
    """Find the set that a job belongs to; the job is its anchor."""
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    ports, links, gangs = s.cluster.ports, s.cluster.links, s.gangs
    s.tally[0].searches += 1
    mark = s.tally[0].searches
    contends = s.cluster.system[0].contends != 0
    gangs[anchor].mark = mark
    gangs[anchor].seen_left = jobs[anchor].iterations_left
    s.scratch[0] = anchor
    found, turn = 1, 0
    while turn < found:
        job = s.scratch[turn]
        turn += 1
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            near = gpus[seats[seat].gpu].held
            while near != NOBODY:
                found = _meet(s, seats[near].job, mark, found)
                near = seats[near].beside
        if contends and jobs[job].servers > 1:
            for link in range(jobs[job].first_link, jobs[job].first_link + jobs[job].links):
                near = ports[links[link].port].held
                while near != NOBODY:
                    found = _meet(s, links[near].job, mark, found)
                    near = links[near].beside
    for turn in range(found):
        if gangs[s.scratch[turn]].shot != NOBODY:
            _dissolve(s, int(gangs[s.scratch[turn]].shot))
    following = NOBODY
    for turn in range(found - 1, -1, -1):
        job = s.scratch[turn]
        gangs[job].shot = anchor
        gangs[job].next_member = following
        following = job


@inlined
def _meet(s: State, job: int, mark: int, found: int) -> int:
    """Add a job to those found, unless it is among them, solo or inert; return their number."""
    gangs = s.gangs
    if gangs[job].mark == mark or gangs[job].solo_ns != NOBODY:
        return found
    gangs[job].mark = mark
    unmoved = gangs[job].seen_left == s.cluster.jobs[job].iterations_left
    gangs[job].seen_left = s.cluster.jobs[job].iterations_left
    if unmoved and gangs[job].surprises < _SURPRISES and _does_nothing(s, job):
        gangs[job].inert = 1
        return found
    s.scratch[found] = job
    return found + 1


@inlined
def _does_nothing(s: State, job: int) -> bool:
    """Whether no task of a job runs, and some wait for their GPU."""
    jobs, seats = s.cluster.jobs, s.cluster.seats
    ready = False
    for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
        if seats[seat].group != NOBODY:
            return False
        ready = ready or seats[seat].stage != DONE
    return ready


@inlined
def _message_end_ns(s: State, job: int) -> int:
    """Return when a running message ends."""
    return int(s.heap[s.places[len(s.cluster.gpus) + job]].time_ns)


@inlined
def _copy(s: State, anchor: int, now_ns: int) -> None:
    """Copy a set's state relative to now."""
    jobs, seats = s.cluster.jobs, s.cluster.seats
    s.shots[anchor].since_ns = now_ns
    job = anchor
    while job != NOBODY:
        _restart(s, job)
        member = s.members[job]
        member.tasks_left = s.gangs[job].tasks_left
        member.waiting = s.gangs[job].waiting
        member.unsent_bytes = jobs[job].unsent_bytes
        member.message_bytes = jobs[job].message_bytes
        member.message_k = jobs[job].message_k
        if jobs[job].message_k > 0:
            member.message_age_ns = now_ns - jobs[job].message_start_ns
            member.message_since_ns = jobs[job].message_since_ns - now_ns
            member.message_end_ns = _message_end_ns(s, job) - now_ns
            member.message_bytes_left = jobs[job].message_bytes_left
            member.message_cost_ns_per_byte = jobs[job].message_cost_ns_per_byte
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            s.postures[seat].stage = seats[seat].stage
            s.postures[seat].age_ns = NOBODY
            if seats[seat].group != NOBODY:
                s.postures[seat].age_ns = now_ns - s.groups[seats[seat].group].start_ns
        job = s.gangs[job].next_member


@inlined
def _restart(s: State, job: int) -> None:
    """Let a member's progress count from here."""
    s.members[job].iterations_left = s.cluster.jobs[job].iterations_left
    s.members[job].priority_key = s.cluster.jobs[job].priority_key
    s.members[job].sent = s.gangs[job].sent


@inlined
def _is_alike(s: State, anchor: int, now_ns: int) -> bool:
    """Whether a set is in the state of its copy, relative to now."""
    jobs, seats = s.cluster.jobs, s.cluster.seats
    job = anchor
    while job != NOBODY:
        member = s.members[job]
        if (
            member.tasks_left != s.gangs[job].tasks_left
            or member.waiting != s.gangs[job].waiting
            or member.message_k != jobs[job].message_k
        ):
            return False
        if jobs[job].message_k > 0 and (
            member.message_age_ns != now_ns - jobs[job].message_start_ns
            or member.message_since_ns != jobs[job].message_since_ns - now_ns
            or member.message_end_ns != _message_end_ns(s, job) - now_ns
            or member.message_bytes_left != jobs[job].message_bytes_left
            or member.message_cost_ns_per_byte != jobs[job].message_cost_ns_per_byte
        ):
            return False
        sends = jobs[job].message_k > 0 or s.gangs[job].waiting != 0
        if sends and (
            member.unsent_bytes != jobs[job].unsent_bytes
            or member.message_bytes != jobs[job].message_bytes
        ):
            return False
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            age_ns = NOBODY
            if seats[seat].group != NOBODY:
                age_ns = now_ns - s.groups[seats[seat].group].start_ns
            if s.postures[seat].age_ns != age_ns or s.postures[seat].stage != seats[seat].stage:
                return False
        job = s.gangs[job].next_member
    return True


@inlined
def _most_periods(s: State, anchor: int, now_ns: int, next_arrival_ns: int) -> int:
    """Return for how many periods no job arrives, and none of the set or beside it finishes."""
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    period_ns = s.shots[anchor].period_ns
    periods = (min(next_arrival_ns, HORIZON_NS) - now_ns - 1) // period_ns
    job = anchor
    while job != NOBODY and periods >= _WORTH:
        if jobs[job].message_k == 0 and s.places[len(gpus) + job] != NOBODY:
            return 0
        if s.members[job].iterations > 0:
            left = jobs[job].iterations_left - 1
            periods = min(periods, left // s.members[job].iterations)
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            group = gpus[seats[seat].gpu].group
            if group != NOBODY and s.groups[group].stage == SOLO:
                periods = min(periods, (s.groups[group].end_ns - now_ns - 1) // period_ns)
        job = s.gangs[job].next_member
    return int(periods)


@part
def _skip(s: State, anchor: int, now_ns: int, next_arrival_ns: int, priority: Rule) -> bool:
    """Move a set that repeats forward by whole periods, if nothing prevents enough of them."""
    jobs, seats, gpu_count = s.cluster.jobs, s.cluster.seats, len(s.cluster.gpus)
    shots, tally = s.shots, s.tally
    periods = _most_periods(s, anchor, now_ns, next_arrival_ns)
    while periods >= _WORTH and not _keeps_order(s, anchor, periods, priority):
        periods //= 2
    if periods < _WORTH:
        return False
    shots[anchor].since_ns = now_ns
    shots[anchor].periods = periods
    shots[anchor].place = tally[0].skipped
    s.skipped[tally[0].skipped] = anchor
    tally[0].skipped += 1
    job = anchor
    while job != NOBODY:
        _restart(s, job)
        if jobs[job].message_k > 0:
            tally[0].heap = cancel_rarely(s.heap, s.places, tally[0].heap, gpu_count + job)
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            if seats[seat].group != NOBODY:
                tally[0].heap = cancel_rarely(s.heap, s.places, tally[0].heap, seats[seat].group)
        job = s.gangs[job].next_member
    event = gpu_count + len(jobs) + anchor
    back_ns = now_ns + periods * shots[anchor].period_ns
    tally[0].heap = schedule_rarely(s.heap, s.places, tally[0].heap, event, back_ns)
    return True


@inlined
def _keeps_order(s: State, anchor: int, periods: int, priority: Rule) -> bool:
    """Whether jobs that share a GPU or a port keep their order, from the copy to the return.

    Keys only fall or only rise, so they are between those of the copy and of the return.
    """
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    ports, links = s.cluster.ports, s.cluster.links
    job = anchor
    while job != NOBODY:
        left = jobs[job].iterations_left - periods * s.members[job].iterations
        s.members[job].last_key = key_with(s, job, left, priority)
        job = s.gangs[job].next_member
    contends = s.cluster.system[0].contends != 0
    job = anchor
    while job != NOBODY:
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            near = gpus[seats[seat].gpu].held
            while near != NOBODY:
                if not _stay_apart(s, anchor, job, seats[near].job):
                    return False
                near = seats[near].beside
        if contends and jobs[job].servers > 1:
            for link in range(jobs[job].first_link, jobs[job].first_link + jobs[job].links):
                near = ports[links[link].port].held
                while near != NOBODY:
                    if not _stay_apart(s, anchor, job, links[near].job):
                        return False
                    near = links[near].beside
        job = s.gangs[job].next_member
    return True


@inlined
def _stay_apart(s: State, anchor: int, job: int, other: int) -> bool:
    """Whether the keys of two neighbours, the first in the set, do not meet.

    A solo job comes first, and its key does not rise; the key of an inert one does not move.
    """
    if job == other or s.gangs[other].solo_ns != NOBODY:
        return True
    key = s.cluster.jobs[other].priority_key
    lowest, highest = key, key
    if s.gangs[other].shot == anchor:
        lowest = min(s.members[other].priority_key, s.members[other].last_key)
        highest = max(s.members[other].priority_key, s.members[other].last_key)
    own_lowest = min(s.members[job].priority_key, s.members[job].last_key)
    own_highest = max(s.members[job].priority_key, s.members[job].last_key)
    if comes_before(s, job, other):
        return bool(own_highest < lowest or (own_highest == lowest and job < other))
    return bool(highest < own_lowest or (highest == own_lowest and other < job))


@part
def _return(s: State, anchor: int, periods: int, priority: Rule) -> None:
    """Give a set that was skipped the state that it has after so many periods, and its events."""
    jobs, seats, gpu_count = s.cluster.jobs, s.cluster.seats, len(s.cluster.gpus)
    shots, tally = s.shots, s.tally
    passed_ns = periods * shots[anchor].period_ns
    now_ns = shots[anchor].since_ns + passed_ns
    job = anchor
    while job != NOBODY:
        member = s.members[job]
        if member.iterations > 0:
            skip_iterations(s, job, periods * member.iterations, 0, priority)
        tally[0].messages += periods * member.messages
        s.gangs[job].sent += periods * member.messages
        if jobs[job].message_k > 0:
            jobs[job].message_start_ns += passed_ns
            jobs[job].message_since_ns += passed_ns
            end_ns = now_ns + member.message_end_ns
            tally[0].heap = schedule_rarely(
                s.heap, s.places, tally[0].heap, gpu_count + job, end_ns
            )
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            group = seats[seat].group
            if group != NOBODY and s.places[group] == NOBODY:
                s.groups[group].start_ns += passed_ns
                s.groups[group].end_ns += passed_ns
                end_ns = s.groups[group].end_ns
                tally[0].heap = schedule_rarely(s.heap, s.places, tally[0].heap, group, end_ns)
        _restart(s, job)
        job = s.gangs[job].next_member
    shots[anchor].since_ns = now_ns
    shots[anchor].periods = 0
    tally[0].skipped -= 1
    last = s.skipped[tally[0].skipped]
    s.skipped[shots[anchor].place] = last
    shots[last].place = shots[anchor].place
    event = gpu_count + len(jobs) + anchor
    tally[0].heap = cancel_rarely(s.heap, s.places, tally[0].heap, event)


@part
def bring_back(s: State, anchor: int, now_ns: int, next_arrival_ns: int, priority: Rule) -> None:
    """Bring a set back at the time that was planned; skip it again if it may be."""
    _return(s, anchor, s.shots[anchor].periods, priority)
    if now_ns < s.tally[0].front_ns or not _skip(s, anchor, now_ns, next_arrival_ns, priority):
        s.shots[anchor].look_at = s.shots[anchor].ends + _PAUSE


@part
def bring_all_back(s: State, before_ns: int, priority: Rule) -> None:
    """Bring all sets back to the last ends of periods before an instant."""
    while s.tally[0].skipped > 0:
        anchor = s.skipped[0]
        passed_ns = before_ns - s.shots[anchor].since_ns
        _return(s, anchor, (passed_ns - 1) // s.shots[anchor].period_ns, priority)
        s.shots[anchor].look_at = 0


@inlined
def may_finish(s: State, now_ns: int) -> bool:
    """Whether a job may finish at this instant, judged from the first events of the queue."""
    gpu_count, job_count = len(s.cluster.gpus), len(s.cluster.jobs)
    size = min(s.tally[0].heap, 7)
    for place in range(size):
        if s.heap[place].time_ns != now_ns:
            continue
        if place >= 3:
            return True
        event = s.heap[place].event
        if event < gpu_count:
            job = s.groups[event].job
            if s.groups[event].stage == SOLO or s.cluster.jobs[job].iterations_left == 1:
                return True
        elif (
            event < gpu_count + job_count and s.cluster.jobs[event - gpu_count].iterations_left == 1
        ):
            return True
    return False
