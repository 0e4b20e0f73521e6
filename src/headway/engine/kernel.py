"""The kernel: one instant after another, in the five steps of docs/model.md ("One instant").

It stops between instants when its budget is spent, so that Python can show progress, handle Ctrl-C
or empty the timeline, and resumes from the same state. Where it stops changes no result.
"""

from __future__ import annotations

from headway.domain.limits import HORIZON_NS
from headway.domain.records import IN_FLIGHT, NOBODY
from headway.engine.admission import admit, complete_message
from headway.engine.compute import complete_group, dispatch, end_iterations
from headway.engine.cycles import may_finish
from headway.engine.events import remove_first
from headway.engine.state import State
from headway.engine.watching import ask_about

BUDGET_SPENT, FINISHED, STALLED, OUT_OF_TIME, TIMELINE_FULL, BAD_PLACEMENT = range(6)
"""Why the kernel stopped."""


def advance(s: State, budget: int) -> int:
    """Run up to `budget` instants; return why it stopped."""
    jobs, messages, tally = s.cluster.jobs, s.cluster.messages, s.tally
    job_count, gpu_count, message_count = len(jobs), len(s.cluster.gpus), len(messages)
    rows_of_an_instant = gpu_count + message_count + len(s.cluster.seats)
    for _ in range(budget):
        if tally[0].finished == job_count:
            return FINISHED
        if len(s.timeline) > 0 and tally[0].timeline + rows_of_an_instant > len(s.timeline):
            return TIMELINE_FULL
        if tally[0].heap == 0 and tally[0].arrived == job_count:
            return STALLED
        now_ns = next_arrival_ns = HORIZON_NS + 1
        if tally[0].arrived < job_count:
            now_ns = next_arrival_ns = jobs[s.arrivals[tally[0].arrived]].arrival_ns
        if tally[0].heap > 0:
            now_ns = min(now_ns, s.heap[0].time_ns)
        if now_ns > HORIZON_NS:
            return OUT_OF_TIME
        if tally[0].skipped > 0 and tally[0].queue > 0 and may_finish(s, now_ns):
            # The queue may be tried at this instant, on the loads of all jobs.
            s.rare.bring_all_back(s, now_ns)
            continue
        s.cluster.system[0].now_ns = now_ns
        tally[0].instants += 1
        tally[0].front_ns = max(tally[0].front_ns, now_ns)

        for again in range(2):
            # 1. Completions; again after placement for jobs that it interrupted.
            while True:
                while tally[0].heap > 0 and s.heap[0].time_ns == now_ns:
                    event = s.heap[0].event
                    tally[0].heap = remove_first(s.heap, s.positions, tally[0].heap)
                    if event < gpu_count:
                        complete_group(s, event, now_ns)
                    elif event >= gpu_count + message_count:
                        anchor = event - gpu_count - message_count
                        s.rare.bring_back(s, anchor, now_ns, next_arrival_ns)
                    elif messages[event - gpu_count].state == IN_FLIGHT:
                        complete_message(s, event - gpu_count, now_ns)
                    else:
                        ask_about(s, event - gpu_count)
                if tally[0].done == 0:
                    break
                end_iterations(s, now_ns)
            if again == 1:
                break

            # 2. Arrivals.
            while (
                tally[0].arrived < job_count
                and jobs[s.arrivals[tally[0].arrived]].arrival_ns == now_ns
            ):
                s.rare.arrive(s, s.arrivals[tally[0].arrived])
                tally[0].arrived += 1

            # 3. Placement.
            if tally[0].fresh == 0 and (
                tally[0].queue == 0
                or (tally[0].left_cluster == 0 and s.rules[0].placement_steady != 0)
            ):
                break
            misplaced = s.rare.place(s, now_ns)
            if misplaced != NOBODY:
                tally[0].misplaced = misplaced
                return BAD_PLACEMENT
        tally[0].left_cluster = 0

        # 4. Admission.
        if tally[0].asked > 0 or s.traffic.counts[0].touched > 0:
            admit(s, now_ns)

        # 5. Dispatch.
        dispatch(s, now_ns)

        if tally[0].ended > 0:
            s.rare.look_at_sets(s, now_ns, next_arrival_ns)
    return BUDGET_SPENT
