"""Groups of compute tasks: how a seat joins one on its GPU, and leaves it."""

from __future__ import annotations

from headway.domain.records import NOBODY
from headway.engine.events import schedule
from headway.engine.state import State
from headway.jit import inlined


@inlined
def join_group(s: State, group: int, seat: int) -> None:
    """Add a seat to a group that starts at this instant."""
    s.seat_progress[seat].next = s.groups[group].first_seat
    s.groups[group].first_seat = seat
    s.groups[group].seats += 1


@inlined
def new_group(s: State, seat: int, stage: int, now_ns: int, end_ns: int) -> int:
    """Start a group with one seat, and schedule its end; return its number."""
    s.tally[0].free_groups -= 1
    group = s.free_groups[s.tally[0].free_groups]
    s.seat_progress[seat].next = NOBODY
    s.groups[group].first_seat = seat
    s.groups[group].seats = 1
    s.groups[group].job = s.seat_progress[seat].job
    s.groups[group].stage = stage
    s.groups[group].start_ns = now_ns
    s.groups[group].end_ns = end_ns
    s.tally[0].heap = schedule(s.heap, s.positions, s.tally[0].heap, group, end_ns)
    return int(group)


@inlined
def leave_group(s: State, seat: int) -> None:
    """Take a seat out of its group, whose tasks have ended: dispatch will look at its GPU."""
    gpu = s.seat_progress[seat].gpu
    s.seat_progress[seat].group = NOBODY
    s.gpu_progress[gpu].group = NOBODY
    s.gpu_progress[gpu].listed = 1
    s.idle[s.tally[0].idle] = gpu
    s.tally[0].idle += 1
