"""Whatever a file holds, it is read or refused with one clear sentence."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from builders import make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.reports.gantt import draw_report
from headway.reports.perfetto import HEADER, _field, _track
from headway.reports.trace import read_trace
from reports.perfetto_traces import Trace, TrackEvent
from reports.test_perfetto import CROWD, TWO_BY_TWO, record


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the content of a timeline."""
    path = tmp_path_factory.mktemp("good") / "t"
    record(path, make_workload(make_job(gpus=2, iterations=3)), Cluster(2, 1))
    return path.read_bytes()


def foreign() -> bytes:
    """Return a trace that another program might have written."""
    trace = Trace()
    packet = trace.packet.add()
    packet.track_descriptor.uuid = 77
    packet.track_descriptor.name = "main"
    for kind in (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END):
        packet = trace.packet.add()
        packet.timestamp = 5
        packet.trusted_packet_sequence_id = 3
        packet.track_event.type = kind
        packet.track_event.track_uuid = 77
        packet.track_event.name = "work"
    return bytes(trace.SerializeToString())


NOT_OURS = "is not a timeline from `headway simulate --timeline`."
DAMAGED = f"is damaged: the packet at byte {len(HEADER)} is none that"
OTHER_TRACKS = "its tracks are not those of a timeline from `headway simulate --timeline`."
HOSTILE: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "is empty; a timeline comes from `headway simulate --timeline`."),
    "text": (b"job_id,arrival_s,gpus,iterations,model\n", NOT_OURS),
    "zeros": (bytes(1000), NOT_OURS),
    "a compressed file": (b"\x1f\x8b\x08" + bytes(100), NOT_OURS),
    "another program's trace": (foreign(), NOT_OURS),
    "the first bytes": (HEADER[:20], "is cut off after 20 bytes."),
    "no tracks": (HEADER, OTHER_TRACKS),
    "unknown tracks": (HEADER + _track(2, "main", 1), OTHER_TRACKS),
    "a track twice": (HEADER + _track(1, "cluster"), OTHER_TRACKS),
    "a track with a huge number": (HEADER + _track(2**40, "GPU 0", 1), OTHER_TRACKS),
    "a server with a huge number": (HEADER + _track(2, "server 99999999", 1), OTHER_TRACKS),
    "a parent that is not there": (HEADER + _track(2, "server 0", 2**40), OTHER_TRACKS),
    "a description without a number": (HEADER + _field(1, _field(60, b"\x12\x01a")), OTHER_TRACKS),
    "a description cut short": (HEADER + _field(1, _field(60, b"\x08")), OTHER_TRACKS),
    "an endless number": (HEADER + b"\xff" * 50, DAMAGED),
    "a huge length": (
        HEADER + b"\x0a\xff\xff\xff\xff\xff\xff\x7f" + bytes(20),
        f"is cut off: the packet at byte {len(HEADER)} goes on beyond the end, "
        f"{len(HEADER) + 28} bytes.",
    ),
    "a field of no known type": (
        HEADER + _field(1, b"\x0f\x01"),
        DAMAGED,
    ),
    "an event longer than its packet": (
        HEADER + _field(1, b"\x5a\x7f\x01"),
        DAMAGED,
    ),
    "an event without a time": (
        HEADER + _field(1, _field(11, _field(9, 1) + _field(11, 1))),
        DAMAGED,
    ),
    "an event on an unknown track": (
        HEADER + _field(1, _field(8, 5) + _field(11, _field(9, 1) + _field(11, 10**12))),
        DAMAGED,
    ),
    "an end without a begin": (
        HEADER + _field(1, _field(8, 5) + _field(11, _field(9, 2) + _field(11, 1))),
        DAMAGED,
    ),
    "a counter with a huge value": (
        HEADER
        + _field(1, _field(8, 5) + _field(11, _field(9, 4) + _field(11, 1) + _field(30, 2**50))),
        DAMAGED,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_timeline_is_refused(name: str, tmp_path: Path) -> None:
    content, message = HOSTILE[name]
    path = tmp_path / "t.pftrace"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"{path}: {message}")):
        read_trace(path)


def test_a_timeline_cut_off_anywhere_is_refused(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    for size in range(1, len(good)):
        path.write_bytes(good[:size])
        with pytest.raises(InputError, match=r"is cut off|tracks are not"):
            read_trace(path)


def test_damaged_bytes_are_refused_or_harmless(good: bytes, tmp_path: Path) -> None:
    chance = random.Random(0)
    path = tmp_path / "t.pftrace"
    read, messages = 0, set[str]()
    for _ in range(600):
        content = bytearray(good)
        for _ in range(chance.choice((1, 1, 1, 5))):
            content[chance.randrange(len(HEADER), len(content))] = chance.randrange(256)
        path.write_bytes(content)
        try:
            trace = read_trace(path)
        except InputError as error:
            messages.add(str(error))
        else:
            read += 1
            if read % 20 == 0:
                draw_report(trace)
    assert read > 50
    assert all(text.startswith(f"{path}: ") and "\n" not in text for text in messages)


def test_a_trace_keeps_its_arrays_after_the_file_is_gone(tmp_path: Path) -> None:
    record(tmp_path / "t", CROWD, TWO_BY_TWO)
    trace = read_trace(tmp_path / "t")
    (tmp_path / "t").unlink()
    assert trace.name(0).endswith("forward")
    assert np.all(trace.slices.end_ns > trace.slices.start_ns)
