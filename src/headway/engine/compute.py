"""Steps 1 and 5 for compute tasks, and the chain of a job's iterations.

Two facts make this quick. Compute tasks of one job, stage and type of GPU that start together end
together: they are one *group* and one event. The backward tasks follow the forward tasks at once,
in the same event, unless a job with precedence needs one of their GPUs by then; if so, the group is
split again. And a job's position in the priority order changes only when it is placed or when one
of its iterations ends, when none of its tasks is ready; so a GPU's list of ready seats, kept in
order as seats join it, stays in order, and dispatch takes the first.
"""

from __future__ import annotations

from headway.domain.records import BACKWARD, FORWARD, NOBODY, Integers
from headway.engine.cycles import note_iteration
from headway.engine.groups import join_group, leave_group, new_group
from headway.engine.order import comes_before
from headway.engine.ready import make_message_ready, make_ready, note_end, record_task
from headway.engine.solo import end_solo, try_solo
from headway.engine.state import DONE, FUSED, GRAPH, SOLO, State
from headway.jit import inlined, part
from headway.network.placed_jobs import take_off_cluster


@part
def insert_in_order(s: State, entries: Integers, first: int, end: int, job: int) -> None:
    """Add a job to entries[first:end], which are in priority order."""
    index = end
    while index > first and comes_before(s, job, entries[index - 1]):
        entries[index] = entries[index - 1]
        index -= 1
    entries[index] = job


@part
def start_iteration(s: State, job: int, now_ns: int) -> None:
    """Make every forward task of a job ready, or what comes first in its graph."""
    if s.cluster.jobs[job].graph != NOBODY:
        s.graph_steps.start_iteration(s, job, now_ns)
        return
    first, count = s.cluster.jobs[job].first_seat, s.cluster.jobs[job].gpus
    s.job_progress[job].tasks_left = count
    for seat in range(first, first + count):
        make_ready(s, seat, FORWARD, now_ns)


@part
def end_iterations(s: State, now_ns: int) -> None:
    """End the iterations whose tasks and messages are all completed."""
    for i in range(s.tally[0].done):
        _end_iteration(s, s.scratch[i], now_ns)
    s.tally[0].done = 0


@part
def _end_iteration(s: State, job: int, now_ns: int) -> None:
    """Start the next iteration, or finish the job and free its GPUs."""
    jobs, tally = s.cluster.jobs, s.tally
    jobs[job].iterations_left -= 1
    jobs[job].remaining_service_ns -= jobs[job].service_ns * jobs[job].gpus
    tally[0].compute_tasks += s.job_progress[job].tasks_each
    if jobs[job].iterations_left > 0:
        jobs[job].priority_key = s.priority(s.cluster, job, s.rules[0].priority_parameter)
        start_iteration(s, job, now_ns)
        note_iteration(s, job, now_ns)
        return
    jobs[job].finish_ns = now_ns
    s.rare.forget_sets_beside(s, job, now_ns)
    s.rare.trust_again(s, job)
    take_off_cluster(s.cluster, job)
    index = s.job_progress[job].index
    tally[0].running -= 1
    last = s.running[tally[0].running]
    s.running[index] = last
    s.job_progress[last].index = index
    tally[0].finished += 1
    tally[0].left_cluster += 1


@inlined
def complete_group(s: State, group: int, now_ns: int) -> None:
    """End the tasks of a group: their GPUs are idle, their successors ready."""
    seats, tally = s.seat_progress, s.tally
    job, stage, seat = s.groups[group].job, s.groups[group].stage, s.groups[group].first_seat
    s.free_groups[tally[0].free_groups] = group
    tally[0].free_groups += 1
    if stage == GRAPH:
        s.graph_steps.end_tasks(s, group, now_ns)
        return
    if stage == SOLO:
        end_solo(s, job, now_ns)
    while seat != NOBODY:
        following = seats[seat].next
        leave_group(s, seat)
        if len(s.timeline) > 0:
            gpu, start_ns = seats[seat].gpu, s.groups[group].start_ns
            record_task(s, stage, job, gpu, NOBODY, NOBODY, start_ns, now_ns)
        if stage == FORWARD:
            make_ready(s, seat, BACKWARD, now_ns)
        else:
            seats[seat].stage = DONE
        seat = following
    if stage != FORWARD:
        s.job_progress[job].tasks_left -= s.groups[group].seats
        if s.job_progress[job].tasks_left == 0:
            if s.cluster.jobs[job].servers == 1 or stage == SOLO:
                note_end(s, job)
            else:
                message = s.cluster.jobs[job].first_message
                s.cluster.messages[message].unsent_bytes = s.cluster.messages[message].size_bytes
                make_message_ready(s, message)


@inlined
def dispatch(s: State, now_ns: int) -> None:
    """Step 5: every idle GPU starts the ready task of the first job in priority order."""
    jobs, gpus, seats, paces = s.cluster.jobs, s.gpu_progress, s.seat_progress, s.paces
    types, skips_solo = s.rules[0].types, s.rules[0].skips_solo
    for i in range(s.tally[0].idle):
        gpu = s.idle[i]
        gpus[gpu].listed = 0
        seat = gpus[gpu].ready
        if seat == NOBODY:
            continue
        gpus[gpu].ready = seats[seat].next
        job = seats[seat].job
        stage = seats[seat].stage
        if stage >= GRAPH:
            s.graph_steps.start_task(s, int(seat), now_ns)
            continue
        pace = job * types + gpus[gpu].type
        if stage == FORWARD:
            group, group_ns = paces[pace].forward_group, paces[pace].forward_group_ns
        else:
            group, group_ns = paces[pace].backward_group, paces[pace].backward_group_ns
        if group_ns == now_ns:
            join_group(s, group, seat)
        else:
            own_stage, end_ns = stage, now_ns + paces[pace].backward_ns
            if stage == FORWARD:
                end_ns = now_ns + paces[pace].forward_ns
                if s.rules[0].fuses != 0:
                    own_stage = FUSED
                    end_ns += paces[pace].backward_ns
            group = new_group(s, seat, own_stage, now_ns, end_ns)
            if stage == FORWARD:
                paces[pace].forward_group = group
                paces[pace].forward_group_ns = now_ns
            else:
                paces[pace].backward_group = group
                paces[pace].backward_group_ns = now_ns
        seats[seat].group = gpus[gpu].group = group
        if s.job_progress[job].inert != 0:
            s.rare.wake(s, int(job), now_ns)
        if skips_solo != 0 and stage == FORWARD and s.groups[group].seats == jobs[job].gpus:
            try_solo(s, int(job), group, now_ns)
    s.tally[0].idle = 0
