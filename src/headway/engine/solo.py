"""Solo: a job that no other can delay runs to its end in one event.

A job without a graph is solo in one of two situations, both of which begin when all its forward
tasks start at one instant on GPUs of one type.

- It is on a single server and comes first, in priority order, on each of its GPUs. Then it never
  leaves a GPU to others: when one of its tasks ends the next is ready at the same instant.
- It has its GPUs and its ports to itself. Then its all-reduces are admitted at once and go at the
  speed of a message alone.

Its iterations then all last the same: a *period*. What could end this is a job placed on one of its
GPUs or ports, or a task that becomes ready on one of its GPUs. `interrupt` then gives it back the
state, and the event, that it would have had. Its key only falls, so it stays first until then;
where keys rise, a job is solo only if it has its GPUs to itself.
"""

from __future__ import annotations

import math

from headway.domain.limits import HORIZON_NS
from headway.domain.records import BACKWARD, FORWARD, IN_FLIGHT, NOBODY
from headway.engine.events import cancel_rarely, schedule_rarely
from headway.engine.order import (
    alone_bucket_bytes,
    comes_before,
    key_with,
    skip_iterations,
    skip_messages,
)
from headway.engine.state import DONE, SOLO, State
from headway.jit import inlined, part
from headway.network.laws.dispatch import alone_ns_per_byte
from headway.network.messages import messages_meet
from headway.network.traffic import put_on_ports


@part
def _bucket_alone_ns(s: State, message: int, size: int, cost: float) -> int:
    """Return how long a bucket of a message takes whose cost never changes."""
    return int(max(1, s.cluster.messages[message].latency_ns + math.ceil(size * cost)))


@part
def message_alone_ns(s: State, message: int) -> int:
    """Return how long a message takes in all, bucket by bucket, where no other is."""
    cost = alone_ns_per_byte(s.cluster, message)
    size, bucket_bytes = s.cluster.messages[message].size_bytes, alone_bucket_bytes(s)
    full = size // bucket_bytes
    rest = size - full * bucket_bytes
    total_ns = full * _bucket_alone_ns(s, message, bucket_bytes, cost)
    if rest > 0 or full == 0:
        total_ns += _bucket_alone_ns(s, message, rest, cost)
    return int(total_ns)


@inlined
def try_solo(s: State, job: int, group: int, now_ns: int) -> None:
    """Make a job solo whose forward tasks have all just started, if no other job can delay it."""
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    one_server = jobs[job].servers == 1
    shared = False
    first = jobs[job].first_seat
    for seat in range(first, first + jobs[job].gpus):
        other = gpus[seats[seat].gpu].held
        while other != NOBODY:
            if other != seat:
                if not (one_server and comes_before(s, job, seats[other].job)):
                    return
                shared = True
            other = seats[other].beside
    if messages_meet(s.cluster) and not one_server:
        message = s.cluster.messages[jobs[job].first_message]
        for link in range(message.first_link, message.first_link + message.links):
            if s.cluster.ports[s.cluster.links[link].port].links > 1:
                return
    s.rare.go_solo(s, job, int(group), shared, now_ns)


def go_solo(s: State, job: int, group: int, shared: bool, now_ns: int) -> None:
    """Give a job the one event of its end, if its key does not rise above those beside it."""
    jobs, gpus, seats = s.cluster.jobs, s.cluster.gpus, s.cluster.seats
    one_server = jobs[job].servers == 1
    first = jobs[job].first_seat
    if shared and key_with(s, job, 1) > jobs[job].priority_key:
        return
    pace = job * s.rules[0].types + gpus[seats[first].gpu].type
    period_ns = s.paces[pace].forward_ns + s.paces[pace].backward_ns
    if not one_server:
        period_ns += message_alone_ns(s, jobs[job].first_message)
    if jobs[job].iterations_left > (HORIZON_NS - now_ns) // period_ns:
        return
    end_ns = now_ns + jobs[job].iterations_left * period_ns
    s.groups[group].stage = SOLO
    s.groups[group].end_ns = end_ns
    s.tally[0].heap = schedule_rarely(s.heap, s.positions, s.tally[0].heap, group, end_ns)
    s.job_progress[job].solo_ns = now_ns
    s.job_progress[job].period_ns = period_ns
    s.rare.forget_sets_beside(s, job, now_ns)


@part
def catch_up(s: State, job: int, now_ns: int) -> None:
    """Count the iterations that a solo job has ended until now, this instant included."""
    since_ns, period_ns = s.job_progress[job].solo_ns, s.job_progress[job].period_ns
    count = (now_ns - since_ns) // period_ns
    if count > 0:
        s.job_progress[job].solo_ns = since_ns + count * period_ns
        skip_iterations(s, job, count, s.job_progress[job].messages_each)


@part
def end_solo(s: State, job: int, now_ns: int) -> None:
    """Move a solo job to the end of its last iteration."""
    left = s.cluster.jobs[job].iterations_left
    messages = s.job_progress[job].messages_each
    skip_iterations(s, job, left - 1, messages)
    skip_messages(s, job, messages)
    _forget_solo(s, job, now_ns)


@part
def _forget_solo(s: State, job: int, now_ns: int) -> None:
    s.job_progress[job].solo_ns = NOBODY
    s.rare.forget_sets_beside(s, job, now_ns)


def interrupt(s: State, job: int, now_ns: int) -> None:
    """Give a solo job the state that it has at this instant, before the instant's completions.

    Its running task or message gets its event, at this instant or later.
    """
    jobs, seats = s.cluster.jobs, s.seat_progress
    since_ns, period_ns = s.job_progress[job].solo_ns, s.job_progress[job].period_ns
    first = jobs[job].first_seat
    group = seats[first].group
    pace = job * s.rules[0].types + s.cluster.gpus[s.cluster.seats[first].gpu].type
    count = (now_ns - since_ns - 1) // period_ns
    skip_iterations(s, job, count, s.job_progress[job].messages_each)
    _forget_solo(s, job, now_ns)
    start_ns = since_ns + count * period_ns
    s.job_progress[job].ended_ns, s.job_progress[job].lasted_ns = start_ns, period_ns
    forward_end_ns = start_ns + s.paces[pace].forward_ns
    end_ns = forward_end_ns + s.paces[pace].backward_ns
    stage = DONE
    if now_ns <= forward_end_ns:
        stage, end_ns = FORWARD, forward_end_ns
    elif now_ns <= end_ns:
        stage, start_ns = BACKWARD, forward_end_ns
    for seat in range(first, first + jobs[job].gpus):
        seats[seat].stage = stage
    if stage != DONE:
        s.groups[group].stage = stage
        s.groups[group].start_ns = start_ns
        s.groups[group].end_ns = end_ns
        s.tally[0].heap = schedule_rarely(s.heap, s.positions, s.tally[0].heap, group, end_ns)
        return

    # Its GPUs are free and its message is in flight: which bucket, and since when?
    s.tally[0].heap = cancel_rarely(s.heap, s.positions, s.tally[0].heap, group)
    s.free_groups[s.tally[0].free_groups] = group
    s.tally[0].free_groups += 1
    for seat in range(first, first + jobs[job].gpus):
        seats[seat].group = NOBODY
        s.gpu_progress[s.cluster.seats[seat].gpu].group = NOBODY
    s.job_progress[job].tasks_left = 0
    message = jobs[job].first_message
    _put_in_flight(s, message, end_ns, now_ns)


@part
def _put_in_flight(s: State, message: int, ready_ns: int, now_ns: int) -> None:
    """Send a message, ready since `ready_ns` and alone, up to the present."""
    record, bucket_bytes = s.cluster.messages[message], alone_bucket_bytes(s)
    cost = alone_ns_per_byte(s.cluster, message)
    bucket_ns = _bucket_alone_ns(s, message, bucket_bytes, cost)
    buckets = s.job_progress[record.job].messages_each
    past = min((now_ns - ready_ns - 1) // bucket_ns, buckets - 1)
    start_ns = ready_ns + past * bucket_ns
    record.unsent_bytes = record.size_bytes - past * bucket_bytes
    record.bytes = min(record.unsent_bytes, bucket_bytes)
    skip_messages(s, record.job, past)
    put_on_ports(s.cluster, message)
    record.state = IN_FLIGHT
    record.k = 1
    record.cost_ns_per_byte = cost
    record.start_ns = start_ns
    record.since_ns = start_ns + record.latency_ns
    record.bytes_left = record.bytes
    end_ns = start_ns + _bucket_alone_ns(s, message, record.bytes, cost)
    event = len(s.cluster.gpus) + message
    s.tally[0].heap = schedule_rarely(s.heap, s.positions, s.tally[0].heap, event, end_ns)
