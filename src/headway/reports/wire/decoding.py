"""Packets back to tasks and counters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.domain.limits import MOST_GPUS
from headway.domain.records import NOBODY, Records
from headway.jit import part
from headway.reports.wire.encoding import COUNTER, SLICE_BEGIN, SLICE_END, Bytes

DONE, CUT_OFF, BROKEN = range(3)
"""How reading ended."""

KINDS = 5
"""Forward, backward, all-reduce, queued, running."""

_VARINT, _EIGHT_BYTES, _PIECE, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types."""

SLICE = np.dtype(
    [
        ("start_ns", np.int64),
        ("end_ns", np.int64),
        ("track", np.int64),
        ("kind", np.int64),
        ("name_at", np.int64),  # in the file
        ("name_bytes", np.int64),
    ],
    align=True,
)

POINT = np.dtype([("time_ns", np.int64), ("track", np.int64), ("value", np.int64)], align=True)
"""A counter's value from an instant on."""

FOUND = np.dtype(
    [
        ("at", np.int64),  # where the packet begins that is being read
        ("slices", np.int64),
        ("points", np.int64),
        ("tracks", np.int64),
    ],
    align=True,
)
"""One record: how many there are of each."""


class Tables(NamedTuple):
    """What a trace holds; without rows it is only counted."""

    slices: Records
    points: Records
    track_at: NDArray[np.int64]
    track_bytes: NDArray[np.int64]
    """Where the descriptions of tracks are in the file."""
    open_slice: NDArray[np.int64]
    """The slice that has begun on each track, or NOBODY."""


@part
def _take(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read a varint of at most 63 bits; return it and where it ends, or NOBODY."""
    value, shift = 0, 0
    while at < end and shift < 63:
        byte = int(data[at])
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    return 0, NOBODY


@part
def _take_field(data: Bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Read a field: its number, its value or length, where its content begins, where it ends."""
    tag, at = _take(data, at, end)
    if at == NOBODY:
        return 0, 0, 0, NOBODY
    wire = tag & 7
    if wire == _VARINT:
        value, after = _take(data, at, end)
        return tag >> 3, value, at, after
    if wire == _PIECE:
        size, at = _take(data, at, end)
        if at == NOBODY or size > end - at:
            return 0, 0, 0, NOBODY
        return tag >> 3, size, at, at + size
    size = 8 if wire == _EIGHT_BYTES else 4
    if wire not in (_EIGHT_BYTES, _FOUR_BYTES) or size > end - at:
        return 0, 0, 0, NOBODY
    return tag >> 3, 0, at, at + size


def decode(data: Bytes, found: Records, tables: Tables, fill: bool) -> int:
    """Count what a trace holds or, with `fill`, put it into the tables; return how it ended."""
    found[0].slices = found[0].points = found[0].tracks = 0
    at, last_ns = 0, 0
    while at < len(data):
        found[0].at = at
        tag, size_at = _take(data, at, len(data))
        size, packet = _take(data, max(size_at, 0), len(data))
        if size_at != NOBODY and tag != 10:
            return BROKEN
        if NOBODY in (size_at, packet):
            return CUT_OFF if len(data) - at < 10 else BROKEN
        if size > len(data) - packet:
            return CUT_OFF
        at = packet + size
        time_ns, event, event_end = NOBODY, NOBODY, NOBODY
        while packet < at:
            number, value, content, packet = _take_field(data, packet, at)
            if packet == NOBODY:
                return BROKEN
            if number == 8:
                time_ns = value
            elif number == 11:
                event, event_end = content, packet
            elif number == 60:
                if fill:
                    if found[0].tracks >= len(tables.track_at):
                        return BROKEN
                    tables.track_at[found[0].tracks] = content
                    tables.track_bytes[found[0].tracks] = packet - content
                found[0].tracks += 1
        if event == NOBODY:
            continue
        kind, track, category, amount, name_at, name_bytes = 0, 0, 0, 0, 0, 0
        while event < event_end:
            number, value, content, event = _take_field(data, event, event_end)
            if event == NOBODY:
                return BROKEN
            if number == 9:
                kind = value
            elif number == 11:
                track = value
            elif number == 3:
                category = value
            elif number == 23:
                name_at, name_bytes = content, value
            elif number == 30:
                amount = value
        if time_ns == NOBODY:
            return BROKEN
        if fill and not 0 < track < len(tables.open_slice):
            return BROKEN
        if kind == SLICE_BEGIN:
            if fill:
                if tables.open_slice[track] != NOBODY or not 0 < category <= KINDS:
                    return BROKEN
                index = found[0].slices
                if index >= len(tables.slices):
                    return BROKEN
                tables.open_slice[track] = index
                tables.slices[index].start_ns = time_ns
                tables.slices[index].track = track
                tables.slices[index].kind = category - 1
                tables.slices[index].name_at = name_at
                tables.slices[index].name_bytes = name_bytes
            found[0].slices += 1
        elif kind == SLICE_END:
            if fill:
                index = tables.open_slice[track]
                if index == NOBODY or tables.slices[index].start_ns > time_ns:
                    return BROKEN
                tables.slices[index].end_ns = time_ns
                tables.open_slice[track] = NOBODY
        elif kind == COUNTER:
            if fill:
                index = found[0].points
                if index >= len(tables.points) or time_ns < last_ns or amount > MOST_GPUS:
                    return BROKEN
                last_ns = time_ns
                tables.points[index].time_ns = time_ns
                tables.points[index].track = track
                tables.points[index].value = amount
            found[0].points += 1
        else:
            return BROKEN
    return DONE


@part
def _hash(data: Bytes, first: int, end: int) -> np.uint64:
    """Return the hash of some bytes: FNV-1a with 64 bits."""
    value = np.uint64(14695981039346656037)
    for place in range(first, end):
        value = (value ^ np.uint64(data[place])) * np.uint64(1099511628211)
    return value


def hash_names(
    data: Bytes, first: NDArray[np.int64], size: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> int:
    """Hash pieces of a file; return how many."""
    for place in range(len(first)):
        hashes[place] = _hash(data, first[place], first[place] + size[place])
    return len(first)


def read_names(
    data: Bytes, slices: Records, hashes: NDArray[np.uint64], iterations: NDArray[np.int64]
) -> int:
    """Find in each task's name, such as `ID #7 forward`, the hash of the id, and the iteration.

    Return how many there are.
    """
    for row in range(len(slices)):
        first = slices[row].name_at
        end = first + slices[row].name_bytes
        mark = end - 1
        while mark > first and data[mark] != 35:
            mark -= 1
        hashes[row] = _hash(data, first, mark - 1)
        iteration, place = 0, mark + 1
        while place < end and 48 <= data[place] <= 57 and iteration < 10**15:
            iteration = 10 * iteration + int(data[place]) - 48
            place += 1
        iterations[row] = iteration
    return len(slices)


class Steps(NamedTuple):
    """All counters at every instant at which one changes, in the order of time."""

    time_ns: NDArray[np.int64]
    queued: NDArray[np.int64]
    running: NDArray[np.int64]
    waiting: NDArray[np.int64]
    most: NDArray[np.int64]
    """The most messages on one server."""


def sweep(
    points: Records,
    counter_of_track: NDArray[np.int64],
    values: NDArray[np.int64],
    servers_with: NDArray[np.int64],
    steps: Steps,
) -> int:
    """Fill in the steps from the points, which are in the order of time; return their number.

    `values` holds the three counters of the cluster and then the servers'; `servers_with[k]` is the
    number of servers with k messages.
    """
    count, most = 0, 0
    for row in range(len(points)):
        counter = counter_of_track[points[row].track]
        value = points[row].value
        if counter >= 3:
            servers_with[values[counter]] -= 1
            servers_with[value] += 1
            most = max(most, value)
            while most > 0 and servers_with[most] == 0:
                most -= 1
        values[counter] = value
        if row + 1 < len(points) and points[row + 1].time_ns == points[row].time_ns:
            continue
        steps.time_ns[count] = points[row].time_ns
        steps.queued[count] = values[0]
        steps.running[count] = values[1]
        steps.waiting[count] = values[2]
        steps.most[count] = most
        count += 1
    return count
