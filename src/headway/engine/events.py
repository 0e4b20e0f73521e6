"""The event queue: a binary heap of (time, event) whose entries can be moved.

`positions[event]` is the event's index in the heap, or NOBODY. Events at one time leave in no
particular order: the kernel takes all of an instant's before it decides anything.
"""

from __future__ import annotations

from headway.domain.records import NOBODY, Integers, Records
from headway.jit import inlined, part


@inlined
def _sift_up(heap: Records, positions: Integers, index: int, time_ns: int, event: int) -> None:
    while index > 0:
        parent = (index - 1) >> 1
        if heap[parent].time_ns <= time_ns:
            break
        heap[index] = heap[parent]
        positions[heap[index].event] = index
        index = parent
    heap[index].time_ns = time_ns
    heap[index].event = event
    positions[event] = index


@inlined
def _sift_down(
    heap: Records, positions: Integers, size: int, index: int, time_ns: int, event: int
) -> None:
    while True:
        child = 2 * index + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1].time_ns < heap[child].time_ns:
            child += 1
        if heap[child].time_ns >= time_ns:
            break
        heap[index] = heap[child]
        positions[heap[index].event] = index
        index = child
    heap[index].time_ns = time_ns
    heap[index].event = event
    positions[event] = index


@inlined
def schedule(heap: Records, positions: Integers, size: int, event: int, time_ns: int) -> int:
    """Schedule an event, moving it if it is queued already; return the new size."""
    index = positions[event]
    sooner = True
    if index == NOBODY:
        index = size
        size += 1
    else:
        sooner = time_ns < heap[index].time_ns
    if sooner:
        _sift_up(heap, positions, index, time_ns, event)
    else:
        _sift_down(heap, positions, size, index, time_ns, event)
    return size


@inlined
def remove_first(heap: Records, positions: Integers, size: int) -> int:
    """Drop the earliest event; return the new size."""
    positions[heap[0].event] = NOBODY
    size -= 1
    if size > 0:
        _sift_down(heap, positions, size, 0, heap[size].time_ns, heap[size].event)
    return size


@part
def cancel(heap: Records, positions: Integers, size: int, event: int) -> int:
    """Drop an event if it is queued; return the new size."""
    index = positions[event]
    if index == NOBODY:
        return size
    _sift_up(heap, positions, index, -1, event)
    return remove_first(heap, positions, size)


@part
def schedule_rarely(heap: Records, positions: Integers, size: int, event: int, time_ns: int) -> int:
    """`schedule`, not inlined: less to compile where speed does not matter."""
    return schedule(heap, positions, size, event, time_ns)


@part
def cancel_rarely(heap: Records, positions: Integers, size: int, event: int) -> int:
    """`cancel`, not inlined."""
    return cancel(heap, positions, size, event)
