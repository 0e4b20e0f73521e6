"""Reading a timeline with Perfetto's own protobuf classes, and what it ought to hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (  # type: ignore[import-untyped]
    Trace,
    TrackDescriptor,
    TrackEvent,
)

from graph_nodes import nodes_of
from headway.domain.records import COMMUNICATION, Records
from headway.results.schema import Result
from headway.results.timeline.window import Window

__all__ = ["Trace", "TrackEvent"]

KINDS = ("forward", "backward", "all-reduce")

Slice = tuple[str, str, str, int, int]
"""A track's path, a slice's category and name, its start and its end."""


@dataclass(frozen=True)
class Parsed:
    """A timeline as Perfetto would see it."""

    descriptors: dict[int, TrackDescriptor]
    slices: list[tuple[int, str, str, int, int]]
    """Track, category, name, start, end."""
    points: dict[str, list[tuple[int, int]]]
    """Times and values by the path of a counter."""

    def path(self, uuid: int) -> str:
        descriptor = self.descriptors[uuid]
        if not descriptor.parent_uuid:
            return str(descriptor.name)
        return f"{self.path(descriptor.parent_uuid)}/{descriptor.name}"

    def named_slices(self) -> Counter[Slice]:
        return Counter(
            (self.path(track), category, name, start, end)
            for track, category, name, start, end in self.slices
        )


def parse(path: Path | str) -> Parsed:
    """Parse a timeline, and check what must hold of any."""
    trace = Trace.FromString(Path(path).read_bytes())
    descriptors: dict[int, TrackDescriptor] = {}
    categories: dict[int, str] = {}
    begun: dict[int, tuple[str, str, int]] = {}
    slices = []
    last_end: dict[int, int] = {}
    points: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for packet in trace.packet:
        for category in packet.interned_data.event_categories:
            assert packet.sequence_flags == 1
            categories[category.iid] = category.name
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in descriptors
            descriptors[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            event, now = packet.track_event, packet.timestamp
            assert packet.trusted_packet_sequence_id == 1
            assert event.track_uuid in descriptors, "described before it is used"
            is_counter = descriptors[event.track_uuid].HasField("counter")
            assert is_counter == (event.type == TrackEvent.TYPE_COUNTER)
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                assert event.track_uuid not in begun
                assert packet.sequence_flags == 2
                assert now >= last_end.get(event.track_uuid, 0), "slices overlap"
                (category,) = (categories[iid] for iid in event.category_iids)
                begun[event.track_uuid] = (category, event.name, now)
            elif event.type == TrackEvent.TYPE_SLICE_END:
                slices.append((event.track_uuid, *begun.pop(event.track_uuid), now))
                last_end[event.track_uuid] = now
            else:
                points[event.track_uuid].append((now, event.counter_value))
    assert not begun
    parsed = Parsed(descriptors, slices, {})
    for descriptor in descriptors.values():
        assert descriptor.parent_uuid == 0 or descriptor.parent_uuid in descriptors
        if descriptor.HasField("counter"):
            path_of = parsed.path(descriptor.uuid)
            assert path_of not in parsed.points
            parsed.points[path_of] = points[descriptor.uuid]
    return parsed


def servers_of(result: Result, message: Records) -> set[int]:
    graph, gpus = result.workload[message.job].graph, result.gpus[message.job]
    if graph is not None:
        gpus = tuple(gpus[rank] for rank in nodes_of(graph)[message.node].ranks)
    return set(result.settings.cluster.servers_of(gpus))


def expected_slices(result: Result, tasks: Records, window: Window) -> Counter[Slice]:
    """Return the slices that a timeline must hold, from the engine's tasks."""
    slices: Counter[Slice] = Counter()
    for task in tasks:
        if task.start_ns >= window.to_ns or task.end_ns <= window.from_ns:
            continue
        job = result.workload[task.job]
        if job.graph is None:
            category = label = KINDS[task.kind]
        else:
            node = nodes_of(job.graph)[task.node]
            category = node.entry.kind if node.is_message else "compute"
            label = node.entry.name
        name = f"{job.job_id} #{task.iteration} {label}"
        span = (category, name, int(task.start_ns), int(task.end_ns))
        if task.kind == COMMUNICATION:
            for server in servers_of(result, task):
                slices[f"cluster/server {server}/network", *span] += 1
        else:
            server = int(result.settings.cluster.server_of_gpu[task.gpu])
            slices[f"cluster/server {server}/GPU {task.gpu}", *span] += 1
    return slices + expected_lives(result, window)


def expected_lives(result: Result, window: Window) -> Counter[Slice]:
    """Return the slices of jobs that a timeline must hold."""
    slices: Counter[Slice] = Counter()
    times = (result.arrival_ns.tolist(), result.start_ns.tolist(), result.finish_ns.tolist())
    for job, arrival, start, finish in zip(result.workload, *times, strict=True):
        for name, first, last in (("queued", arrival, start), ("running", start, finish)):
            if first < last and first < window.to_ns and last > window.from_ns:
                track, label = f"cluster/jobs/{job.job_id}", f"{job.job_id} {name}"
                slices[track, name, label, first, last] += 1
    return slices


def expected_counters(
    result: Result, tasks: Records, window: Window
) -> dict[str, list[tuple[int, int]]]:
    """Return every counter's changes, counted anew at each instant from tasks and result."""
    spans: dict[str, list[tuple[int, int]]] = {
        "cluster/queued jobs": list(
            zip(result.arrival_ns.tolist(), result.start_ns.tolist(), strict=True)
        ),
        "cluster/messages running": [],
        "cluster/messages waiting": [],
    }
    for server in range(result.settings.cluster.servers):
        spans[f"cluster/server {server}/messages"] = []
    for message in tasks[tasks.kind == COMMUNICATION]:
        ready = int(message.ready_ns)
        if result.workload[message.job].graph is None:
            own = tasks[(tasks.job == message.job) & (tasks.iteration == message.iteration)]
            ready = int(own[own.kind == 1].end_ns.max())
        span = (int(message.start_ns), int(message.end_ns))
        spans["cluster/messages waiting"].append((ready, span[0]))
        spans["cluster/messages running"].append(span)
        for server in servers_of(result, message):
            spans[f"cluster/server {server}/messages"].append(span)
    end = min(window.to_ns, int(result.finish_ns.max()))
    changes = {}
    for name, own_spans in spans.items():
        instants = sorted({t for span in own_spans for t in span if window.from_ns < t < end})
        series: list[tuple[int, int]] = []
        for now in (window.from_ns, *instants, end):
            value = sum(first <= now < last for first, last in own_spans)
            if now in (window.from_ns, end) or value != series[-1][1]:
                series.append((now, value))
        changes[name] = series
    return changes
