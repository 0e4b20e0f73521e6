"""Logs of live runs: written, read, repeated, turned into workloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.commands import headway
from headway.configuration.cluster import cluster_from
from headway.configuration.network import network_from
from headway.domain.errors import InputError
from headway.gate.frames import MeasuredBucket
from headway.live.core.core import Core
from headway.live.core.events import (
    AnyEvent,
    IterationDone,
    IterationProfiled,
    JobExited,
    JobRestored,
    JobSpec,
    JobSubmitted,
    MessageDone,
    MessageReady,
    NodeLost,
    NodeUp,
    PolicyChanged,
    Slot,
)
from headway.live.daemon.event_log.format import encode_entry, encode_header
from headway.live.daemon.event_log.reader import open_event_log
from headway.live.replay import replay
from headway.network.contention import NetworkModel
from headway.workload.files import read_workload

MB = 2**20
NETWORK = NetworkModel(a_ns=1_000, eta_ns_per_byte=0.5, ring_size=4)
POLICY = "spread+srsf+ada-dual"


def events() -> list[AnyEvent]:
    """Return a short run: two jobs, of which one says nothing of itself, and one that never ran."""
    told: dict[str, Any] = {"forward_ns": 1_000_000, "backward_ns": 2_000_000}
    spec = JobSpec(command=("x",), gpus=2, memory_bytes=MB, iterations=5, gradient_bytes=8, **told)
    one: dict[str, Any] = {"job_id": "one", "attempt": 1}
    measured = {"forward_ns": 10_000_000, "backward_ns": 20_000_000, "gradient_bytes": 3 * MB}
    return [
        NodeUp(at_ns=0, node="a", gpus=2, memory_bytes=8 * MB),
        NodeUp(at_ns=0, node="b", gpus=1, memory_bytes=9 * MB),
        JobSubmitted(at_ns=10, job_id="one", spec=spec),
        JobSubmitted(at_ns=2_000_000_000, job_id="two, silent", spec=JobSpec(command=("y",))),
        JobSubmitted(at_ns=2_000_000_001, job_id="three", spec=JobSpec(command=("y",), gpus=3)),
        MessageReady(at_ns=2_000_000_002, **one, request=1, message_bytes=8, unsent_bytes=8),
        MessageDone(at_ns=2_000_000_003, **one, request=1),
        IterationDone(
            at_ns=2_000_000_004, job_id="two, silent", attempt=1, iterations=7, **measured
        ),
        JobExited(at_ns=2_000_000_005, **one, code=0),
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    core = Core(POLICY, NETWORK, seed=3)
    lines = [encode_header(POLICY, NETWORK, 3)]
    lines += [encode_entry(event, core.handle(event)) for event in events()]
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def test_a_log_says_all_that_happened(log: Path) -> None:
    with open_event_log(log) as reader:
        assert reader.header.network == NETWORK
        assert reader.header.seed == 3
        assert [entry.event for entry in reader] == events()
        assert reader.line == 1 + len(events())
        assert not reader.truncated


def test_the_same_events_give_the_same_decisions(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, "replay", str(log))
    assert outcome.status == 0
    assert outcome.out == f"{POLICY}: 9 events, 3 decisions: the same decisions.\n"


def test_a_log_that_was_changed_is_told_apart_at_its_first_difference(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = log.read_text().splitlines()
    entry = json.loads(lines[3])
    entry["instructions"][0]["slots"][0]["index"] = 1
    lines[3] = json.dumps(entry)
    log.write_text("\n".join(lines) + "\n")
    outcome = headway(capsys, "replay", str(log), "--workload", str(log.with_name("w.csv")))
    assert outcome.status == 1
    assert "3 events" in outcome.out
    assert "decisions differ" in outcome.out
    assert "\nline 4: JobSubmitted(at_ns=10, job_id='one'" in outcome.out
    assert not log.with_name("w.csv").exists()


def test_a_last_line_that_was_cut_off_is_left_out_and_told(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = log.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[-1])):
        log.write_bytes(whole[:-cut])
        found = replay(log)
        assert found.difference is None
        assert (found.events, found.truncated_line) == ((9, None) if cut == 1 else (8, 10))
    outcome = headway(capsys, "replay", str(log))
    assert outcome.status == 0
    assert "line 10 is incomplete and was skipped." in outcome.out


@pytest.mark.parametrize(
    ("number", "line", "message"),
    [
        (0, "", "line 1: not a line of a log"),
        (0, "{}", "line 1: not a line of a log"),
        (0, "job_id,arrival_s,gpus", "line 1, column 1: not a line of a log"),
        (
            0,
            '{"headway_log":1,"version":"0.1.0","policy":"paper","network":{},"seed":0}',
            "is a log of format 1, written by Headway 0.1.0; this version reads format 2.",
        ),
        (0, '{"headway_log":2,"version":"","policy":"x","network":{},"seed":0}', "unknown policy"),
        (
            0,
            '{"headway_log":2,"version":"","policy":"paper","network":{"a_ns":-1},"seed":0}',
            "a_ns",
        ),
        (0, '{"headway_log":2,"version":"","policy":"paper","network":{},"seed":-1}', "seed"),
        (2, '{"event":{"type":"Surprise"},"instructions":[]}', "line 3: not a line of a log"),
        (2, '{"event":{"type":"Tick","at_ns":"x"},"instructions":[]}', "line 3: not a line"),
        (2, '{"event":{"type":"Tick","at_ns":99999999999999999999},"instructions":[]}', "line 3"),
        (2, "\x00\x01", "line 3, column 1: not a line of a log"),
        (2, "[" * 100_000, "line 3: not a line of a log"),
        (
            2,
            '{"event":{"type":"NodeUp","at_ns":1,"node":"a","gpus":0,"memory_bytes":1},'
            '"instructions":[]}',
            "line 3, gpus: must be at least 1, not 0.",
        ),
    ],
)
def test_what_is_not_a_log_is_refused_with_its_place(
    log: Path, capsys: pytest.CaptureFixture[str], number: int, line: str, message: str
) -> None:
    lines = log.read_text().splitlines()
    lines[number] = line
    log.write_text("\n".join(lines) + "\n")
    outcome = headway(capsys, "replay", str(log))
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.startswith(f"headway: error: {log}, line {number + 1}")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_later_part_of_a_log_says_what_is_missing(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text("".join(log.read_text().splitlines(keepends=True)[1:]))
    outcome = headway(capsys, "replay", str(log))
    assert outcome.status == 2
    assert "begins in the middle of a run" in outcome.err
    assert outcome.err.count("\n") == 1


def test_an_empty_or_missing_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    outcome = headway(capsys, "replay", str(empty))
    assert (outcome.status, outcome.err) == (
        2,
        f"headway: error: {empty}: is empty, not a log of `headway serve`.\n",
    )
    assert headway(capsys, "replay", str(tmp_path / "none")).status == 2
    with pytest.raises(InputError):
        replay(tmp_path)


def test_a_run_becomes_a_workload_for_the_simulator(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = log.with_name("w.csv")
    outcome = headway(capsys, "replay", str(log), "--workload", str(target))
    assert outcome.status == 0
    written = [target, log.with_name("w.cluster.toml"), log.with_name("w.network.toml")]
    assert outcome.err.splitlines() == [
        *(f"Written: {path}" for path in written),
        "skipped 1 job without iterations.",
    ]
    one, two = read_workload(target)
    assert (one.job_id, one.arrival_ns, one.gpus, one.iterations) == ("one", 10, 2, 5)
    assert (one.forward_ns, one.backward_ns, one.gradient_bytes) == (1_000_000, 2_000_000, 8)
    assert (one.memory_bytes, one.exclusive) == (MB, False)
    assert (two.job_id, two.gpus, two.iterations) == ("two, silent", 1, 7)
    assert (two.forward_ns, two.gradient_bytes) == (10_000_000, 3 * MB)
    assert (two.memory_bytes, two.exclusive) == (8 * MB, True)


def test_nothing_is_exported_that_was_neither_declared_nor_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared: dict[str, Any] = {"forward_ns": 3, "backward_ns": 4}
    told: list[AnyEvent] = [NodeUp(at_ns=0, node="a", gpus=8, memory_bytes=8 * MB)]
    jobs: dict[str, dict[str, Any]] = {
        "silent": {},
        "half": {"forward_ns": 3},
        "sends nothing": declared,
        "urgent": declared | {"gradient_bytes": 7, "priority": 5},
    }
    for job, fields in jobs.items():
        spec = JobSpec(command=("x",), gpus=2, memory_bytes=MB, iterations=6, **fields)
        told.append(JobSubmitted(at_ns=1, job_id=job, spec=spec))
        told.append(JobExited(at_ns=2, job_id=job, attempt=1, code=0))
    log, target = write(tmp_path / "log", told), tmp_path / "w.csv"
    outcome = headway(capsys, "replay", str(log), "--workload", str(target))
    assert outcome.err.splitlines()[-1] == (
        "skipped 2 jobs whose iterations were neither declared nor measured: silent, half."
    )
    nothing, urgent = read_workload(target)
    assert (nothing.job_id, nothing.gradient_bytes, nothing.priority) == ("sends nothing", 0, 0)
    assert (urgent.job_id, urgent.gradient_bytes, urgent.priority) == ("urgent", 7, 5)
    nobody = write(tmp_path / "nobody", told[:5])
    outcome = headway(capsys, "replay", str(nobody), "--workload", str(target))
    assert outcome.status == 2
    assert "no job has done an iteration whose times were declared or measured" in outcome.err


def write(path: Path, told: list[AnyEvent], network: NetworkModel = NETWORK) -> Path:
    """Write the log of a core that is told these events."""
    core = Core(POLICY, network)
    lines = [encode_entry(event, core.handle(event)) for event in told]
    path.write_bytes(b"".join([encode_header(POLICY, network, 0), *lines]))
    return path


def test_a_run_is_simulated_on_the_cluster_and_network_that_it_had(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        headway(capsys, "replay", str(log), "--workload", str(log.with_name("w.csv"))).status == 0
    )
    cluster, network = log.with_name("w.cluster.toml"), log.with_name("w.network.toml")
    assert network_from(str(network)) == NETWORK
    read = cluster_from(str(cluster))
    assert [(one.servers, one.gpus_per_server) for one in read.groups] == [(1, 2), (1, 1)]
    assert [one.gpu.memory_bytes for one in read.groups] == [8 * MB, 9 * MB]


def times(forward_ns: int) -> dict[str, Any]:
    return {"forward_ns": forward_ns, "backward_ns": 2 * forward_ns}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a state folder with two runs, the first of them in two parts.

    A job that runs is restored; another is submitted to the second run, which has one more node and
    another network.
    """
    first: list[AnyEvent] = [
        NodeUp(at_ns=0, node="a", gpus=2, memory_bytes=8 * MB),
        JobSubmitted(at_ns=5, job_id="1", spec=JobSpec(command=("x",), memory_bytes=MB)),
        IterationDone(at_ns=9, job_id="1", attempt=1, iterations=3, **times(700)),
    ]
    spec = JobSpec(command=("x",), memory_bytes=MB)
    second: list[AnyEvent] = [
        NodeUp(at_ns=20, node="a", gpus=2, memory_bytes=8 * MB),
        NodeUp(at_ns=20, node="b", gpus=2, memory_bytes=8 * MB),
        JobRestored(
            at_ns=20,
            job_id="1",
            spec=spec,
            submitted_ns=4,  # the registry's time, just before the event's
            attempts=1,
            iterations=3,
            slots=(Slot("a", 0),),
        ),
        JobSubmitted(at_ns=22, job_id="2", spec=spec),
        IterationDone(at_ns=23, job_id="1", attempt=1, iterations=8),
        IterationDone(at_ns=24, job_id="2", attempt=1, iterations=4, **times(800)),
        JobExited(at_ns=25, job_id="1", attempt=1, code=0),
    ]
    write(tmp_path / "whole", first)
    lines = (tmp_path / "whole").read_bytes().splitlines(keepends=True)
    (tmp_path / "events-000001-000001.jsonl").write_bytes(b"".join(lines[:2]))
    (tmp_path / "events-000001-000002.jsonl").write_bytes(b"".join(lines[2:]))
    write(tmp_path / "events-000002-000001.jsonl", second, NetworkModel(a_ns=7, ring_size=2))
    (tmp_path / "events.jsonl").symlink_to("events-000002-000001.jsonl")
    return tmp_path


def test_all_runs_of_a_folder_are_repeated(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = headway(capsys, "replay", str(folder))
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        f"run 1: {POLICY}: 3 events, 1 decisions: the same decisions.",
        f"run 2: {POLICY}: 7 events, 1 decisions: the same decisions.",
    ]
    state = folder / "state"
    state.mkdir()
    for path in folder.glob("events-*"):
        path.rename(state / path.name)
    (folder / "headway").symlink_to(state)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    assert headway(capsys, "replay").out == outcome.out


def test_the_runs_of_a_folder_become_one_workload(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = folder / "run.csv"
    outcome = headway(capsys, "replay", str(folder), "--workload", str(target))
    assert outcome.status == 0
    assert "skipped" not in outcome.err
    one, two = read_workload(target)
    assert (one.job_id, one.arrival_ns, one.iterations, one.forward_ns) == ("1", 5, 8, 700)
    assert (two.job_id, two.arrival_ns, two.iterations, two.forward_ns) == ("2", 22, 4, 800)
    cluster = cluster_from(str(folder / "run.cluster.toml"))
    assert (cluster.servers, cluster.gpus_per_server) == (2, 2)
    assert cluster.gpu_memory_bytes == 8 * MB
    assert network_from(str(folder / "run.network.toml")) == NetworkModel(a_ns=7, ring_size=2)


def test_a_run_without_its_beginning_is_left_out_and_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "events-000001-000001.jsonl").unlink()
    outcome = headway(capsys, "replay", str(folder))
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "run 1: skipped, the first part of its log is gone.",
        f"run 2: {POLICY}: 7 events, 1 decisions: the same decisions.",
    ]
    (folder / "events-000002-000001.jsonl").rename(folder / "events-000002-000002.jsonl")
    outcome = headway(capsys, "replay", str(folder))
    assert outcome.status == 2
    assert "the first part of every log is gone" in outcome.err


def test_a_folder_without_a_log_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, "replay", str(tmp_path))
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == f"headway: error: {tmp_path}: there is no event log.\n"


def test_a_job_that_lost_all_its_slots_is_part_of_the_workload_too(tmp_path: Path) -> None:
    start = events()[:1]
    start.append(JobSubmitted(at_ns=1, job_id="x", spec=JobSpec(command=("x",))))
    start.append(IterationDone(at_ns=2, job_id="x", attempt=1, iterations=4, **times(5)))
    start.append(NodeLost(at_ns=3, node="a"))
    for told in (start, [*start, JobExited(at_ns=4, job_id="x", attempt=1, code=1)]):
        (job,) = replay(write(tmp_path / "log", told)).history.workload()
        assert job.iterations == 4


def test_a_run_that_cannot_be_simulated_can_still_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = {"forward_ns": 2**61, "backward_ns": 2**61}
    told = events()[:1]
    told.append(JobSubmitted(at_ns=1, job_id="x", spec=JobSpec(command=("x",))))
    told.append(IterationDone(at_ns=2, job_id="x", attempt=1, iterations=10**12, **slow))
    log = write(tmp_path / "log", told)
    assert headway(capsys, "replay", str(log)).status == 0
    target = tmp_path / "w.csv"
    outcome = headway(capsys, "replay", str(log), "--workload", str(target))
    assert outcome.status == 2
    assert f"{log}, iterations: job 'x': too many" in outcome.err
    assert not target.exists()


def test_a_policy_file_that_a_log_names_is_run_only_with_leave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    file = tmp_path / "mine.py"
    file.write_text(f"open({str(ran)!r}, 'w').close()\ndef p(cluster, job, parameter): return 0\n")
    policy = f"ff+{file}:p+srsf:1"
    named = tmp_path / "named.jsonl"
    named.write_bytes(encode_header(policy, NETWORK, 3))
    switched = tmp_path / "switched.jsonl"
    change = encode_entry(PolicyChanged(at_ns=0, policy=policy), [])
    switched.write_bytes(encode_header(POLICY, NETWORK, 3) + change)
    for log, line in ((named, 1), (switched, 2)):
        outcome = headway(capsys, "replay", str(log))
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.startswith(f"headway: error: {log}, line {line}: names the policy")
        assert outcome.err.endswith("give --allow-policy-files.\n")
        assert not ran.exists()
    assert headway(capsys, "replay", str(named), "--allow-policy-files").status == 0
    assert ran.exists()


def profiled(at_ns: int, *buckets: tuple[int, int], job: str = "x") -> IterationProfiled:
    return IterationProfiled(
        at_ns=at_ns,
        job_id=job,
        attempt=1,
        forward_ns=20_000_000,
        optimizer_ns=3_000_000,
        buckets=tuple(MeasuredBucket(*one) for one in buckets),
    )


def test_measured_buckets_become_the_graph_of_an_iteration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = JobSpec(command=("x",), gpus=2, memory_bytes=MB, iterations=9, **times(5))
    told: list[AnyEvent] = [
        *events()[:2],
        JobSubmitted(at_ns=1, job_id="x", spec=spec),
        JobSubmitted(at_ns=2, job_id="y", spec=spec),
        IterationDone(at_ns=3, job_id="x", attempt=1, iterations=2, gradient_bytes=3 * MB),
        IterationDone(at_ns=4, job_id="y", attempt=1, iterations=2, gradient_bytes=3 * MB),
        profiled(5, (1_000, MB)),
        profiled(6, (1_000, MB)),  # too soon after the one before
        profiled(2 * 10**9, (7_000_000, MB), (8_000_000, 2 * MB)),
        JobExited(at_ns=3 * 10**9, job_id="x", attempt=1, code=0),
    ]
    log, target = write(tmp_path / "log", told), tmp_path / "run.csv"
    with open_event_log(log) as reader:
        assert [entry.event for entry in reader] == told
    assert headway(capsys, "replay", str(log), "--workload", str(target)).status == 0
    one, two = read_workload(target)
    assert (one.job_id, one.gpus, one.iterations, one.memory_bytes) == ("x", 2, 2, MB)
    assert one.graph is not None
    assert [(task.name, task.duration_ns, task.after) for task in one.graph.tasks] == [
        ("forward", 20_000_000, ()),
        ("backward-1", 7_000_000, ()),
        ("backward-2", 8_000_000, ()),
        ("optimizer", 3_000_000, ("gradients-1", "gradients-2")),
    ]
    assert [(one.name, one.buffer_bytes, one.after) for one in one.graph.messages] == [
        ("gradients-1", MB, ("backward-1",)),
        ("gradients-2", 2 * MB, ("backward-2",)),
    ]
    assert (two.job_id, two.graph, two.forward_ns, two.gradient_bytes) == ("y", None, 5, 3 * MB)
    assert [path.suffix for path in (tmp_path / "run.graphs").iterdir()] == [".json"]

    # Standard output has no room for graphs.
    outcome = headway(capsys, "replay", str(log), "--workload", "-")
    assert outcome.status == 0
    lines = [line.split(",") for line in outcome.out.splitlines()]
    assert "graph" not in lines[0]
    assert [line[0] for line in lines[1:]] == ["x", "y"]
