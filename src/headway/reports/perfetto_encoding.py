"""The compiled encoder of Perfetto traces: tasks and counters to protobuf packets.

A trace is a sequence of packets. Every number is a varint (seven bits a byte, lowest first), and
every message or string is preceded by its length. The field numbers are those of Perfetto's
`trace.proto`, `trace_packet.proto`, `track_event.proto` and `track_descriptor.proto`.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from headway.domain.records import COMMUNICATION, NOBODY, TASK, Records
from headway.jit import View, part

SEQUENCE = 1
NEEDS_INTERNED = 2
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4
"""Perfetto's constants: the id of our packet sequence, its flag, the types of a track event."""

PACKET = 0x0A
TIMESTAMP, SEQUENCE_ID, TRACK_EVENT, SEQUENCE_FLAGS = 0x40, 0x50, 0x5A, 0x68
TYPE, TRACK, CATEGORY = 0x48, 0x58, 0x18
NAME, NAME_MORE = 0xBA, 0x01
VALUE, VALUE_MORE = 0xF0, 0x01
"""Tags (field number and wire type) of a trace, a packet and a track event; two have two bytes."""

EVENT_BYTES = 48
SLICE_BYTES = 160
"""Upper bounds: the size of a counter event, and of a slice without its job's id and its label."""

DONE, BUFFER_FULL, LANES_FULL = range(3)
"""Why an encoder stopped."""

Bytes = NDArray[np.uint8]

TALLY = np.dtype(
    [
        ("from_ns", np.int64),
        ("to_ns", np.int64),
        ("first_gpu", np.int64),
        ("next_track", np.int64),
        ("row", np.int64),
        ("bytes", np.int64),
    ],
    align=True,
)
"""The encoder's constants and its progress, in one record."""


class Encoder(View):
    """The state of the encoder of tasks."""

    tally: Annotated[Records, TALLY]
    texts: Bytes
    """Each job's `ID #`, then labels such as ` forward`."""
    first_text: NDArray[np.int64]
    """Where each of these begins in `texts`, and where the last ends."""
    lane_tracks: NDArray[np.int64]
    lane_ends_ns: NDArray[np.int64]
    lanes: NDArray[np.int64]
    """The lanes of each server: their tracks, the ends of their last messages, their number.

    Lane i of server S, of N, is number i * N + S.
    """


class Batch(View):
    """Tasks with what is written of each: its label, its category, its servers if a message."""

    tasks: Annotated[Records, TASK]
    label: NDArray[np.int64]
    """The index in `first_text`."""
    category: NDArray[np.int64]
    servers: NDArray[np.int64]
    first_server: NDArray[np.int64]
    server_count: NDArray[np.int64]
    """The servers of row i are servers[first_server[i] + j] for j < server_count[i]."""


@part
def _put(buffer: Bytes, at: int, value: int) -> int:
    """Write a varint of 0 or more."""
    while value > 127:
        buffer[at] = value & 127 | 128
        value >>= 7
        at += 1
    buffer[at] = value
    return at + 1


@part
def _size(value: int) -> int:
    """Return the length of a varint of 0 or more."""
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


@part
def _put_head(buffer: Bytes, at: int, time_ns: int, event_bytes: int, interned: bool) -> int:
    """Write a packet up to the content of its track event."""
    size = 1 + _size(time_ns) + 2 + 1 + _size(event_bytes) + event_bytes
    if interned:
        size += 2
    buffer[at] = PACKET
    at = _put(buffer, at + 1, size)
    buffer[at] = TIMESTAMP
    at = _put(buffer, at + 1, time_ns)
    buffer[at] = SEQUENCE_ID
    buffer[at + 1] = SEQUENCE
    at += 2
    if interned:
        buffer[at] = SEQUENCE_FLAGS
        buffer[at + 1] = NEEDS_INTERNED
        at += 2
    buffer[at] = TRACK_EVENT
    return _put(buffer, at + 1, event_bytes)


@part
def _put_type(buffer: Bytes, at: int, kind: int, track: int) -> int:
    """Write the two fields common to all track events."""
    buffer[at] = TYPE
    buffer[at + 1] = kind
    buffer[at + 2] = TRACK
    return _put(buffer, at + 3, track)


@part
def _put_text(buffer: Bytes, at: int, texts: Bytes, first: int, last: int) -> int:
    """Copy a piece of text."""
    for index in range(first, last):
        buffer[at] = texts[index]
        at += 1
    return at


@part
def _put_slice(
    buffer: Bytes,
    at: int,
    texts: Bytes,
    first_text: NDArray[np.int64],
    task: Records,
    label: int,
    category: int,
    track: int,
) -> int:
    """Write a task as the begin and the end of a slice on a track."""
    digits, rest = 1, task.iteration
    while rest > 9:
        rest //= 10
        digits += 1
    job = task.job
    name_bytes = first_text[job + 1] - first_text[job] + digits
    name_bytes += first_text[label + 1] - first_text[label]
    event_bytes = 3 + _size(track) + 2 + 2 + _size(name_bytes) + name_bytes
    at = _put_head(buffer, at, task.start_ns, event_bytes, True)
    at = _put_type(buffer, at, SLICE_BEGIN, track)
    buffer[at] = CATEGORY
    buffer[at + 1] = category
    buffer[at + 2] = NAME
    buffer[at + 3] = NAME_MORE
    at = _put(buffer, at + 4, name_bytes)
    at = _put_text(buffer, at, texts, first_text[job], first_text[job + 1])
    rest = task.iteration
    for index in range(at + digits - 1, at - 1, -1):
        buffer[index] = 48 + rest % 10
        rest //= 10
    at = _put_text(buffer, at + digits, texts, first_text[label], first_text[label + 1])
    at = _put_head(buffer, at, task.end_ns, 3 + _size(track), False)
    return _put_type(buffer, at, SLICE_END, track)


@part
def _lane(e: Encoder, server: int, start_ns: int, end_ns: int) -> int:
    """Return the track for a message: the free lane that was busy last, or a new lane.

    Messages come in the order of their ends, so this uses the fewest lanes possible.
    """
    best = NOBODY
    for lane in range(e.lanes[server]):
        number = lane * len(e.lanes) + server
        ended_ns = e.lane_ends_ns[number]
        if ended_ns <= start_ns and (best == NOBODY or ended_ns > e.lane_ends_ns[best]):
            best = number
    if best == NOBODY:
        best = e.lanes[server] * len(e.lanes) + server
        e.lanes[server] += 1
        e.lane_tracks[best] = e.tally[0].next_track
        e.tally[0].next_track += 1
    e.lane_ends_ns[best] = end_ns
    return int(e.lane_tracks[best])


def encode_tasks(e: Encoder, batch: Batch, buffer: Bytes) -> int:
    """Write tasks from row `tally.row` on into the buffer; return why it stopped.

    The track of a GPU is its number plus `tally.first_gpu`. Tasks outside the window are not
    written.
    """
    tally, texts, first_text = e.tally, e.texts, e.first_text
    from_ns, to_ns = tally[0].from_ns, tally[0].to_ns
    most_lanes = len(e.lane_tracks) // len(e.lanes)
    at, row = 0, tally[0].row
    while row < len(batch.tasks):
        task = batch.tasks[row]
        if task.start_ns >= to_ns or task.end_ns <= from_ns:
            row += 1
            continue
        label, category = batch.label[row], batch.category[row]
        slice_bytes = SLICE_BYTES + first_text[task.job + 1] - first_text[task.job]
        slice_bytes += first_text[label + 1] - first_text[label]
        if at + max(1, batch.server_count[row]) * slice_bytes > len(buffer):
            break
        if task.kind == COMMUNICATION:
            first = batch.first_server[row]
            last = first + batch.server_count[row]
            crowded = False
            for index in range(first, last):
                crowded = crowded or e.lanes[batch.servers[index]] == most_lanes
            if crowded:
                tally[0].row, tally[0].bytes = row, at
                return LANES_FULL
            for index in range(first, last):
                track = _lane(e, batch.servers[index], task.start_ns, task.end_ns)
                at = _put_slice(buffer, at, texts, first_text, task, label, category, track)
        else:
            track = tally[0].first_gpu + task.gpu
            at = _put_slice(buffer, at, texts, first_text, task, label, category, track)
        row += 1
    tally[0].row, tally[0].bytes = row, at
    return DONE if row == len(batch.tasks) else BUFFER_FULL


class CounterEncoder(View):
    """The state of the encoder of counters: their changes in the order of time, their values."""

    time_ns: NDArray[np.int64]
    counter: NDArray[np.int64]
    change: NDArray[np.int64]
    values: NDArray[np.int64]
    written: NDArray[np.int64]
    """The last value written of each counter."""
    touched: NDArray[np.int64]
    listed: NDArray[np.int64]
    """The counters that change at the current instant, and for each counter 1 if it does."""


def encode_counters(c: CounterEncoder, tally: Records, first_track: int, buffer: Bytes) -> int:
    """Write the changes from row `tally.row` on; return why it stopped.

    The track of a counter is its number plus `first_track`. A counter that returns to its value
    within an instant is not written.
    """
    at, row = 0, tally[0].row
    count = len(c.time_ns)
    while row < count and at + len(c.values) * EVENT_BYTES <= len(buffer):
        now_ns = c.time_ns[row]
        touched = 0
        while row < count and c.time_ns[row] == now_ns:
            counter = c.counter[row]
            if c.listed[counter] == 0:
                c.listed[counter] = 1
                c.touched[touched] = counter
                touched += 1
            c.values[counter] += c.change[row]
            row += 1
        for index in range(touched):
            counter = c.touched[index]
            c.listed[counter] = 0
            value = c.values[counter]
            if value != c.written[counter]:
                c.written[counter] = value
                track = first_track + counter
                at = _put_head(buffer, at, now_ns, 3 + _size(track) + 2 + _size(value), False)
                at = _put_type(buffer, at, COUNTER, track)
                buffer[at] = VALUE
                buffer[at + 1] = VALUE_MORE
                at = _put(buffer, at + 2, value)
    tally[0].row, tally[0].bytes = row, at
    return DONE if row == count else BUFFER_FULL
