"""Reading back the timelines that `headway simulate --timeline` wrote."""

from __future__ import annotations

import mmap
import os
import re
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from headway import jit
from headway.domain.errors import InputError
from headway.domain.records import NOBODY, Records, zeros
from headway.files import open_input
from headway.reports.perfetto import (
    CLUSTER,
    COUNTERS,
    HEADER,
    JOBS,
    LIVES,
    MESSAGES,
    NETWORK,
    QUEUED,
)
from headway.reports.window import Window
from headway.reports.wire import decoding
from headway.reports.wire.decoding import FOUND, POINT, SLICE, Steps, Tables

Integers = NDArray[np.int64]

_TRACK_NAME = (
    rf"{CLUSTER}|{NETWORK}|(?P<jobs>{JOBS})|(?P<messages>{MESSAGES})|(?P<counter>{'|'.join(COUNTERS)})"
    r"|server (?P<server>[0-9]{1,8})|GPU (?P<gpu>[0-9]{1,8})"
)


@dataclass(frozen=True, slots=True)
class Trace:
    """A timeline in memory."""

    source: str
    covers: Window
    """What was recorded: the whole run, or the window that was asked for."""
    servers: int
    gpus: int
    slices: Records
    """Tasks, a message once for each server: `start_ns`, `end_ns`, `track`, `kind`, and its name's
    place in the file."""
    lives: Records
    """Slices too: when each job was queued, if it was, and when it was running."""
    points: Records
    """Counters: `time_ns`, `track`, `value`."""
    gpu_of_track: Integers
    """A track's GPU, or NOBODY."""
    server_of_track: Integers
    """The server that a track belongs to, or NOBODY for those of the whole cluster."""
    counter_of_track: Integers
    """0 to 2 for the cluster's counters, 3 + S for that of server S, or NOBODY."""
    steps: Steps
    data: NDArray[np.uint8]

    def name(self, row: int) -> str:
        """Return the name of a slice, such as `7 #0 forward`."""
        return self._name(self.slices, row)

    def life(self, row: int) -> str:
        """Return the id of the job whose life a row of `lives` is a part of."""
        kind = int(self.lives.kind[row])
        return self._name(self.lives, row).removesuffix(f" {LIVES[kind - QUEUED]}")

    def _name(self, slices: Records, row: int) -> str:
        first, size = int(slices.name_at[row]), int(slices.name_bytes[row])
        return self.data[first : first + size].tobytes().decode(errors="replace")

    def job_id(self, row: int) -> str:
        """Return the id of the job whose task a slice is."""
        return self.name(row).rpartition(" #")[0]


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a timeline.

    Raises:
        InputError: The file cannot be read, is cut off, or is something else.
    """
    source = os.fspath(path)
    with open_input(path) as stream:
        data = _content(stream)
    try:
        return _parse(data, source)
    except InputError as error:
        raise error.at(source) from None


def _content(stream: BinaryIO) -> NDArray[np.uint8]:
    """Map a file into memory; read what cannot be mapped, such as a pipe."""
    try:
        return np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError):
        return np.frombuffer(stream.read(), np.uint8)


def _parse(data: NDArray[np.uint8], source: str) -> Trace:
    head = data[: len(HEADER)].tobytes()
    if head != HEADER:
        if len(head) == 0:
            raise InputError("is empty; a timeline comes from `headway simulate --timeline`.")
        if HEADER.startswith(head):
            raise InputError(f"is cut off after {len(head)} bytes.")
        raise InputError("is not a timeline from `headway simulate --timeline`.")
    found = zeros(1, FOUND)
    _decode(data, found, _tables(0, 0, 0), False)
    tables = _tables(int(found[0].slices), int(found[0].points), int(found[0].tracks))
    _decode(data, found, tables, True)

    gpu, server, counter, of_job = _tracks(data, tables)
    points = tables.points
    tasks = int(np.count_nonzero(tables.slices.kind < QUEUED))
    slices = tables.slices[:tasks].view(np.recarray)
    lives = tables.slices[tasks:].view(np.recarray)
    # The last packets hold every counter's value at the end.
    counters = np.count_nonzero(counter != NOBODY)
    complete = len(points) >= 2 * counters and points.time_ns[-counters] == points.time_ns[-1]
    if not complete or (tables.open_slice != NOBODY).any():
        raise InputError(f"is cut off after {len(data):,} bytes.")
    if (counter[points.track] == NOBODY).any() or (server[slices.track] == NOBODY).any():
        raise _not_ours()
    if (slices.kind >= QUEUED).any() or not of_job[lives.track].all():
        raise _not_ours()
    if points.time_ns[0] == points.time_ns[-1]:
        raise _not_ours()
    servers = int(server.max()) + 1
    steps = Steps(*(np.zeros(len(points), np.int64) for _ in Steps._fields))
    servers_with = np.zeros(int(points.value.max()) + 1, np.int64)
    servers_with[0] = servers
    values = np.zeros(len(COUNTERS) + servers, np.int64)
    count = jit.call(
        decoding.sweep, "the counting of messages", points, counter, values, servers_with, steps
    )
    return Trace(
        source=source,
        covers=Window(int(points.time_ns[0]), int(points.time_ns[-1])),
        servers=servers,
        gpus=int(gpu.max()) + 1,
        slices=slices,
        lives=lives,
        points=points,
        gpu_of_track=gpu,
        server_of_track=server,
        counter_of_track=counter,
        steps=Steps(*(column[:count] for column in steps)),
        data=data,
    )


def _not_ours() -> InputError:
    return InputError("its tracks are not those of a timeline from `headway simulate --timeline`.")


def _tables(slices: int, points: int, tracks: int) -> Tables:
    return Tables(
        slices=zeros(slices, SLICE),
        points=zeros(points, POINT),
        track_at=np.zeros(tracks, np.int64),
        track_bytes=np.zeros(tracks, np.int64),
        open_slice=np.full(tracks + 1, NOBODY, np.int64),
    )


def _decode(data: NDArray[np.uint8], found: Records, tables: Tables, fill: bool) -> None:
    """Count or read everything, or say where the file is wrong."""
    status = jit.call(decoding.decode, "the reader of timelines", data, found, tables, fill)
    if status == decoding.CUT_OFF:
        raise InputError(
            f"is cut off: the packet at byte {found[0].at:,} goes on beyond the end, "
            f"{len(data):,} bytes."
        )
    if status == decoding.BROKEN:
        raise InputError(
            f"is damaged: the packet at byte {found[0].at:,} is none that `headway simulate "
            "--timeline` writes."
        )


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Read a whole number; return it and where it ends."""
    value, shift = 0, 0
    while content[at] > 127:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | content[at] << shift, at + 1


def _fields(content: bytes) -> dict[int, int | bytes]:
    """Return the numbers and strings of a message by the numbers of their fields."""
    fields: dict[int, int | bytes] = {}
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        value, at = _varint(content, at)
        if tag & 7 == 2:
            fields[tag >> 3] = content[at : at + value]
            at += value
        else:
            fields[tag >> 3] = value
    return fields


def _tracks(
    data: NDArray[np.uint8], tables: Tables
) -> tuple[Integers, Integers, Integers, NDArray[np.bool_]]:
    """Return each track's GPU, server and counter, or NOBODY, and whether it is a job's."""
    count = len(tables.open_slice)
    gpus, servers, counters = (np.full(count, NOBODY, np.int64) for _ in range(3))
    parents = np.zeros(count, np.int64)
    of_job = np.zeros(count, np.bool_)
    jobs = NOBODY
    for at, size in zip(tables.track_at.tolist(), tables.track_bytes.tolist(), strict=True):
        try:
            fields = _fields(data[at : at + size].tobytes())
            uuid, parent = int(fields[1]), int(fields.get(5, 0))
            name = "" if parent == jobs else bytes(fields[2]).decode()
            match = re.fullmatch(_TRACK_NAME, name)
        except (IndexError, KeyError, TypeError, ValueError):
            raise _not_ours() from None
        known = match is not None or parent == jobs
        if not known or not 0 < uuid < count or not 0 <= parent < count or parents[uuid]:
            raise _not_ours()
        parents[uuid] = parent
        if match is None:
            of_job[uuid] = True
            continue
        if match["jobs"] is not None:
            jobs = uuid
        elif match["counter"] is not None:
            counters[uuid] = COUNTERS.index(match["counter"])
        elif match["server"] is not None:
            servers[uuid] = int(match["server"])
        elif match["gpu"] is not None:
            gpus[uuid] = int(match["gpu"])
        elif match["messages"] is not None:
            counters[uuid] = len(COUNTERS)
    of_server = np.flatnonzero(servers != NOBODY)
    inherited = (servers == NOBODY) & (servers[parents] != NOBODY)
    servers[inherited] = servers[parents[inherited]]
    counters[counters == len(COUNTERS)] += servers[counters == len(COUNTERS)]
    for numbers, number_of in (
        (servers[of_server], len(of_server)),
        (gpus[gpus != NOBODY], np.count_nonzero(gpus != NOBODY)),
        (counters[counters != NOBODY], len(COUNTERS) + len(of_server)),
    ):
        if number_of == 0 or sorted(numbers.tolist()) != list(range(int(number_of))):
            raise _not_ours()
    per_server, odd = divmod(np.count_nonzero(gpus != NOBODY), len(of_server))
    if odd or (servers != gpus // per_server)[gpus != NOBODY].any():
        raise _not_ours()
    return gpus, servers, counters, of_job
