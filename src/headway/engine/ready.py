"""What is ready: tasks, in line for their GPUs, and messages, waiting for admission."""

from __future__ import annotations

from headway.domain.records import FORWARD, NOBODY, READY
from headway.engine.events import schedule
from headway.engine.order import comes_before
from headway.engine.state import FUSED, SOLO, State
from headway.engine.watching import ask_about
from headway.jit import inlined, part


@part
def _split(s: State, group: int, gpu_type: int, now_ns: int) -> None:
    """Split a fused group, whose forward tasks still run, from its backward tasks."""
    pace = s.groups[group].job * s.rules[0].types + gpu_type
    end_ns = s.groups[group].start_ns + s.paces[pace].forward_ns
    if now_ns <= end_ns:
        s.groups[group].stage = FORWARD
        s.groups[group].end_ns = end_ns
        s.tally[0].heap = schedule(s.heap, s.positions, s.tally[0].heap, group, end_ns)


@inlined
def make_ready(s: State, seat: int, stage: int, now_ns: int) -> None:
    """Put a seat's next compute task in line for its GPU."""
    gpus, seats = s.gpu_progress, s.seat_progress
    gpu = seats[seat].gpu
    job = seats[seat].job
    running = gpus[gpu].group
    if running != NOBODY:
        if s.groups[running].stage == SOLO:
            s.rare.interrupt(s, int(s.groups[running].job), now_ns)
        elif s.groups[running].stage == FUSED and comes_before(s, job, s.groups[running].job):
            _split(s, running, gpus[gpu].type, now_ns)
    seats[seat].stage = stage
    following = gpus[gpu].ready
    if following == NOBODY or comes_before(s, job, seats[following].job):
        gpus[gpu].ready = seat
    else:
        previous = following
        following = seats[previous].next
        while following != NOBODY and not comes_before(s, job, seats[following].job):
            previous = following
            following = seats[previous].next
        seats[previous].next = seat
    seats[seat].next = following
    if gpus[gpu].group == NOBODY and gpus[gpu].listed == 0:
        gpus[gpu].listed = 1
        s.idle[s.tally[0].idle] = gpu
        s.tally[0].idle += 1


@inlined
def let_wait(s: State, message: int, ready_ns: int) -> None:
    """Make a message, a bucket of what is unsent, one of those that wait for admission."""
    record = s.cluster.messages[message]
    record.bytes = min(record.unsent_bytes, s.cluster.system[0].bucket_bytes)
    record.state = READY
    record.ready_ns = ready_ns
    waiter = s.waiters[message]
    waiter.key = s.cluster.jobs[record.job].priority_key
    waiter.bytes = record.bytes
    waiter.first_link = record.first_link
    waiter.links = record.links
    s.tally[0].waiting += 1
    if s.rules[0].needed_first != 0:
        first = s.job_progress[record.job].waiting
        waiter.earlier, waiter.later = NOBODY, first
        if first != NOBODY:
            s.waiters[first].earlier = message
        s.job_progress[record.job].waiting = message


@inlined
def make_message_ready(s: State, message: int) -> None:
    """Make a message wait for admission, and ask about it at this instant."""
    let_wait(s, message, s.cluster.system[0].now_ns)
    ask_about(s, message)


@inlined
def note_end(s: State, job: int) -> None:
    """Remember that an iteration ended at this instant; it is counted after all completions."""
    s.scratch[s.tally[0].done] = job
    s.tally[0].done += 1


@part
def record_task(
    s: State, kind: int, job: int, gpu: int, node: int, ready_ns: int, start_ns: int, end_ns: int
) -> None:
    """Add a row to the timeline; `node` is that of the job's graph, or NOBODY."""
    row = s.tally[0].timeline
    s.timeline[row].kind = kind
    s.timeline[row].job = job
    s.timeline[row].gpu = gpu
    s.timeline[row].node = node
    s.timeline[row].iteration = s.cluster.jobs[job].iterations - s.cluster.jobs[job].iterations_left
    s.timeline[row].ready_ns = ready_ns
    s.timeline[row].start_ns = start_ns
    s.timeline[row].end_ns = end_ns
    s.tally[0].timeline = row + 1
