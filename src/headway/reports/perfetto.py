"""Timelines for Perfetto (https://ui.perfetto.dev), written while the engine runs.

    with perfetto_timeline("run.pftrace", workload, cluster) as sink:
        sink.finish(simulate(workload, cluster, timeline=sink))

Below a track `cluster` stand the counters `queued jobs`, `all-reduces running` and `all-reduces
waiting`, and for each server a track with its counter `messages`, its `network` and its GPUs.
A task is a slice such as `JOB #0 forward`, with iterations counted from 0; an all-reduce is a slice
on the network of each of its job's servers. Last stands a track `jobs`, with a track for each job
and on it a slice `JOB queued`, from its arrival, and a slice `JOB running`, from its placement on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headway import jit
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.records import MESSAGE, Records, zeros
from headway.domain.workload import Workload
from headway.files import open_output
from headway.reports.window import Window
from headway.reports.wire import encoding
from headway.reports.wire.encoding import SENT, TALLY, Changes, Encoder
from headway.results.schema import Result

KINDS = ("forward", "backward", "all-reduce")
"""The names of the kinds of task; kind k is the category k + 1 of its slices."""

LIVES = ("queued", "running")
QUEUED, RUNNING = len(KINDS), len(KINDS) + 1
"""The two parts of a job's life, and what kinds their slices are."""

CLUSTER, NETWORK, MESSAGES, JOBS = "cluster", "network", "messages", "jobs"
COUNTERS = ("queued jobs", "all-reduces running", "all-reduces waiting")
"""Names of tracks."""

_BUFFER_BYTES = 1 << 22
_FIRST_LANES = 2
_EXPLICIT = 3
_STATE_CLEARED = 1


def _varint(value: int) -> bytes:
    """Encode a whole number of 0 or more."""
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    content.append(value)
    return bytes(content)


def _field(number: int, value: int | bytes | str) -> bytes:
    """Encode one field of a message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _track(uuid: int, name: str, parent: int = 0, rank: int = 0, extra: bytes = b"") -> bytes:
    """Encode the packet that describes a track; siblings stand in the order of their ranks."""
    content = _field(1, uuid) + _field(2, name)
    if parent:
        content += _field(5, parent) + _field(12, rank)
    return _field(1, _field(60, content + extra))


_A_COUNTER = _field(8, b"")
_ORDERED = _field(11, _EXPLICIT)
_CATEGORIES = b"".join(
    _field(1, _field(1, kind + 1) + _field(2, name)) for kind, name in enumerate((*KINDS, *LIVES))
)
_ROOT = 1
HEADER = _field(
    1,
    _field(10, encoding.SEQUENCE) + _field(13, _STATE_CLEARED) + _field(12, _CATEGORIES),
) + _track(_ROOT, CLUSTER, extra=_ORDERED)
"""The bytes every timeline begins with."""


class PerfettoSink:
    """Takes a run's tasks and writes them to a stream as a Perfetto trace."""

    def __init__(
        self, stream: BinaryIO, workload: Workload, cluster: Cluster, window: Window
    ) -> None:
        self._stream = stream
        self._cluster = cluster
        self._window = window
        self.finished = False
        gpus = [job.gpus for job in workload]
        # A job's name could hold half a surrogate pair, which no file in UTF-8 can.
        texts = [f"{job.job_id} #".encode(errors="replace") for job in workload]
        most_bytes = max(
            min(count, cluster.servers) * (len(text) + encoding.SLICE_BYTES)
            for count, text in zip(gpus, texts, strict=True)
        )
        texts += [f" {kind}".encode() for kind in KINDS]
        # Tracks: the cluster, the GPUs, the servers, the counters, the lanes of the networks.
        self._first_gpu = _ROOT + 1
        self._first_server = self._first_gpu + cluster.gpus
        self._first_counter = self._first_server + cluster.servers
        self._counters = len(COUNTERS) + cluster.servers
        tally = zeros(1, TALLY)
        tally[0].from_ns, tally[0].to_ns = window.from_ns, window.to_ns
        tally[0].first_gpu = self._first_gpu
        tally[0].next_track = self._first_counter + self._counters
        lanes = (cluster.servers, _FIRST_LANES)
        self._encoder = Encoder(
            tally=tally,
            texts=np.frombuffer(b"".join(texts), np.uint8).copy(),
            first_text=_starts([len(text) for text in texts]),
            server_of_gpu=cluster.server_of_gpu.copy(),
            servers=np.zeros(sum(min(count, cluster.servers) for count in gpus), np.int64),
            first_server=_starts([min(count, cluster.servers) for count in gpus]),
            server_count=np.zeros(len(workload), np.int64),
            ready_ns=np.zeros(len(workload), np.int64),
            lane_tracks=np.zeros(lanes, np.int64),
            lane_ends_ns=np.zeros(lanes, np.int64),
            lanes=np.zeros(cluster.servers, np.int64),
            sent=zeros(1 << 10, SENT),
        )
        counters_bytes = self._counters * encoding.EVENT_BYTES
        self._buffer = np.zeros(max(_BUFFER_BYTES, most_bytes, counters_bytes), np.uint8)
        self._write_tracks()

    def append(self, tasks: Records) -> None:
        """Write a batch of tasks."""
        tally = self._encoder.tally
        self._make_room(int(np.count_nonzero(tasks.kind == MESSAGE)))
        tally[0].row = 0
        status = encoding.BUFFER_FULL
        while status != encoding.DONE:
            lanes = self._encoder.lanes.copy()
            arguments = (self._encoder, tasks, self._buffer)
            status = jit.call(encoding.encode_tasks, "the writer of timelines", *arguments)
            self._write_lanes(lanes)
            self._stream.write(self._buffer[: tally[0].bytes].data)
            if status == encoding.LANES_FULL:
                self._add_lanes()

    def finish(self, result: Result) -> Result:
        """Write jobs and counters, which need the whole run; return the result."""
        from_ns = self._window.from_ns
        last_ns = int(result.finish_ns.max())
        if from_ns >= last_ns:
            raise InputError(
                f"the run ends at {last_ns / 1e9:g} s; the window begins at {from_ns / 1e9:g} s."
            )
        end_ns = min(self._window.to_ns, last_ns)
        self._write_lives(result)
        times, counters, changes = self._changes(result)
        begun = times <= from_ns
        between = np.flatnonzero(~begun & (times < end_ns))
        between = between[np.argsort(times[between], kind="stable")]
        values = np.zeros(self._counters, np.int64)
        np.add.at(values, counters[begun], changes[begun])
        self._write_values(from_ns, values)
        tally = self._encoder.tally
        tally[0].row = 0
        state = Changes(
            time_ns=times[between],
            counter=counters[between],
            change=changes[between],
            values=values,
            written=values.copy(),
            touched=np.zeros(self._counters, np.int64),
            listed=np.zeros(self._counters, np.int64),
        )
        arguments = (state, tally, self._first_counter, self._buffer)
        status = encoding.BUFFER_FULL
        while status != encoding.DONE:
            status = jit.call(encoding.encode_counters, "the writer of counters", *arguments)
            self._stream.write(self._buffer[: tally[0].bytes].data)
        at_end = times == end_ns
        np.add.at(values, counters[at_end], changes[at_end])
        self._write_values(end_ns, values)
        self.finished = True
        return result

    def _changes(
        self, result: Result
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the times, counters and amounts of all changes, in no order."""
        e = self._encoder
        sent = e.sent[: e.tally[0].sent].view(np.recarray)
        queued, running, waiting = range(len(COUNTERS))
        # A message once for each of its job's servers.
        copies = e.server_count[sent.job]
        message = np.repeat(np.arange(len(sent)), copies)
        place = np.arange(len(message)) - np.repeat(np.cumsum(copies) - copies, copies)
        server = len(COUNTERS) + e.servers[e.first_server[sent.job[message]] + place]
        steps: list[tuple[Any, Any, int]] = [
            (result.arrival_ns, queued, 1),
            (result.start_ns, queued, -1),
            (sent.ready_ns, waiting, 1),
            (sent.start_ns, waiting, -1),
            (sent.start_ns, running, 1),
            (sent.end_ns, running, -1),
            (sent.start_ns[message], server, 1),
            (sent.end_ns[message], server, -1),
        ]
        sizes = [len(times) for times, _, _ in steps]
        return (
            np.concatenate([times for times, _, _ in steps]),
            np.concatenate(
                [np.broadcast_to(c, n) for (_, c, _), n in zip(steps, sizes, strict=True)]
            ),
            np.repeat([change for _, _, change in steps], sizes),
        )

    def _write_tracks(self) -> None:
        """Describe every track but the lanes."""
        write = self._stream.write
        write(HEADER)
        for rank, name in enumerate(COUNTERS):
            write(_track(self._first_counter + rank, name, _ROOT, rank, _A_COUNTER))
        gpu = 0
        for server, count in enumerate(self._cluster.server_gpus):
            uuid = self._first_server + server
            counter = self._first_counter + len(COUNTERS) + server
            rank = len(COUNTERS) + server
            write(_track(uuid, f"server {server}", _ROOT, rank, _ORDERED))
            write(_track(counter, MESSAGES, uuid, 0, _A_COUNTER))
            for place in range(count):
                write(_track(self._first_gpu + gpu, f"GPU {gpu}", uuid, 2 + place))
                gpu += 1

    def _write_lives(self, result: Result) -> None:
        """Describe the tracks of jobs, and write when each was queued and running."""
        first = int(self._encoder.tally[0].next_track)
        rank = len(COUNTERS) + self._cluster.servers
        self._stream.write(_track(first, JOBS, _ROOT, rank, _ORDERED))
        times = (result.arrival_ns, result.start_ns, result.finish_ns)
        spans = zip(result.workload, *(column.tolist() for column in times), strict=True)
        for place, (job, arrival_ns, start_ns, finish_ns) in enumerate(spans, 1):
            name = job.job_id.encode(errors="replace").decode()
            self._stream.write(_track(first + place, name, first, place))
            for kind, from_ns, to_ns in (
                (QUEUED, arrival_ns, start_ns),
                (RUNNING, start_ns, finish_ns),
            ):
                window = self._window
                if from_ns < to_ns and from_ns < window.to_ns and to_ns > window.from_ns:
                    text = f"{name} {LIVES[kind - QUEUED]}"
                    self._write_slice(first + place, kind, text, from_ns, to_ns)

    def _write_slice(self, track: int, kind: int, name: str, from_ns: int, to_ns: int) -> None:
        """Write one slice; tasks, of which there are many more, have a compiled encoder."""
        begin = _field(9, encoding.SLICE_BEGIN) + _field(11, track) + _field(3, kind + 1)
        packet = _field(8, from_ns) + _field(10, encoding.SEQUENCE)
        packet += _field(13, encoding.NEEDS_INTERNED) + _field(11, begin + _field(23, name))
        self._stream.write(_field(1, packet))
        packet = _field(8, to_ns) + _field(10, encoding.SEQUENCE)
        packet += _field(11, _field(9, encoding.SLICE_END) + _field(11, track))
        self._stream.write(_field(1, packet))

    def _write_lanes(self, before: NDArray[np.int64]) -> None:
        """Describe the lanes that were added; Perfetto shows siblings of one name as one track."""
        e = self._encoder
        for server in np.flatnonzero(e.lanes > before).tolist():
            for uuid in e.lane_tracks[server, before[server] : e.lanes[server]].tolist():
                self._stream.write(_track(uuid, NETWORK, self._first_server + server, 1))

    def _write_values(self, time_ns: int, values: NDArray[np.int64]) -> None:
        """Write every counter's value at an instant."""
        for counter, value in enumerate(values.tolist()):
            event = _field(9, encoding.COUNTER) + _field(11, self._first_counter + counter)
            packet = _field(8, time_ns) + _field(10, encoding.SEQUENCE)
            self._stream.write(_field(1, packet + _field(11, event + _field(30, value))))

    def _add_lanes(self) -> None:
        """Double the room for lanes."""
        e = self._encoder
        more = ((0, 0), (0, e.lane_tracks.shape[1]))
        self._encoder = e._replace(
            lane_tracks=np.pad(e.lane_tracks, more), lane_ends_ns=np.pad(e.lane_ends_ns, more)
        )

    def _make_room(self, messages: int) -> None:
        """Let a batch's messages fit into the record of those sent."""
        e = self._encoder
        needed = int(e.tally[0].sent) + messages
        if needed > len(e.sent):
            sent = zeros(max(needed, 2 * len(e.sent)), SENT)
            sent[: len(e.sent)] = e.sent
            self._encoder = e._replace(sent=sent)


def _starts(sizes: list[int]) -> NDArray[np.int64]:
    """Return where each piece begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@contextmanager
def perfetto_timeline(
    path: str | os.PathLike[str],
    workload: Workload,
    cluster: Cluster,
    window: Window | None = None,
) -> Iterator[PerfettoSink]:
    """Write a run's timeline to a file, or to standard output for `-`.

    Give what it yields to `simulate(..., timeline=sink)`, and that run's result to `sink.finish`;
    without both the file is not written.

    Args:
        path: The file; Perfetto's name for its kind is `.pftrace`.
        workload: The workload that will be simulated.
        cluster: The cluster that it will be simulated on.
        window: Only tasks that overlap it are written; all of them by default.

    Raises:
        InputError: The file cannot be written, or the run ends before the window begins.
    """
    with open_output(path) as stream:
        sink = PerfettoSink(stream, workload, cluster, window or Window())
        yield sink
        if not sink.finished:
            raise InputError("the timeline was not finished with the run's result.")
