"""Snapshots: the state of a set of jobs relative to the present, to find out whether it repeats."""

from __future__ import annotations

from headway.domain.records import IN_FLIGHT, NOBODY, NOT_READY
from headway.engine.state import State
from headway.jit import part


@part
def _message_end_ns(s: State, message: int) -> int:
    """Return when a message in flight ends."""
    return int(s.heap[s.positions[len(s.cluster.gpus) + message]].time_ns)


@part
def take_snapshot(s: State, anchor: int, now_ns: int) -> None:
    """Copy a set's state relative to now."""
    jobs, messages, seats = s.cluster.jobs, s.cluster.messages, s.seat_progress
    s.cycles[anchor].since_ns = now_ns
    job = anchor
    while job != NOBODY:
        count_from_here(s, job)
        s.job_snapshots[job].tasks_left = s.job_progress[job].tasks_left
        first = jobs[job].first_message
        for message in range(first, first + jobs[job].messages):
            copy, record = s.message_snapshots[message], messages[message]
            copy.state = record.state
            copy.unsent_bytes = record.unsent_bytes
            copy.bytes = record.bytes
            copy.k = record.k
            if record.state == IN_FLIGHT:
                copy.age_ns = now_ns - record.start_ns
                copy.since_ns = record.since_ns - now_ns
                copy.end_ns = _message_end_ns(s, message) - now_ns
                copy.bytes_left = record.bytes_left
                copy.cost_ns_per_byte = record.cost_ns_per_byte
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            s.seat_snapshots[seat].stage = seats[seat].stage
            s.seat_snapshots[seat].age_ns = NOBODY
            if seats[seat].group != NOBODY:
                s.seat_snapshots[seat].age_ns = now_ns - s.groups[seats[seat].group].start_ns
        if jobs[job].graph != NOBODY:
            first = s.job_progress[job].first_left
            for node in range(first, first + s.graphs.graphs[jobs[job].graph].nodes):
                s.graphs.left_snapshots[node] = s.graphs.left[node]
        job = s.job_progress[job].next_member


@part
def count_from_here(s: State, job: int) -> None:
    """Count a member's progress from the present."""
    s.job_snapshots[job].iterations_left = s.cluster.jobs[job].iterations_left
    s.job_snapshots[job].priority_key = s.cluster.jobs[job].priority_key
    s.job_snapshots[job].sent = s.job_progress[job].sent
    s.job_snapshots[job].ended_ns = s.job_progress[job].ended_ns


@part
def is_alike(s: State, anchor: int, now_ns: int) -> bool:
    """Whether a set is in the state of its snapshot, relative to now."""
    jobs, seats = s.cluster.jobs, s.seat_progress
    job = anchor
    while job != NOBODY:
        if s.job_snapshots[job].tasks_left != s.job_progress[job].tasks_left:
            return False
        first = jobs[job].first_message
        for message in range(first, first + jobs[job].messages):
            if not _message_is_alike(s, message, now_ns):
                return False
        for seat in range(jobs[job].first_seat, jobs[job].first_seat + jobs[job].gpus):
            age_ns = NOBODY
            if seats[seat].group != NOBODY:
                age_ns = now_ns - s.groups[seats[seat].group].start_ns
            copy = s.seat_snapshots[seat]
            if copy.age_ns != age_ns or copy.stage != seats[seat].stage:
                return False
        if jobs[job].graph != NOBODY:
            first = s.job_progress[job].first_left
            for node in range(first, first + s.graphs.graphs[jobs[job].graph].nodes):
                if s.graphs.left_snapshots[node] != s.graphs.left[node]:
                    return False
        job = s.job_progress[job].next_member
    return True


@part
def _message_is_alike(s: State, message: int, now_ns: int) -> bool:
    """Whether a message is in the state of its snapshot, relative to now."""
    copy, record = s.message_snapshots[message], s.cluster.messages[message]
    if copy.state != record.state or copy.k != record.k:
        return False
    if record.state == IN_FLIGHT and (
        copy.age_ns != now_ns - record.start_ns
        or copy.since_ns != record.since_ns - now_ns
        or copy.end_ns != _message_end_ns(s, message) - now_ns
        or copy.bytes_left != record.bytes_left
        or copy.cost_ns_per_byte != record.cost_ns_per_byte
    ):
        return False
    return bool(
        record.state == NOT_READY
        or (copy.unsent_bytes == record.unsent_bytes and copy.bytes == record.bytes)
    )
