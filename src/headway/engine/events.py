"""The event queue: a binary heap of (time, event) whose entries can be moved.

`places[event]` is the event's place in the heap, or NOBODY. Events at one time leave in no
particular order: the kernel takes all of an instant's before it decides anything.
"""

from __future__ import annotations

from headway.domain.records import NOBODY, Records
from headway.engine.state import Integers
from headway.jit import inlined, part


@inlined
def _sift_up(heap: Records, places: Integers, place: int, time_ns: int, event: int) -> None:
    while place > 0:
        parent = (place - 1) >> 1
        if heap[parent].time_ns <= time_ns:
            break
        heap[place] = heap[parent]
        places[heap[place].event] = place
        place = parent
    heap[place].time_ns = time_ns
    heap[place].event = event
    places[event] = place


@inlined
def _sift_down(
    heap: Records, places: Integers, size: int, place: int, time_ns: int, event: int
) -> None:
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1].time_ns < heap[child].time_ns:
            child += 1
        if heap[child].time_ns >= time_ns:
            break
        heap[place] = heap[child]
        places[heap[place].event] = place
        place = child
    heap[place].time_ns = time_ns
    heap[place].event = event
    places[event] = place


@inlined
def schedule(heap: Records, places: Integers, size: int, event: int, time_ns: int) -> int:
    """Put an event at a time, moving it if it is queued; return the new size."""
    place = places[event]
    sooner = True
    if place == NOBODY:
        place = size
        size += 1
    else:
        sooner = time_ns < heap[place].time_ns
    if sooner:
        _sift_up(heap, places, place, time_ns, event)
    else:
        _sift_down(heap, places, size, place, time_ns, event)
    return size


@inlined
def remove_first(heap: Records, places: Integers, size: int) -> int:
    """Drop the earliest event; return the new size."""
    places[heap[0].event] = NOBODY
    size -= 1
    if size > 0:
        _sift_down(heap, places, size, 0, heap[size].time_ns, heap[size].event)
    return size


@inlined
def cancel(heap: Records, places: Integers, size: int, event: int) -> int:
    """Drop an event if it is queued; return the new size."""
    place = places[event]
    if place == NOBODY:
        return size
    _sift_up(heap, places, place, -1, event)
    return remove_first(heap, places, size)


@part
def schedule_rarely(heap: Records, places: Integers, size: int, event: int, time_ns: int) -> int:
    """Do as `schedule`, by a call: less to compile where speed does not matter."""
    return schedule(heap, places, size, event, time_ns)


@part
def cancel_rarely(heap: Records, places: Integers, size: int, event: int) -> int:
    """Do as `cancel`, by a call."""
    return cancel(heap, places, size, event)
