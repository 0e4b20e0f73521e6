"""What is read from an event log is what the core did, and what the jobs did."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.live.core.core import Core
from headway.live.core.events import (
    AnyEvent,
    JobCancelled,
    JobExited,
    JobRestored,
    JobSpec,
    JobSubmitted,
    MessageReady,
    NodeUp,
    Slot,
    WorkerLost,
)
from headway.live.daemon.event_log.format import Entry, Header, encode_entry, encode_header
from headway.live.daemon.event_log.parts import kept_parts
from headway.live.daemon.event_log.thinning import thin
from headway.live.past.activity import Activity
from headway.live.past.log import LogReader
from headway.network.contention import NetworkModel
from live.core.driver import Driver, TieError
from live.core.test_core_like_engine import make_workload

CLUSTER = Cluster(servers=3, gpus_per_server=2, gpu_memory_bytes=10)
NETWORK = NetworkModel()
POLICY = "spread+srsf:1"
HOUR_NS = 3600 * 10**9
UNIX_NS = 1_700_000_000 * 10**9


def driven(seed: int, **options: Any) -> Driver:
    """Return a run of some jobs that meet on the network."""
    for attempt in range(50):
        dice = random.Random(1000 * seed + attempt)
        driver = Driver(POLICY, make_workload(dice, 6, 2), CLUSTER, NETWORK, **options)
        try:
            driver.run()
        except TieError:
            continue
        if any(found.messages for found in driver.progress.values()):
            return driver
    raise AssertionError("no run without ties")


def entries(lines: list[bytes]) -> list[Entry]:
    return [msgspec.json.decode(line, type=Entry) for line in lines[1:]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options",
    [{}, {"bucket_bytes": 1_500_000}, {"turns": True}, {"turns": True, "bucket_bytes": 1_500_000}],
)
def test_messages_are_those_of_the_core_after_every_event(
    seed: int, options: dict[str, Any]
) -> None:
    driver = driven(seed, **options)
    core, activity = Core(POLICY, NETWORK), Activity()
    for entry in entries(driver.log):
        core.handle(entry.event)
        activity.take(entry, UNIX_NS)
        expected = {
            (one.job_id, one.left_bytes is not None, one.since_ns)
            for one in core.messages(entry.event.at_ns)
        }
        found = {
            (
                one.attempt.job.job_id,
                one.granted_ns is not None,
                (one.ready_ns if one.granted_ns is None else one.granted_ns) - UNIX_NS,
            )
            for one in activity.open_messages()
        }
        assert found == expected
    messages = activity.messages()
    assert len(messages.attempt) == sum(len(one.messages) for one in driver.progress.values())
    for attempt in activity.attempts:
        own = messages.attempt == attempt.index
        sent = zip(
            (messages.start_ns[own] - UNIX_NS).tolist(),
            (messages.end_ns[own] - UNIX_NS).tolist(),
            strict=True,
        )
        progress = driver.progress[attempt.job.job_id]
        assert sorted(sent) == sorted(progress.messages)
        assert attempt.start_ns - UNIX_NS == progress.start_ns
        assert attempt.end_ns is not None
        assert attempt.end_ns - UNIX_NS == progress.finish_ns
        assert attempt.slots == progress.slots
        assert attempt.iterations == progress.job.iterations - 1  # The last ends with the job.


class Log:
    """Writes the parts of logs as a scheduler does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, 0

    def begin(self, clock_ns: int, unix_ns: int | None) -> None:
        self.run += 1
        self.part = 1
        self.core = Core(POLICY, NETWORK)
        times = {} if unix_ns is None else {"clock_ns": clock_ns, "unix_ns": unix_ns}
        self.path.write_bytes(encode_header(POLICY, NETWORK, 0, None, **times))

    @property
    def path(self) -> Path:
        return self.folder / f"events-{self.run:06d}-{self.part:06d}.jsonl"

    def next_part(self) -> Path:
        self.part += 1
        self.path.touch()
        return self.path.with_name(f"events-{self.run:06d}-{self.part - 1:06d}.jsonl")

    def add(self, *events: AnyEvent) -> None:
        with self.path.open("ab") as stream:
            stream.writelines(encode_entry(event, self.core.handle(event)) for event in events)

    def read(self) -> Activity:
        reader = LogReader(self.folder / "events.jsonl")
        reader.read()
        reader.close()
        return reader.activity


def nodes(at_ns: int) -> list[AnyEvent]:
    return [NodeUp(at_ns=at_ns, node=name, gpus=1, memory_bytes=8) for name in ("a", "b")]


SPEC = JobSpec(command=("x",), gpus=2, memory_bytes=1)


def sent(at_ns: int, request: int, job: str = "1", attempt: int = 1) -> AnyEvent:
    return MessageReady(
        at_ns=at_ns, job_id=job, attempt=attempt, request=request, message_bytes=8, unsent_bytes=8
    )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_the_time_without_a_scheduler_counts_and_is_unknown_if_jobs_ran(log: Log) -> None:
    log.begin(0, UNIX_NS)
    log.add(*nodes(10), JobSubmitted(at_ns=20, job_id="1", spec=SPEC), sent(30, 1))
    # An hour later; the clock has not moved.
    log.begin(35, UNIX_NS + HOUR_NS)
    slots = (Slot("a", 0), Slot("b", 0))
    log.add(
        *nodes(36),
        JobRestored(at_ns=37, job_id="1", spec=SPEC, submitted_ns=20, attempts=1, slots=slots),
        sent(40, 1),
        JobExited(at_ns=50, job_id="1", attempt=1, code=0),
    )
    activity = log.read()
    (attempt,) = activity.attempts
    later_ns = UNIX_NS + HOUR_NS - 35
    assert (attempt.start_ns, attempt.end_ns) == (UNIX_NS + 20, later_ns + 50)
    messages = activity.messages()
    assert messages.ready_ns.tolist() == [UNIX_NS + 30, later_ns + 40]
    assert messages.end_ns.tolist() == [UNIX_NS + 30, later_ns + 50]
    # Nor is what it sent before it connected again.
    unknown = [(UNIX_NS + 30, later_ns + 40)]
    assert activity.unknown == unknown
    # Without jobs nothing can have happened.
    log.begin(60, UNIX_NS + 2 * HOUR_NS)
    log.add(*nodes(61))
    assert log.read().unknown == unknown


def test_a_job_that_never_connects_again_is_unknown_to_its_end(log: Log) -> None:
    log.begin(0, UNIX_NS)
    log.add(*nodes(10), JobSubmitted(at_ns=20, job_id="1", spec=SPEC), sent(30, 1))
    log.begin(30, UNIX_NS + 30)
    slots = (Slot("a", 0), Slot("b", 0))
    restored: dict[str, Any] = {
        "job_id": "1",
        "spec": SPEC,
        "submitted_ns": 20,
        "attempts": 1,
        "slots": slots,
    }
    log.add(JobRestored(at_ns=30, **restored), *nodes(35))
    assert log.read().unknown == [(UNIX_NS + 30, UNIX_NS + 35)]
    log.add(JobExited(at_ns=40, job_id="1", attempt=1, code=0), *nodes(50))
    assert log.read().unknown == [(UNIX_NS + 30, UNIX_NS + 40)]


@pytest.mark.parametrize("line", [0, 4], ids=["header", "entry"])
def test_only_the_rest_of_a_damaged_run_is_unknown(log: Log, line: int) -> None:
    log.begin(0, UNIX_NS)
    log.add(*nodes(10), JobSubmitted(at_ns=20, job_id="1", spec=SPEC))
    log.begin(30, UNIX_NS + HOUR_NS)
    log.add(*nodes(31), JobSubmitted(at_ns=40, job_id="2", spec=SPEC), sent(50, 1, "2"))
    lines = log.path.read_bytes().splitlines(keepends=True)
    lines[line] = b"\xff" + lines[line]
    log.path.write_bytes(b"".join(lines))
    strict = LogReader(log.folder / "events.jsonl")
    with pytest.raises(InputError, match="not a line of a log"):
        strict.read()
    strict.close()
    begin_ns = UNIX_NS + 2 * HOUR_NS
    log.begin(60, begin_ns)
    log.add(*nodes(60), JobSubmitted(at_ns=70, job_id="3", spec=SPEC))
    reader = LogReader(log.folder / "events.jsonl", skip_damage=True)
    for _ in range(2):
        reader.read()
    reader.close()
    (problem,) = reader.damage
    assert f"events-000002-000001.jsonl, line {line + 1}: not a line of a log" in problem
    activity = reader.activity
    assert list(activity.jobs) == (["1", "2", "3"] if line else ["1", "3"])
    assert activity.unknown[-1][1] == begin_ns
    assert activity.now_ns == begin_ns + 10


def test_a_machine_whose_clock_was_set_back_does_not_mix_runs(log: Log) -> None:
    log.begin(0, UNIX_NS + HOUR_NS)
    log.add(*nodes(10), JobSubmitted(at_ns=20, job_id="1", spec=SPEC))
    log.begin(30, UNIX_NS)
    log.add(*nodes(31), JobSubmitted(at_ns=40, job_id="2", spec=SPEC))
    first, second = log.read().jobs.values()
    assert first.submitted_ns == UNIX_NS + HOUR_NS + 20
    assert second.submitted_ns == first.submitted_ns + 10


def test_a_log_that_does_not_name_its_time_was_written_when_its_file_was(log: Log) -> None:
    log.begin(0, None)
    log.add(*nodes(10), JobSubmitted(at_ns=20, job_id="1", spec=SPEC))
    (job,) = log.read().jobs.values()
    assert job.submitted_ns == log.path.stat().st_mtime_ns


def test_what_was_thinned_out_is_unknown(log: Log) -> None:
    log.begin(0, UNIX_NS)
    log.add(*nodes(10), JobSubmitted(at_ns=20, job_id="1", spec=SPEC))
    first = log.next_part()
    log.add(*(sent(at_ns, at_ns) for at_ns in range(100, 120)))
    second = log.next_part()
    log.add(sent(200, 200), WorkerLost(at_ns=210, job_id="1", attempt=1))
    assert log.read().unknown == []
    thin(second)
    assert not second.exists()
    activity = log.read()
    # Nothing of it is left that says when it began.
    assert activity.unknown == [(UNIX_NS + 20, UNIX_NS + 200)]
    # The job is known from a part that was thinned, too.
    thin(first)
    assert [one.slots for one in log.read().attempts] == [(Slot("a", 0), Slot("b", 0))]
    # Once it is gone, nobody knows where the job sends.
    first.with_name(first.name.replace("events", "thinned")).unlink()
    second.with_name(second.name.replace("events", "thinned")).unlink()
    gone = log.read()
    assert gone.attempts == []
    assert gone.unknown[0][0] == 0
    assert gone.unknown[-1][1] == gone.now_ns


def test_reading_goes_on_where_it_ended(log: Log) -> None:
    log.begin(0, UNIX_NS)
    events = [*nodes(10), JobSubmitted(at_ns=20, job_id="1", spec=SPEC), sent(30, 1), sent(40, 2)]
    log.add(*events)
    log.next_part()
    log.add(JobCancelled(at_ns=50, job_id="1"), JobExited(at_ns=60, job_id="1", attempt=1, code=1))
    whole = log.read()
    growing = Log(log.folder / "growing")
    growing.folder.mkdir()
    reader = LogReader(growing.folder / "events.jsonl")
    for path in sorted(log.folder.glob("events-*.jsonl")):
        copy, data = growing.folder / path.name, path.read_bytes()
        for end in range(0, len(data) + 1, 7):
            copy.write_bytes(data[:end])
            reader.read()
        copy.write_bytes(data)
        reader.read()
    reader.close()
    for one, other in zip(reader.activity.messages(), whole.messages(), strict=True):
        assert one.tolist() == other.tolist()
    assert reader.activity.unknown == whole.unknown == []
    assert [one.end_ns for one in reader.activity.attempts] == [UNIX_NS + 60]


def test_the_last_lines_of_a_part_are_read_though_the_next_part_has_begun(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler writes them, and begins the next part, while the reader lists the parts."""
    log.begin(0, UNIX_NS)
    log.add(*nodes(10), JobSubmitted(at_ns=20, job_id="1", spec=SPEC), sent(30, 1))
    reader = LogReader(log.folder / "events.jsonl")
    reader.read()

    def parts_after_writing(link: Path) -> Any:
        log.add(JobExited(at_ns=40, job_id="1", attempt=1, code=1))
        log.next_part()
        log.add(JobSubmitted(at_ns=50, job_id="2", spec=SPEC))
        return kept_parts(link)

    monkeypatch.setattr("headway.live.past.log.kept_parts", parts_after_writing)
    reader.read()
    reader.close()
    ends = [(one.job.job_id, one.end_ns) for one in reader.activity.attempts]
    assert ends == [("1", UNIX_NS + 40), ("2", None)]


def test_only_the_latest_rows_are_kept(log: Log) -> None:
    log.begin(0, UNIX_NS)
    log.add(*nodes(10), JobSubmitted(at_ns=20, job_id="1", spec=SPEC))
    for number in range(100):
        lost = WorkerLost(at_ns=102 + 10 * number, job_id="1", attempt=1)
        log.add(sent(100 + 10 * number, number), lost)
    reader = LogReader(log.folder / "events.jsonl", most_rows=40)
    reader.read()
    reader.close()
    kept = reader.activity.messages()
    assert 30 <= len(kept.attempt) <= 40
    ((from_ns, to_ns),) = reader.activity.unknown
    assert from_ns == 0
    assert to_ns == kept.ready_ns[0] - 8
    assert kept.end_ns[-1] == UNIX_NS + 1092


def test_headers_of_earlier_versions_have_no_times() -> None:
    line = encode_header(POLICY, NETWORK, 0)
    header = msgspec.json.decode(line, type=Header)
    assert (header.clock_ns, header.unix_ns) == (None, None)
