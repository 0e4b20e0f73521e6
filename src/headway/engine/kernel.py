"""The kernel: one instant after another, in the five steps of docs/model.md ("One instant").

It stops between instants when its budget is spent, so that Python can show progress, take Ctrl-C
or empty the timeline, and goes on from the same state. Where it stops changes no result.
"""

from __future__ import annotations

from headway.domain.limits import HORIZON_NS
from headway.domain.records import NOBODY
from headway.engine.admitting import admit, complete_message, wake_up
from headway.engine.computing import complete_group, dispatch
from headway.engine.events import remove_first
from headway.engine.placing import enqueue, place
from headway.engine.state import Rule, State

BUDGET_SPENT, FINISHED, STALLED, OUT_OF_TIME, TIMELINE_FULL, BAD_PLACEMENT = range(6)
"""Why the kernel stopped."""


def advance(s: State, placement: Rule, priority: Rule, admission: Rule, budget: int) -> int:
    """Run up to `budget` instants; return why it stopped."""
    jobs, tally = s.cluster.jobs, s.tally
    job_count, gpu_count = len(jobs), len(s.cluster.gpus)
    for _ in range(budget):
        if tally[0].finished == job_count:
            return FINISHED
        if len(s.timeline) > 0 and tally[0].timeline + gpu_count + job_count > len(s.timeline):
            return TIMELINE_FULL
        if tally[0].heap == 0 and tally[0].arrived == job_count:
            return STALLED
        now_ns = HORIZON_NS + 1
        if tally[0].heap > 0:
            now_ns = s.heap[0].time_ns
        if tally[0].arrived < job_count:
            now_ns = min(now_ns, jobs[s.arrivals[tally[0].arrived]].arrival_ns)
        if now_ns > HORIZON_NS:
            return OUT_OF_TIME
        s.cluster.system[0].now_ns = now_ns

        # 1. Completions.
        while tally[0].heap > 0 and s.heap[0].time_ns == now_ns:
            event = s.heap[0].event
            tally[0].heap = remove_first(s.heap, s.places, tally[0].heap)
            if event < gpu_count:
                complete_group(s, event, now_ns, priority)
            elif jobs[event - gpu_count].message_k > 0:
                complete_message(s, event - gpu_count, now_ns, priority)
            else:
                wake_up(s, event - gpu_count)

        # 2. Arrivals.
        while (
            tally[0].arrived < job_count and jobs[s.arrivals[tally[0].arrived]].arrival_ns == now_ns
        ):
            enqueue(s, s.arrivals[tally[0].arrived], priority)
            tally[0].arrived += 1

        # 3. Placement.
        if tally[0].queue > 0:
            culprit = place(s, now_ns, placement, priority)
            if culprit != NOBODY:
                tally[0].culprit = culprit
                return BAD_PLACEMENT
        tally[0].left_cluster = 0

        # 4. Admission.
        if tally[0].waiting > 0 or tally[0].left_network_mask != 0:
            admit(s, now_ns, admission)

        # 5. Dispatch.
        dispatch(s, now_ns)
    return BUDGET_SPENT
