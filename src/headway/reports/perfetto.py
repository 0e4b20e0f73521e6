"""Timelines for Perfetto (https://ui.perfetto.dev), from a run or from a recorded timeline.

    export_perfetto(read_timeline("run.parquet"), "run.pftrace")

Below a track `cluster` are the counters `queued jobs`, `messages running` and `messages waiting`,
and for each server a track with its counter `messages`, its `network` and its GPUs. A task is a
slice such as `JOB #0 forward`, with iterations counted from 0, or with the name of the entry of its
job's graph; a message is a slice on the network of each of its servers. The last track, `jobs`, has
a track for each job with a slice `JOB queued`, from its arrival, and a slice `JOB running`, from
its placement.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headway import jit
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.graph import Entry, Message
from headway.domain.message_kinds import KINDS
from headway.domain.records import COMMUNICATION, NOBODY, PLACEMENT, TASK, Records, zeros
from headway.domain.workload import Workload
from headway.files import open_output
from headway.reports import perfetto_encoding as encoding
from headway.reports.perfetto_encoding import TALLY, Batch, CounterEncoder, Encoder
from headway.results.columns import text
from headway.results.schema import Result
from headway.results.timeline.counters import Messages, counter_changes, joined
from headway.results.timeline.nodes import GraphNodes, Lists, PlacedMessages
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.window import Window

if TYPE_CHECKING:
    import polars

_PLAIN = ("forward", "backward", "all-reduce")
"""The labels of the kinds of tasks of jobs without a graph; kind k is category k + 1."""

_STATES = ("queued", "running")
"""The states of a job."""

_CATEGORIES = ("forward", "backward", *KINDS, "compute", *_STATES)
"""The categories of slices, counted from 1: a message's is its kind."""

_CLUSTER, _NETWORK, _MESSAGES, _JOBS = "cluster", "network", "messages", "jobs"
_COUNTERS = ("queued jobs", "messages running", "messages waiting")
"""Labels of tracks; counters in the order of their numbers."""

BUFFER_BYTES = 1 << 22
"""The least size of the buffer that packets are encoded into."""

_EXPORT_ROWS = 1 << 18
_FIRST_LANES = 2
_EXPLICIT = 3
_STATE_CLEARED = 1


def _varint(value: int) -> bytes:
    """Encode a non-negative integer."""
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
    """Encode the packet that describes a track; siblings are ordered by rank."""
    content = _field(1, uuid) + _field(2, name)
    if parent:
        content += _field(5, parent) + _field(12, rank)
    return _field(1, _field(60, content + extra))


_A_COUNTER = _field(8, b"")
_ORDERED = _field(11, _EXPLICIT)
_INTERNED = b"".join(
    _field(1, _field(1, number) + _field(2, name)) for number, name in enumerate(_CATEGORIES, 1)
)
_ROOT = 1
_HEADER = _field(
    1,
    _field(10, encoding.SEQUENCE) + _field(13, _STATE_CLEARED) + _field(12, _INTERNED),
) + _track(_ROOT, _CLUSTER, extra=_ORDERED)
"""The first bytes of every trace."""


class PerfettoWriter:
    """Writes tasks, jobs and counters to a stream as a Perfetto trace."""

    def __init__(
        self,
        stream: BinaryIO,
        job_ids: Sequence[str],
        nodes: GraphNodes,
        server_gpus: Sequence[int],
        window: Window,
    ) -> None:
        self._stream = stream
        self._job_ids = job_ids
        self._nodes = nodes
        self._sent: list[Messages] = []
        self._server_gpus = server_gpus
        self._window = window
        gpus, servers = sum(server_gpus), len(server_gpus)
        texts = [f"{job_id} #".encode() for job_id in job_ids]
        texts += [f" {label}".encode() for label in _PLAIN]
        texts += [f" {text(entry.name)}".encode() for entry in nodes.entries]
        categories = [*_PLAIN, *(_category(entry) for entry in nodes.entries)]
        self._category = np.array([_CATEGORIES.index(name) + 1 for name in categories], np.int64)
        # Tracks: the cluster, the GPUs, the servers, the counters, the lanes of the networks.
        self._first_gpu = _ROOT + 1
        self._first_server = self._first_gpu + gpus
        self._first_counter = self._first_server + servers
        self._counters = len(_COUNTERS) + servers
        tally = zeros(1, TALLY)
        tally[0].from_ns, tally[0].to_ns = window.from_ns, window.to_ns
        tally[0].first_gpu = self._first_gpu
        tally[0].next_track = self._first_counter + self._counters
        lanes = servers * _FIRST_LANES
        self._encoder = Encoder(
            tally=tally,
            texts=np.frombuffer(b"".join(texts), np.uint8).copy(),
            first_text=_starts([len(label) for label in texts]),
            lane_tracks=np.zeros(lanes, np.int64),
            lane_ends_ns=np.zeros(lanes, np.int64),
            lanes=np.zeros(servers, np.int64),
        )
        counters_bytes = self._counters * encoding.EVENT_BYTES
        self._buffer = np.zeros(max(BUFFER_BYTES, counters_bytes), np.uint8)
        self._write_tracks()

    def write_tasks(self, tasks: Records, servers: Lists) -> None:
        """Write a batch of tasks, with the servers of each that is a message."""
        self._note_messages(tasks, servers)
        entry = self._nodes.entry(tasks.job, tasks.node)
        label = np.where(entry == NOBODY, tasks.kind, len(_PLAIN) + entry)
        batch = Batch(
            tasks=tasks,
            label=len(self._job_ids) + label,
            category=self._category[label],
            servers=servers.values,
            first_server=servers.start,
            server_count=servers.length,
        )
        self._make_room(batch)
        tally = self._encoder.tally
        tally[0].row = 0
        status = encoding.BUFFER_FULL
        while status != encoding.DONE:
            lanes = self._encoder.lanes.copy()
            arguments = (self._encoder, batch, self._buffer)
            status = jit.call(encoding.encode_tasks, "the export to Perfetto", *arguments)
            self._write_lanes(lanes)
            self._stream.write(self._buffer[: tally[0].bytes].data)
            if status == encoding.LANES_FULL:
                self._add_lanes()

    def write_rest(
        self,
        arrival_ns: NDArray[np.int64],
        start_ns: NDArray[np.int64],
        finish_ns: NDArray[np.int64],
    ) -> None:
        """Write jobs and counters, after all tasks."""
        covered = self._window.clipped(int(finish_ns.max()))
        from_ns, end_ns = covered.from_ns, covered.to_ns
        self._write_jobs(arrival_ns, start_ns, finish_ns)
        changes = counter_changes(arrival_ns, start_ns, joined(self._sent))
        times = changes.time_ns
        begun = times <= from_ns
        between = np.flatnonzero(~begun & (times < end_ns))
        between = between[np.argsort(times[between], kind="stable")]
        values = np.zeros(self._counters, np.int64)
        np.add.at(values, changes.counter[begun], changes.change[begun])
        self._write_values(from_ns, values)
        tally = self._encoder.tally
        tally[0].row = 0
        state = CounterEncoder(
            time_ns=times[between],
            counter=changes.counter[between],
            change=changes.change[between],
            values=values,
            written=values.copy(),
            touched=np.zeros(self._counters, np.int64),
            listed=np.zeros(self._counters, np.int64),
        )
        arguments = (state, tally, self._first_counter, self._buffer)
        status = encoding.BUFFER_FULL
        while status != encoding.DONE:
            status = jit.call(encoding.encode_counters, "the export of counters", *arguments)
            self._stream.write(self._buffer[: tally[0].bytes].data)
        at_end = times == end_ns
        np.add.at(values, changes.counter[at_end], changes.change[at_end])
        self._write_values(end_ns, values)

    def _note_messages(self, tasks: Records, servers: Lists) -> None:
        """Keep the messages of a batch that the counters of the window need."""
        window = self._window
        begun = (tasks.kind == COMMUNICATION) & (tasks.ready_ns <= window.to_ns)
        chosen = np.flatnonzero(begun & (tasks.end_ns > window.from_ns))
        times_ns = (tasks.ready_ns[chosen], tasks.start_ns[chosen], tasks.end_ns[chosen])
        self._sent.append(Messages(*times_ns, *servers.take(chosen).pairs()))

    def _write_tracks(self) -> None:
        """Describe all tracks except the lanes."""
        write = self._stream.write
        write(_HEADER)
        for rank, name in enumerate(_COUNTERS):
            write(_track(self._first_counter + rank, name, _ROOT, rank, _A_COUNTER))
        gpu = 0
        for server, count in enumerate(self._server_gpus):
            uuid = self._first_server + server
            counter = self._first_counter + len(_COUNTERS) + server
            rank = len(_COUNTERS) + server
            write(_track(uuid, f"server {server}", _ROOT, rank, _ORDERED))
            write(_track(counter, _MESSAGES, uuid, 0, _A_COUNTER))
            for index in range(count):
                write(_track(self._first_gpu + gpu, f"GPU {gpu}", uuid, 2 + index))
                gpu += 1

    def _write_jobs(self, *times_ns: NDArray[np.int64]) -> None:
        """Describe the tracks of jobs, and write when each was queued and running."""
        first = int(self._encoder.tally[0].next_track)
        rank = len(_COUNTERS) + len(self._server_gpus)
        self._stream.write(_track(first, _JOBS, _ROOT, rank, _ORDERED))
        jobs = zip(self._job_ids, *(column.tolist() for column in times_ns), strict=True)
        for index, (job_id, *instants) in enumerate(jobs, 1):
            self._stream.write(_track(first + index, job_id, first, index))
            for state, label in enumerate(_STATES):
                from_ns, to_ns = instants[state : state + 2]
                window = self._window
                if from_ns < to_ns and from_ns < window.to_ns and to_ns > window.from_ns:
                    name = f"{job_id} {label}"
                    self._write_slice(first + index, label, name, from_ns, to_ns)

    def _write_slice(self, track: int, category: str, name: str, from_ns: int, to_ns: int) -> None:
        """Write one slice; tasks, which are far more numerous, have a compiled encoder."""
        begin = _field(9, encoding.SLICE_BEGIN) + _field(11, track)
        begin += _field(3, _CATEGORIES.index(category) + 1)
        packet = _field(8, from_ns) + _field(10, encoding.SEQUENCE)
        packet += _field(13, encoding.NEEDS_INTERNED) + _field(11, begin + _field(23, name))
        self._stream.write(_field(1, packet))
        packet = _field(8, to_ns) + _field(10, encoding.SEQUENCE)
        packet += _field(11, _field(9, encoding.SLICE_END) + _field(11, track))
        self._stream.write(_field(1, packet))

    def _write_lanes(self, before: NDArray[np.int64]) -> None:
        """Describe new lanes; Perfetto shows siblings with the same name as one track."""
        e = self._encoder
        for server in np.flatnonzero(e.lanes > before).tolist():
            own = e.lane_tracks[server :: len(e.lanes)]
            for uuid in own[before[server] : e.lanes[server]].tolist():
                self._stream.write(_track(uuid, _NETWORK, self._first_server + server, 1))

    def _write_values(self, time_ns: int, values: NDArray[np.int64]) -> None:
        """Write every counter's value at an instant."""
        for counter, value in enumerate(values.tolist()):
            event = _field(9, encoding.COUNTER) + _field(11, self._first_counter + counter)
            packet = _field(8, time_ns) + _field(10, encoding.SEQUENCE)
            self._stream.write(_field(1, packet + _field(11, event + _field(30, value))))

    def _add_lanes(self) -> None:
        """Double the capacity for lanes."""
        e = self._encoder
        more = (0, len(e.lane_tracks))
        self._encoder = e.replace(
            lane_tracks=np.pad(e.lane_tracks, more), lane_ends_ns=np.pad(e.lane_ends_ns, more)
        )

    def _make_room(self, batch: Batch) -> None:
        """Grow the buffer until each task of a batch fits."""
        text_bytes = np.diff(self._encoder.first_text)
        slice_bytes = encoding.SLICE_BYTES + text_bytes[batch.tasks.job] + text_bytes[batch.label]
        most_bytes = (np.maximum(1, batch.server_count) * slice_bytes).max(initial=0)
        if most_bytes > len(self._buffer):
            self._buffer = np.zeros(most_bytes, np.uint8)


def _category(entry: Entry) -> str:
    return entry.kind if isinstance(entry, Message) else "compute"


def _starts(sizes: list[int]) -> NDArray[np.int64]:
    """Return where each of several pieces begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class PerfettoSink:
    """A sink that writes a run as a Perfetto trace while it is simulated."""

    def __init__(
        self, stream: BinaryIO, workload: Workload, cluster: Cluster, window: Window
    ) -> None:
        ids = [text(job.job_id) for job in workload]
        self._placed = PlacedMessages([job.graph for job in workload], cluster.server_of_gpu)
        nodes = self._placed.nodes
        self._writer = PerfettoWriter(stream, ids, nodes, cluster.server_gpus, window)
        self.finished = False

    def append(self, tasks: Records) -> None:
        """Write a batch of tasks."""
        is_placement = tasks.kind == PLACEMENT
        if is_placement.any():
            self._placed.place_rows(tasks[is_placement])
            tasks = tasks[~is_placement]
        self._writer.write_tasks(tasks, self._placed.servers_of(tasks))

    def finish(self, result: Result) -> Result:
        """Write jobs and counters, which need the result of the run; return the result."""
        self._writer.write_rest(result.arrival_ns, result.start_ns, result.finish_ns)
        self.finished = True
        return result


@contextmanager
def perfetto_timeline(
    path: str | os.PathLike[str],
    workload: Workload,
    cluster: Cluster,
    window: Window | None = None,
) -> Iterator[PerfettoSink]:
    """Write a run to a Perfetto trace, or to standard output for `-`, while it is simulated.

    Pass the sink it yields to `simulate(..., timeline=sink)`, and that run's result to
    `sink.finish`; without both, no file is written.

    Args:
        path: The file; Perfetto's suffix is `.pftrace`.
        workload: The workload that will be simulated.
        cluster: The cluster that it will be simulated on.
        window: Write only tasks that overlap this window; by default, all.

    Raises:
        InputError: The file cannot be written, or the run ends before the window begins.
    """
    with open_output(path) as stream:
        sink = PerfettoSink(stream, workload, cluster, window or Window())
        yield sink
        if not sink.finished:
            raise InputError("the timeline was not finished with the run's result.")


def export_perfetto(run: RecordedRun, path: str | os.PathLike[str]) -> None:
    """Write a recorded run to a Perfetto trace, or to standard output for `-`."""
    jobs = run.jobs
    with open_output(path) as stream:
        ids, nodes = jobs["job_id"].to_list(), GraphNodes(run.graphs)
        writer = PerfettoWriter(stream, ids, nodes, run.server_gpus, run.window)
        for batch in run.tasks.iter_slices(_EXPORT_ROWS):
            tasks = zeros(len(batch), TASK)
            for name in ("start_ns", "end_ns", "iteration", "job"):
                tasks[name] = batch[name].to_numpy()
            for name in ("gpu", "node", "ready_ns"):
                tasks[name] = batch[name].fill_null(NOBODY).to_numpy()
            tasks.kind[:] = batch["kind"].to_physical().to_numpy()
            writer.write_tasks(tasks, _lists(batch["servers"]))
        writer.write_rest(
            *(jobs[name].to_numpy() for name in ("arrival_ns", "start_ns", "finish_ns"))
        )


def _lists(column: polars.Series) -> Lists:
    """Return a column of lists; null is a list of none."""
    length = column.list.len().fill_null(0).to_numpy().astype(np.int64)
    values = column.drop_nulls().explode().to_numpy().astype(np.int64)
    return Lists(values, np.cumsum(length) - length, length)
