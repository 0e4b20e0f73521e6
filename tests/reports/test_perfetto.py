"""A Perfetto trace holds exactly the engine's tasks, written directly or exported."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.reports.perfetto import export_perfetto, perfetto_timeline
from headway.results.schema import Result
from headway.results.timeline.file import read_timeline
from headway.results.timeline.sinks import Timeline
from headway.results.timeline.window import Window
from reports.perfetto_traces import Trace, expected_counters, expected_slices, parse
from results import recording
from results.recording import CROWD, MIX, TWO_BY_TWO, window_of
from strategies import Case, cases


def record(
    path: Path,
    workload: Workload,
    cluster: Cluster,
    window: Window | None = None,
    **options: Any,
) -> Result:
    """Simulate and write a trace directly."""
    with perfetto_timeline(path, workload, cluster, window) as sink:
        result = simulate(workload, cluster, timeline=sink, **options)
        return sink.finish(result)


def check(path: Path, result: Result, window: Window | None = None, **options: Any) -> None:
    """Compare a timeline with the tasks of the same run, kept in memory."""
    window = window or Window()
    timeline = Timeline()
    simulate(result.workload, result.settings.cluster, timeline=timeline, **options)
    tasks = timeline.tasks()
    parsed = parse(path)
    assert parsed.named_slices() == expected_slices(result, tasks, window)
    assert parsed.points == expected_counters(result, tasks, window)


@pytest.mark.parametrize("placement", ["rand", "ff", "ls", "lwf:1", "lwf:2"])
@pytest.mark.parametrize("scheduler", ["ada-srsf", "srsf:1", "srsf:2", "srsf:3"])
@pytest.mark.parametrize("network", ["10gbe", "no-contention"])
def test_a_timeline_holds_exactly_the_tasks_and_counters(
    tmp_path: Path, placement: str, scheduler: str, network: str
) -> None:
    options: dict[str, Any] = {"policy": f"{placement}+{scheduler}", "network": network}
    result = record(tmp_path / "t", CROWD, TWO_BY_TWO, **options)
    check(tmp_path / "t", result, **options)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases() | cases(graphs=True), cut=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_any_run_and_any_window_of_it_is_written_exactly(
    tmp_path: Path, case: Case, cut: tuple[float, float]
) -> None:
    options: dict[str, Any] = {
        "network": case.network,
        "policy": case.policies.override(bucket_mb=0),
        "seed": case.seed,
    }
    result = record(tmp_path / "t", case.workload, case.cluster, **options)
    check(tmp_path / "t", result, **options)
    window = window_of(result, cut)
    result = record(tmp_path / "t", case.workload, case.cluster, window, **options)
    check(tmp_path / "t", result, window, **options)
    recording.record(tmp_path / "p", case.workload, case.cluster, window, **options)
    export_perfetto(read_timeline(tmp_path / "p"), tmp_path / "t")
    check(tmp_path / "t", result, window, **options)


@pytest.mark.parametrize("workload", [CROWD, MIX])
def test_an_export_is_what_is_written_directly(workload: Workload, tmp_path: Path) -> None:
    options: dict[str, Any] = {"policy": "ls+srsf:3"}
    record(tmp_path / "direct", workload, TWO_BY_TWO, **options)
    recording.record(tmp_path / "p", workload, TWO_BY_TWO, **options)
    export_perfetto(read_timeline(tmp_path / "p"), tmp_path / "export")
    export, direct = parse(tmp_path / "export"), parse(tmp_path / "direct")
    assert export.named_slices() == direct.named_slices()
    assert export.points == direct.points
    paths = [sorted(map(trace.path, trace.descriptors)) for trace in (export, direct)]
    assert paths[0] == paths[1]


@pytest.mark.parametrize(
    "window", [Window(0, 1), Window(5_000_000, 9_000_000), Window(5_000_000), Window(0, 2**62)]
)
def test_a_window_keeps_whole_tasks(tmp_path: Path, window: Window) -> None:
    result = record(tmp_path / "t", CROWD, TWO_BY_TWO, window)
    check(tmp_path / "t", result, window)


def test_a_window_may_begin_and_end_at_the_instants_of_the_run(tmp_path: Path) -> None:
    options: dict[str, Any] = {"policy": "ls+srsf:1"}
    timeline = Timeline()
    simulate(CROWD, TWO_BY_TWO, timeline=timeline, **options)
    instants = np.unique(timeline.tasks().start_ns)[::6].tolist()
    for from_ns, to_ns in itertools.pairwise(instants):
        window = Window(from_ns, to_ns)
        result = record(tmp_path / "t", CROWD, TWO_BY_TWO, window, **options)
        check(tmp_path / "t", result, window, **options)


def test_messages_that_follow_each_other_share_a_lane(tmp_path: Path) -> None:
    jobs = [make_job(gpus=2, iterations=4, gradient_bytes=10**8)] * 5
    record(tmp_path / "t", make_workload(*jobs), Cluster(2, 1), policy="lwf:1+srsf:1")
    parsed = parse(tmp_path / "t")
    assert sum(d.name == "network" for d in parsed.descriptors.values()) == 2


def test_overlapping_messages_share_as_few_lanes_as_they_can(tmp_path: Path) -> None:
    jobs = [make_job(gpus=2, iterations=4, gradient_bytes=10**6 * (1 + 3 * i)) for i in range(12)]
    options: dict[str, Any] = {"policy": "ff+srsf+srsf:12"}
    cluster = Cluster(2, 1)
    record(tmp_path / "t", make_workload(*jobs), cluster, **options)
    parsed = parse(tmp_path / "t")
    most = max(value for _, value in parsed.points["cluster/server 0/messages"])
    lanes = [uuid for uuid, d in parsed.descriptors.items() if d.name == "network"]
    assert most > 4
    assert len(lanes) == 2 * most


def test_servers_and_their_tracks_are_ordered_by_number(tmp_path: Path) -> None:
    record(tmp_path / "t", make_workload(make_job(gpus=20)), Cluster(12, 2))
    parsed = parse(tmp_path / "t")
    ranked: dict[int, list[tuple[int, str]]] = {}
    for descriptor in parsed.descriptors.values():
        if descriptor.parent_uuid:
            assert parsed.descriptors[descriptor.parent_uuid].child_ordering == 3
            entry = (descriptor.sibling_order_rank, descriptor.name)
            ranked.setdefault(descriptor.parent_uuid, []).append(entry)
    names = {parsed.path(uuid): [name for _, name in sorted(own)] for uuid, own in ranked.items()}
    counters = ["queued jobs", "messages running", "messages waiting"]
    assert names["cluster"] == [*counters, *(f"server {s}" for s in range(12)), "jobs"]
    assert names["cluster/jobs"] == ["0"]
    assert names["cluster/server 9"] == ["messages", "network", "GPU 18", "GPU 19"]
    assert names["cluster/server 11"] == ["messages", "GPU 22", "GPU 23"]


@pytest.mark.parametrize("workload", [CROWD, MIX])
def test_the_same_run_gives_the_same_bytes_however_it_is_cut(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "a", workload, TWO_BY_TWO)
    record(tmp_path / "b", workload, TWO_BY_TWO)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    monkeypatch.setattr("headway.reports.perfetto.BUFFER_BYTES", 1)
    monkeypatch.setattr("headway.engine.run._TIMELINE_ROWS", 1)
    result = record(tmp_path / "c", workload, TWO_BY_TWO)
    check(tmp_path / "c", result)
    pieces, whole = parse(tmp_path / "c"), parse(tmp_path / "a")
    assert (pieces.slices, pieces.points) == (whole.slices, whole.points)


def test_numbers_are_as_short_as_can_be(tmp_path: Path) -> None:
    record(tmp_path / "t", CROWD, TWO_BY_TWO)
    content = (tmp_path / "t").read_bytes()
    assert len(Trace.FromString(content).SerializeToString()) == len(content)


def test_it_works_without_the_compiler(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from reports.test_perfetto import CROWD, TWO_BY_TWO, record\n"
        "record(Path(sys.argv[1]), CROWD, TWO_BY_TWO)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, tmp_path / "slow", Path(__file__).parents[1]],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    record(tmp_path / "quick", CROWD, TWO_BY_TWO)
    assert (tmp_path / "slow").read_bytes() == (tmp_path / "quick").read_bytes()


@pytest.mark.parametrize("job_id", ["ü β 🚂", 'a,"#3 forward', "x" * 5_000])
def test_ids_of_all_kinds_come_through(tmp_path: Path, job_id: str) -> None:
    workload = Workload(
        [Job(job_id, 0, 4, 12, 1_000, 1_000, 1_000, 1), Job("other", 0, 4, 12, 5, 5, 5, 1)]
    )
    record(tmp_path / "t", workload, TWO_BY_TWO)
    names = {name for _, _, name, _, _ in parse(tmp_path / "t").slices}
    assert f"{job_id} #11 all-reduce" in names


@pytest.mark.parametrize("name", ["ü β 🚂", "x" * 5_000, "#1 forward"])
def test_entries_of_all_names_come_through(tmp_path: Path, name: str) -> None:
    graph = Graph(2, [Task(name, [0, 1], 5)], [Message("m", "send", [[0, 1]], 5)])
    workload = Workload([Job("0", 0, 2, 3, graph=graph), Job("1", 0, 4, 12, 5, 5, 5, 1)])
    record(tmp_path / "t", workload, TWO_BY_TWO)
    slices = {(category, text) for _, category, text, _, _ in parse(tmp_path / "t").slices}
    assert ("compute", f"0 #2 {name}") in slices
    recording.record(tmp_path / "p", workload, TWO_BY_TWO)
    assert name in set(read_timeline(tmp_path / "p").tasks["entry"])


def test_late_starts_are_written_to_the_nanosecond(tmp_path: Path) -> None:
    late = make_workload(make_job(gpus=2, arrival_ns=2**61 + 1))
    result = record(tmp_path / "t", late, Cluster(2, 1))
    check(tmp_path / "t", result)
