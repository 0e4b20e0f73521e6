"""Cycles: a set of jobs that repeats is skipped forward; a sampled one is moved by its rates.

Jobs that hold the same GPU or use the same port may disturb each other; a *set* is all jobs that
are connected in this way, directly or through others. Jobs that do nothing for now are left out:
those that are solo, and those that are *inert*, waiting for a GPU that others do not leave to them.
While they stay so, they do not connect their neighbours; when one ceases to be so, its neighbours'
sets are forgotten. A sampled set includes inert jobs.

Nothing outside a set can then change what happens in it until a job is placed on its GPUs or ports.
What happens next in it depends on its state *relative to the present* (the stages of its seats, the
ages of its running tasks, what its messages have left and since when, who waits) and on the order
of the jobs that share a GPU or a port. Times are integers, and everything else is computed from
their differences. So if the relative state at two instants is the same, bit by bit, and the order
was and remains the same, the time between them is a *period*: it will be repeated until a job of
the set finishes, a solo job beside it does, or the order changes.

The state is looked at when an iteration of one job of the set, its *anchor*, has ended, at the end
of the instant. It is compared with a snapshot that is renewed at the 1st, 2nd, 4th, 8th … such end
(if it is sampled, while it settles), so that a repetition is found soon after it begins (Brent's
cycle detection) and looking costs little where there is none. A set that repeats is moved forward
by as many whole periods as nothing can interfere with: its events leave the heap, and one event
brings them back. If something may happen before that, because the queue is tried or an inert job
beside it wakes up, the set is brought back by the whole periods that have passed, and catches up
event by event. The clock goes back for it, which does no harm: nothing outside the set can have
affected it in that time.
"""

from __future__ import annotations

from headway.domain.limits import HORIZON_NS
from headway.domain.records import IN_FLIGHT, NOBODY, UNLISTED
from headway.engine.events import cancel_rarely, schedule_rarely
from headway.engine.order import (
    comes_before,
    key_with,
    messages_now,
    skip_iterations,
    skip_messages,
)
from headway.engine.order_changes import change_of_order_ns
from headway.engine.sampling import (
    FIRST_HALF,
    MEASURED,
    SECOND_HALF,
    SETTLING,
    accurate_ns,
    begin_window,
    carry_over,
    count_estimates,
    does_nothing,
    end_window,
    enter,
    mean_age_ns,
    measure_repetition,
    note_half,
)
from headway.engine.snapshots import count_from_here, is_alike, take_snapshot
from headway.engine.state import SOLO, State
from headway.jit import inlined, part
from headway.network.messages import messages_meet

_LEAST_PERIODS = 4
"""The fewest periods that are worth skipping. A set is not moved by rates that are good for fewer
windows than this, nor by less than one window divided by this.
"""

_ORDER_SLACK, _ORDER_SLACK_OF_TIME = 8, 1 / 64
"""How far a set may be moved although neighbours change their order meanwhile: this number of
windows, or this part of the time that the members have been in the system, whichever is more.
"""

_PAUSE = 16
"""Iterations of the anchor, at most, until the next look at a set that could not be skipped."""

_CHEAP = 4
"""Searches for a set of this many jobs for each iteration of one of them cost little."""

_STARVED_AFTER = 1 << 12
"""Iterations of others after which an anchor is considered starved."""

_MOST_SURPRISES = 4
"""A job that was wrongly taken for inert this many times no longer counts as inert, until a job
comes or goes beside it.
"""


@part
def _dissolve(s: State, anchor: int) -> None:
    """Forget a set. The larger it was, the later its jobs look for another.

    Sampling looks sooner, because a set need not repeat to be moved forward.
    """
    cheap = _CHEAP if s.rules[0].window == 0 else 4 * _CHEAP
    members, job = 0, anchor
    while job != NOBODY:
        members += 1
        job = s.job_progress[job].next_member
    job = anchor
    while job != NOBODY:
        s.job_progress[job].cycle = NOBODY
        s.cycles[job].pause = members // cheap
        job = s.job_progress[job].next_member


def forget_sets_beside(s: State, job: int, now_ns: int) -> None:
    """Forget the sets of a job and of its neighbours, because the job's behaviour changes.

    Sets that are skipped are brought back first, to the last end of a period.
    """
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    ports, links, messages = s.cluster.ports, s.cluster.links, s.cluster.messages
    if s.rules[0].skips_sets == 0:
        return
    for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
        near = gpus[seats[seat].gpu].held
        while near != NOBODY:
            _forget(s, int(s.job_progress[seats[near].job].cycle), now_ns)
            near = seats[near].beside
    first = jobs[job].first_message
    for number in range(first, first + jobs[job].messages):
        message = messages[number]
        for link in range(message.first_link, message.first_link + message.links):
            if links[link].beside != UNLISTED:
                near = ports[links[link].port].held
                while near != NOBODY:
                    neighbour = messages[links[near].message].job
                    _forget(s, int(s.job_progress[neighbour].cycle), now_ns)
                    near = links[near].beside


@part
def _forget(s: State, anchor: int, now_ns: int) -> None:
    if anchor != NOBODY:
        if s.cycles[anchor].periods > 0:
            passed_ns = now_ns - s.cycles[anchor].since_ns
            s.rare.return_set(s, anchor, passed_ns // s.cycles[anchor].period_ns)
        _dissolve(s, anchor)


def wake(s: State, job: int, now_ns: int) -> None:
    """Count a job as no longer inert."""
    s.job_progress[job].inert = 0
    s.job_progress[job].surprises += 1
    s.rare.forget_sets_beside(s, job, now_ns)


def trust_again(s: State, job: int) -> None:
    """Allow the neighbours of a job that comes or goes to count as inert again."""
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
        near = gpus[seats[seat].gpu].held
        while near != NOBODY:
            s.job_progress[seats[near].job].surprises = 0
            near = seats[near].beside


@inlined
def note_iteration(s: State, job: int, now_ns: int) -> None:
    """Remember that an iteration of a job ended, if this may be a time to look at its set."""
    if s.rules[0].skips_sets == 0:
        return
    anchor = s.job_progress[job].cycle
    if s.rules[0].window > 0:
        s.job_progress[job].lasted_ns = now_ns - s.job_progress[job].ended_ns
        s.job_progress[job].ended_ns = now_ns
        if anchor != NOBODY:
            s.cycles[anchor].seen += 1
    if anchor == NOBODY or anchor == job:  # noqa: PLR1714, SIM109
        s.ended[s.tally[0].ended] = job
        s.tally[0].ended += 1
        return
    s.cycles[anchor].others += 1
    if s.cycles[anchor].others > s.cycles[anchor].patience:
        if s.rules[0].window == 0:
            _dissolve(s, int(anchor))
        else:
            s.ended[s.tally[0].ended] = job
            s.tally[0].ended += 1


def look_at_sets(s: State, now_ns: int, next_arrival_ns: int) -> None:
    """Look at the sets whose anchors ended an iteration at this instant.

    While a set catches up, the state of others is not that of this instant: do nothing.
    """
    catching_up = now_ns < s.tally[0].front_ns or (
        s.tally[0].heap > 0 and s.heap[0].time_ns <= now_ns
    )
    if not catching_up:
        for i in range(s.tally[0].ended):
            job = s.ended[i]
            if s.job_progress[job].solo_ns == NOBODY:
                anchor = int(s.job_progress[job].cycle)
                if anchor == NOBODY and s.cycles[job].pause > 0:
                    s.cycles[job].pause -= 1
                elif anchor == NOBODY:
                    s.cycles[job].ends = 0
                    s.cycles[job].snapshot_at = 1
                    s.cycles[job].look_at = 0
                    s.cycles[job].patience = _STARVED_AFTER
                    s.cycles[job].phase = SETTLING
                    _look(s, job, now_ns, next_arrival_ns)
                elif s.cycles[anchor].periods == 0 and (anchor == job or s.rules[0].window > 0):
                    _look(s, anchor, now_ns, next_arrival_ns)
    s.tally[0].ended = 0


@part
def _look(s: State, anchor: int, now_ns: int, next_arrival_ns: int) -> None:
    """Compare a set with its snapshot; skip it forward if it repeats; renew a snapshot when due."""
    cycles = s.cycles
    cycles[anchor].ends += 1
    cycles[anchor].others = 0
    ends = cycles[anchor].ends
    repeats = ends > 1 and ends >= cycles[anchor].look_at and is_alike(s, anchor, now_ns)
    if repeats and now_ns > cycles[anchor].since_ns:
        cycles[anchor].period_ns = now_ns - cycles[anchor].since_ns
        if s.rules[0].window > 0:
            enter(s, anchor, FIRST_HALF)
        job = anchor
        while job != NOBODY:
            s.job_snapshots[job].iterations = (
                s.job_snapshots[job].iterations_left - s.cluster.jobs[job].iterations_left
            )
            s.job_snapshots[job].messages = s.job_progress[job].sent - s.job_snapshots[job].sent
            job = s.job_progress[job].next_member
        if s.rare.skip_forward(s, anchor, now_ns, next_arrival_ns):
            return
        if s.rules[0].window > 0:
            measure_repetition(s, anchor)
        else:
            _look_later(s, anchor, now_ns, next_arrival_ns)
    if s.rules[0].window > 0:
        _sample(s, anchor, now_ns, next_arrival_ns)
    elif ends >= cycles[anchor].snapshot_at:
        members = _gather(s, anchor)
        take_snapshot(s, anchor, now_ns)
        cycles[anchor].snapshot_at = ends + max(ends, members // _CHEAP)


@part
def _look_later(s: State, anchor: int, now_ns: int, next_arrival_ns: int) -> None:
    """Look again at a set that could not be skipped after a pause, or when a job has arrived."""
    periods = max(0, next_arrival_ns - now_ns) // s.cycles[anchor].period_ns + 1
    pause = min(_PAUSE, periods * s.job_snapshots[anchor].iterations)
    s.cycles[anchor].look_at = s.cycles[anchor].ends + pause


@part
def _sample(s: State, anchor: int, now_ns: int, next_arrival_ns: int) -> None:
    """Measure a set that does not repeat; move it forward when a window ends."""
    cycles = s.cycles
    seen, target, phase = cycles[anchor].seen, cycles[anchor].target, cycles[anchor].phase
    if cycles[anchor].ends == 1:
        _gather(s, anchor)
        begin_window(s, anchor, now_ns, SETTLING)
    elif phase == SETTLING:
        if seen >= target:
            _gather(s, anchor)
            begin_window(s, anchor, now_ns, FIRST_HALF)
        elif cycles[anchor].ends >= cycles[anchor].snapshot_at:
            # A window needs the snapshot of its beginning; until then a later one finds more.
            take_snapshot(s, anchor, now_ns)
            cycles[anchor].snapshot_at = 2 * cycles[anchor].ends
    elif phase == FIRST_HALF:
        if 2 * seen >= target:
            note_half(s, anchor, now_ns)
    elif phase != SECOND_HALF or seen >= target:
        if phase == SECOND_HALF:
            end_window(s, anchor, now_ns)
            least_ns = _LEAST_PERIODS * cycles[anchor].window_ns
            if accurate_ns(s, anchor, now_ns, least_ns) < least_ns:
                cycles[anchor].seen = seen
                cycles[anchor].target = 2 * seen
                note_half(s, anchor, now_ns)
        if (
            cycles[anchor].phase == MEASURED
            and not s.rare.skip_forward(s, anchor, now_ns, next_arrival_ns)
            and phase == MEASURED
            and seen >= target
        ):
            begin_window(s, anchor, now_ns, FIRST_HALF)
    due = cycles[anchor].target
    if cycles[anchor].phase == FIRST_HALF:
        due = (due + 1) // 2
    cycles[anchor].patience = due - cycles[anchor].seen - 1


@part
def _gather(s: State, anchor: int) -> int:
    """Find the set that a job belongs to, with the job as its anchor; return how many it has."""
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    ports, links, messages = s.cluster.ports, s.cluster.links, s.cluster.messages
    progress = s.job_progress
    s.tally[0].searches += 1
    mark = s.tally[0].searches
    meet = messages_meet(s.cluster)
    progress[anchor].mark = mark
    progress[anchor].seen_left = jobs[anchor].iterations_left
    s.scratch[0] = anchor
    found, i = 1, 0
    while i < found:
        job = s.scratch[i]
        i += 1
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            gpu = seats[seat].gpu
            if s.visited[gpu] != mark:
                s.visited[gpu] = mark
                near = gpus[gpu].held
                while near != NOBODY:
                    found = _meet(s, seats[near].job, mark, found)
                    near = seats[near].beside
        if not meet:
            continue
        first = jobs[job].first_message
        for number in range(first, first + jobs[job].messages):
            message = messages[number]
            for link in range(message.first_link, message.first_link + message.links):
                port = links[link].port
                if links[link].beside != UNLISTED and s.visited[len(gpus) + port] != mark:
                    s.visited[len(gpus) + port] = mark
                    near = ports[port].held
                    while near != NOBODY:
                        found = _meet(s, messages[links[near].message].job, mark, found)
                        near = links[near].beside
    for i in range(found):
        if progress[s.scratch[i]].cycle != NOBODY:
            _dissolve(s, int(progress[s.scratch[i]].cycle))
    following = NOBODY
    for i in range(found - 1, -1, -1):
        job = s.scratch[i]
        progress[job].cycle = anchor
        progress[job].next_member = following
        following = job
    return int(found)


@part
def _meet(s: State, job: int, mark: int, found: int) -> int:
    """Add a job to those found, unless it is among them, solo or inert; return their number."""
    progress = s.job_progress
    if progress[job].mark == mark or progress[job].solo_ns != NOBODY:
        return found
    progress[job].mark = mark
    unmoved = progress[job].seen_left == s.cluster.jobs[job].iterations_left
    progress[job].seen_left = s.cluster.jobs[job].iterations_left
    trusted = s.rules[0].window == 0 and progress[job].surprises < _MOST_SURPRISES
    if unmoved and trusted and does_nothing(s, job):
        progress[job].inert = 1
        return found
    s.scratch[found] = job
    return found + 1


@part
def _most_periods(s: State, anchor: int, now_ns: int, next_arrival_ns: int, fewest: int) -> int:
    """Return for how many periods no job arrives, and none of the set or beside it finishes."""
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    period_ns = s.cycles[anchor].period_ns
    periods = (min(next_arrival_ns, HORIZON_NS) - now_ns - 1) // period_ns
    job = anchor
    while job != NOBODY and periods >= fewest:
        first = jobs[job].first_message
        for message in range(first, first + jobs[job].messages):
            in_flight = s.cluster.messages[message].state == IN_FLIGHT
            if not in_flight and s.positions[len(gpus) + message] != NOBODY:
                return 0
        left, member = jobs[job].iterations_left - 1, s.job_snapshots[job]
        if s.cycles[anchor].phase == MEASURED:
            if member.rate > 0 and member.rate * periods + member.carry > left:
                periods = int(max(0.0, left - member.carry) / member.rate)
        elif member.iterations > 0:
            periods = min(periods, left // member.iterations)
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            group = s.gpu_progress[seats[seat].gpu].group
            if group != NOBODY and s.groups[group].stage == SOLO:
                periods = min(periods, (s.groups[group].end_ns - now_ns - 1) // period_ns)
        job = s.job_progress[job].next_member
    return int(periods)


def skip_forward(s: State, anchor: int, now_ns: int, next_arrival_ns: int) -> bool:
    """Move a set forward, by whole periods or by its rates, unless something prevents it soon.

    Return whether it was moved.
    """
    jobs, seats, gpu_count = s.cluster.jobs, s.seat_progress, len(s.cluster.gpus)
    cycles, tally = s.cycles, s.tally
    measured = cycles[anchor].phase == MEASURED
    fewest = max(1, cycles[anchor].window_ns // _LEAST_PERIODS) if measured else _LEAST_PERIODS
    periods = _most_periods(s, anchor, now_ns, next_arrival_ns, fewest)
    if measured and periods >= fewest:
        periods = _jump_ns(s, anchor, now_ns, periods)
    elif not measured:
        while periods >= _LEAST_PERIODS and not _keeps_order(s, anchor, periods):
            periods //= 2
    if periods < fewest:
        return False
    if measured:
        take_snapshot(s, anchor, now_ns)
    cycles[anchor].since_ns = now_ns
    cycles[anchor].periods = periods
    cycles[anchor].index = tally[0].skipped
    s.skipped[tally[0].skipped] = anchor
    tally[0].skipped += 1
    job = anchor
    while job != NOBODY:
        count_from_here(s, job)
        first = jobs[job].first_message
        for message in range(first, first + jobs[job].messages):
            if s.cluster.messages[message].state == IN_FLIGHT:
                event = gpu_count + message
                tally[0].heap = cancel_rarely(s.heap, s.positions, tally[0].heap, event)
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            if seats[seat].group != NOBODY:
                tally[0].heap = cancel_rarely(s.heap, s.positions, tally[0].heap, seats[seat].group)
        job = s.job_progress[job].next_member
    event = gpu_count + len(s.cluster.messages) + anchor
    back_ns = now_ns + periods * cycles[anchor].period_ns
    tally[0].heap = schedule_rarely(s.heap, s.positions, tally[0].heap, event, back_ns)
    return True


@part
def _jump_ns(s: State, anchor: int, now_ns: int, most_ns: int) -> int:
    """Return by how much to move a set that was measured forward."""
    jump_ns = accurate_ns(s, anchor, now_ns, most_ns)
    if jump_ns > 0:
        of_time_ns = int(_ORDER_SLACK_OF_TIME * mean_age_ns(s, anchor, now_ns))
        slack_ns = max(_ORDER_SLACK * s.cycles[anchor].window_ns, of_time_ns)
        jump_ns = max(min(jump_ns, slack_ns), change_of_order_ns(s, anchor, jump_ns))
    s.cycles[anchor].expires = jump_ns < most_ns
    return int(jump_ns)


@part
def _keeps_order(s: State, anchor: int, periods: int) -> bool:
    """Whether jobs that share a GPU or a port keep their order, from the snapshot to the return.

    Keys only fall or only rise, so they are between those of the snapshot and of the return.
    """
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    ports, links, messages = s.cluster.ports, s.cluster.links, s.cluster.messages
    job = anchor
    while job != NOBODY:
        left = jobs[job].iterations_left - periods * s.job_snapshots[job].iterations
        s.job_snapshots[job].last_key = key_with(s, job, left)
        job = s.job_progress[job].next_member
    meet = messages_meet(s.cluster)
    job = anchor
    while job != NOBODY:
        s.tally[0].searches += 1
        s.job_progress[job].mark = s.tally[0].searches
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            near = gpus[seats[seat].gpu].held
            while near != NOBODY:
                if not _stay_apart(s, anchor, job, seats[near].job):
                    return False
                near = seats[near].beside
        first = jobs[job].first_message
        count = jobs[job].messages if meet else 0
        for number in range(first, first + count):
            message = messages[number]
            for link in range(message.first_link, message.first_link + message.links):
                if links[link].beside != UNLISTED:
                    near = ports[links[link].port].held
                    while near != NOBODY:
                        if not _stay_apart(s, anchor, job, messages[links[near].message].job):
                            return False
                        near = links[near].beside
        job = s.job_progress[job].next_member
    return True


@part
def _stay_apart(s: State, anchor: int, job: int, other: int) -> bool:
    """Whether two neighbours, the first in the set, keep their order: their keys do not meet.

    A solo job comes first, and its key does not rise; the key of an inert one does not move.
    Two members are compared once, however many GPUs and ports they share.
    """
    mark = s.tally[0].searches
    if s.job_progress[other].mark == mark:
        return True
    s.job_progress[other].mark = mark
    in_set = s.job_progress[other].cycle == anchor
    if s.job_progress[other].solo_ns != NOBODY or (in_set and other < job):
        return True
    if s.cluster.jobs[job].priority != s.cluster.jobs[other].priority:
        return True
    key = s.cluster.jobs[other].priority_key
    lowest, highest = key, key
    if in_set:
        lowest = min(s.job_snapshots[other].priority_key, s.job_snapshots[other].last_key)
        highest = max(s.job_snapshots[other].priority_key, s.job_snapshots[other].last_key)
    own_lowest = min(s.job_snapshots[job].priority_key, s.job_snapshots[job].last_key)
    own_highest = max(s.job_snapshots[job].priority_key, s.job_snapshots[job].last_key)
    if comes_before(s, job, other):
        return bool(own_highest < lowest or (own_highest == lowest and job < other))
    return bool(highest < own_lowest or (highest == own_lowest and other < job))


def return_set(s: State, anchor: int, periods: int) -> None:
    """Give a skipped set the state that it has after this number of periods, and its events.

    Where another set catches up, the present may be before the set was skipped: then it goes back
    by a period, which it repeats. Tasks that start again at the same times must not join the groups
    of those that have ended.
    """
    jobs, seats, gpu_count = s.cluster.jobs, s.seat_progress, len(s.cluster.gpus)
    cycles, tally = s.cycles, s.tally
    measured = cycles[anchor].phase == MEASURED
    if measured:
        periods = max(0, periods)
        count_estimates(s, anchor, periods)
        cycles[anchor].patience = 0
        if periods > 0:
            # A jump in which no iteration ends is an estimate too: what runs is moved in time.
            tally[0].estimated_tasks = max(1, tally[0].estimated_tasks)
    passed_ns = periods * cycles[anchor].period_ns
    now_ns = cycles[anchor].since_ns + passed_ns
    job = anchor
    while job != NOBODY:
        member = s.job_snapshots[job]
        if measured:
            count = carry_over(s, job, periods)
            messages = messages_now(s, job)
            skip_iterations(s, job, count, messages)
            tasks = s.job_progress[job].tasks_each + messages
            tally[0].estimated_tasks += count * tasks
        else:
            if member.iterations > 0:
                skip_iterations(s, job, periods * member.iterations, 0)
            skip_messages(s, job, periods * member.messages)
        s.job_progress[job].ended_ns += passed_ns
        for pace in range(job * s.rules[0].types, (job + 1) * s.rules[0].types):
            s.paces[pace].forward_group_ns = s.paces[pace].backward_group_ns = NOBODY
        first = jobs[job].first_message
        for message in range(first, first + jobs[job].messages):
            record = s.cluster.messages[message]
            if record.state == IN_FLIGHT:
                record.start_ns += passed_ns
                record.since_ns += passed_ns
                end_ns = now_ns + s.message_snapshots[message].end_ns
                event = gpu_count + message
                tally[0].heap = schedule_rarely(s.heap, s.positions, tally[0].heap, event, end_ns)
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            group = seats[seat].group
            if group != NOBODY and s.positions[group] == NOBODY:
                s.groups[group].start_ns += passed_ns
                s.groups[group].end_ns += passed_ns
                end_ns = s.groups[group].end_ns
                tally[0].heap = schedule_rarely(s.heap, s.positions, tally[0].heap, group, end_ns)
        count_from_here(s, job)
        job = s.job_progress[job].next_member
    cycles[anchor].since_ns = now_ns
    cycles[anchor].seen = 0
    cycles[anchor].periods = 0
    tally[0].skipped -= 1
    last = s.skipped[tally[0].skipped]
    s.skipped[cycles[anchor].index] = last
    cycles[last].index = cycles[anchor].index
    event = gpu_count + len(s.cluster.messages) + anchor
    tally[0].heap = cancel_rarely(s.heap, s.positions, tally[0].heap, event)


def bring_back(s: State, anchor: int, now_ns: int, next_arrival_ns: int) -> None:
    """Bring a set back at the time that was planned; skip it again if it may be."""
    s.rare.return_set(s, anchor, s.cycles[anchor].periods)
    if s.cycles[anchor].phase == MEASURED and s.cycles[anchor].expires != 0:
        begin_window(s, anchor, now_ns, FIRST_HALF)
    elif (
        now_ns < s.tally[0].front_ns or not s.rare.skip_forward(s, anchor, now_ns, next_arrival_ns)
    ) and s.rules[0].window == 0:
        _look_later(s, anchor, now_ns, next_arrival_ns)


def bring_all_back(s: State, before_ns: int) -> None:
    """Bring all sets back to the last ends of periods before an instant."""
    while s.tally[0].skipped > 0:
        anchor = s.skipped[0]
        passed_ns = before_ns - s.cycles[anchor].since_ns
        s.rare.return_set(s, anchor, (passed_ns - 1) // s.cycles[anchor].period_ns)
        s.cycles[anchor].look_at = 0


@part
def may_finish(s: State, now_ns: int) -> bool:
    """Whether a job may finish at this instant, judged from the first events of the heap."""
    gpu_count, message_count = len(s.cluster.gpus), len(s.cluster.messages)
    size = min(s.tally[0].heap, 7)
    for index in range(size):
        if s.heap[index].time_ns != now_ns:
            continue
        if index >= 3:
            return True
        event = s.heap[index].event
        if event < gpu_count:
            job = s.groups[event].job
            if s.groups[event].stage == SOLO or s.cluster.jobs[job].iterations_left == 1:
                return True
        elif event < gpu_count + message_count:
            job = s.cluster.messages[event - gpu_count].job
            if s.cluster.jobs[job].iterations_left == 1:
                return True
    return False
