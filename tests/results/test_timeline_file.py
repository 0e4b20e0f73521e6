"""Timelines in files hold exactly the engine's tasks; other files are refused with one sentence."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from builders import make_graph_job, make_job, make_workload
from graph_nodes import nodes_of
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.gpus import V100
from headway.domain.job import Job
from headway.domain.records import COMMUNICATION, Records
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.reports.gantt import draw_report
from headway.results.schema import Result
from headway.results.store import write_parquet
from headway.results.timeline import file
from headway.results.timeline.file import read_timeline
from headway.results.timeline.recorded import KINDS, RecordedRun
from headway.results.timeline.sinks import Timeline
from headway.results.timeline.window import Window
from results.recording import (
    CROWD,
    MIX,
    TWO_BY_TWO,
    drop_checksum,
    options_of,
    record,
    window_of,
)
from strategies import Case, cases


def expected_rows(result: Result, tasks: Records, window: Window) -> Counter[tuple[Any, ...]]:
    """Return the rows that a timeline must hold, worked out task by task."""
    rows: Counter[tuple[Any, ...]] = Counter()
    ended: dict[int, int] = {}
    cluster = result.settings.cluster
    for task in tasks:
        job, start, end = int(task.job), int(task.start_ns), int(task.end_ns)
        graph, gpus = result.workload[job].graph, result.gpus[job]
        entry, node, gpu, servers, ready = None, None, None, None, None
        if graph is not None:
            node = int(task.node)
            found = nodes_of(graph)[node]
            entry, gpus = found.entry.name, tuple(gpus[rank] for rank in found.ranks)
        if task.kind == COMMUNICATION:
            servers = tuple(cluster.servers_of(gpus))
            # Those of graphs are checked with the invariants.
            ready = ended[job] if graph is None else int(task.ready_ns)
        else:
            gpu = int(task.gpu)
            assert gpu in gpus
        if task.kind != 0:
            ended[job] = end
        first = start if ready is None else ready
        waits = ready is not None and first == window.to_ns
        if end > window.from_ns and (first < window.to_ns or waits):
            kind, job_id = KINDS[task.kind], result.workload[job].job_id
            where = (entry, node, gpu, servers)
            rows[job, job_id, int(task.iteration), kind, *where, ready, start, end] += 1
    return rows


def rows_of(run: RecordedRun) -> Counter[tuple[Any, ...]]:
    rows = run.tasks.rows()
    return Counter((*row[:7], None if row[7] is None else tuple(row[7]), *row[8:]) for row in rows)


def check(path: Path, workload: Workload, cluster: Cluster, window: Window, **options: Any) -> None:
    """Compare a file with the tasks of the same run, kept in memory."""
    result = simulate(workload, cluster, timeline=Timeline(), **options)
    assert result.timeline is not None
    run = read_timeline(path)
    assert rows_of(run) == expected_rows(result, result.timeline.tasks(), window)
    assert run.tasks["end_ns"].is_sorted()
    assert run.window == window.clipped(int(result.finish_ns.max()))
    assert_frame_equal(run.jobs, result.jobs)
    assert run.settings == result.settings.to_dict()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases() | cases(graphs=True), cut=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_any_run_and_any_window_of_it_is_written_exactly(
    tmp_path: Path, case: Case, cut: tuple[float, float]
) -> None:
    options = options_of(case)
    result = record(tmp_path / "t", case.workload, case.cluster, **options)
    check(tmp_path / "t", case.workload, case.cluster, Window(), **options)
    window = window_of(result, cut)
    record(tmp_path / "t", case.workload, case.cluster, window, **options)
    check(tmp_path / "t", case.workload, case.cluster, window, **options)


@pytest.mark.parametrize("workload", [CROWD, MIX])
def test_a_long_run_is_written_in_parts(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "whole", workload, TWO_BY_TWO)
    monkeypatch.setattr(file, "PART_ROWS", 10)
    monkeypatch.setattr("headway.engine.run._TIMELINE_ROWS", 1)
    record(tmp_path / "parts", workload, TWO_BY_TWO)
    assert_frame_equal(
        read_timeline(tmp_path / "parts").tasks, read_timeline(tmp_path / "whole").tasks
    )
    assert sorted(os.listdir(tmp_path)) == ["parts", "whole"]


@pytest.mark.parametrize("workload", [CROWD, MIX])
def test_a_timeline_in_memory_is_the_same_run(workload: Workload, tmp_path: Path) -> None:
    record(tmp_path / "t", workload, TWO_BY_TWO)
    recorded = read_timeline(tmp_path / "t")
    run = RecordedRun.of(simulate(workload, TWO_BY_TWO, timeline=Timeline()))
    assert run.graphs == recorded.graphs == tuple(job.graph for job in workload)
    assert_frame_equal(run.tasks, recorded.tasks)
    assert_frame_equal(run.jobs, recorded.jobs)
    assert run.settings == recorded.settings
    assert run.server_gpus == recorded.server_gpus
    assert run.window == recorded.window


def test_a_result_without_a_timeline_says_how_to_record_one() -> None:
    with pytest.raises(InputError, match=r"simulate\(\.\.\., timeline=headway\.Timeline\(\)\)"):
        RecordedRun.of(simulate(CROWD, TWO_BY_TWO))


def test_servers_may_have_different_numbers_of_gpus(tmp_path: Path) -> None:
    cluster = Cluster.of([ServerGroup(1, 3, V100), ServerGroup(2, 1, V100)])
    record(tmp_path / "t", CROWD, cluster)
    run = read_timeline(tmp_path / "t")
    assert run.server_gpus == (3, 1, 1)
    assert run.server_of_gpu.tolist() == [0, 0, 0, 1, 2]
    draw_report(run)


@pytest.mark.parametrize("workload", [CROWD, MIX])
def test_steps_are_the_counters_recounted_at_every_instant(
    workload: Workload, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"policy": "ls+srsf:2"}
    result = record(tmp_path / "t", workload, TWO_BY_TWO, **options)
    run = read_timeline(tmp_path / "t")
    messages = run.messages.rows(named=True)
    steps = run.steps
    assert (np.diff(steps.time_ns) > 0).all()
    assert (steps.time_ns[0], steps.time_ns[-1]) == (0, result.finish_ns.max())
    for index, now in enumerate(steps.time_ns.tolist()):
        queued = (result.arrival_ns <= now) & (now < result.start_ns)
        running = [m for m in messages if m["start_ns"] <= now < m["end_ns"]]
        assert steps.queued[index] == queued.sum()
        assert steps.running[index] == len(running)
        waiting = sum(m["ready_ns"] <= now < m["start_ns"] for m in messages)
        assert steps.waiting[index] == waiting
        assert steps.peak[index] == max(
            sum(server in m["servers"] for m in running) for server in range(2)
        )
    assert steps.peak.max() > 1
    assert steps.waiting.max() > 0


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases() | cases(graphs=True), cut=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_a_window_counts_what_the_whole_run_counts(
    tmp_path: Path, case: Case, cut: tuple[float, float]
) -> None:
    options = options_of(case)
    result = record(tmp_path / "t", case.workload, case.cluster, **options)
    whole, window = read_timeline(tmp_path / "t").steps, window_of(result, cut)
    record(tmp_path / "t", case.workload, case.cluster, window, **options)
    part = read_timeline(tmp_path / "t").steps
    at = np.searchsorted(whole.time_ns, part.time_ns, side="right") - 1
    for name in ("queued", "running", "waiting", "peak"):
        assert getattr(part, name).tolist() == getattr(whole, name)[at].tolist()


@pytest.mark.parametrize("job_id", ["ü β 🚂", 'a,"#3 forward', "x" * 5_000])
def test_ids_of_all_kinds_come_through(tmp_path: Path, job_id: str) -> None:
    workload = Workload(
        [Job(job_id, 0, 4, 12, 1_000, 1_000, 1_000, 1), Job("other", 0, 4, 12, 5, 5, 5, 1)]
    )
    record(tmp_path / "t", workload, TWO_BY_TWO)
    assert set(read_timeline(tmp_path / "t").tasks["job_id"]) == {job_id, "other"}


def test_late_starts_are_written_to_the_nanosecond(tmp_path: Path) -> None:
    record(tmp_path / "t", make_workload(make_job(gpus=2, arrival_ns=2**61 + 1)), Cluster(2, 1))
    assert read_timeline(tmp_path / "t").tasks["start_ns"].min() == 2**61 + 1


def test_it_works_without_the_compiler(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from results.recording import CROWD, TWO_BY_TWO, record\n"
        "from headway.results.timeline.file import read_timeline\n"
        "record(Path(sys.argv[1]), CROWD, TWO_BY_TWO)\n"
        "print(len(read_timeline(sys.argv[1]).steps.peak))\n"
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
    slow, quick = read_timeline(tmp_path / "slow"), read_timeline(tmp_path / "quick")
    assert_frame_equal(slow.tasks, quick.tasks)
    assert int(done.stdout) == len(quick.steps.peak)


def test_a_path_is_not_a_pattern(tmp_path: Path) -> None:
    record(tmp_path / "run[1]*.parquet", CROWD, TWO_BY_TWO)
    assert len(read_timeline(tmp_path / "run[1]*.parquet").tasks) > 0


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the content of a timeline."""
    path = tmp_path_factory.mktemp("good") / "t"
    record(path, make_workload(*[make_job(gpus=2, iterations=3)] * 2), Cluster(2, 1))
    return path.read_bytes()


@pytest.fixture(scope="module")
def good_mix(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the content of a timeline of a plain job and one with a graph."""
    path = tmp_path_factory.mktemp("good") / "t"
    jobs = [make_job(gpus=2, iterations=3), make_graph_job("ddp", iterations=3)]
    record(path, make_workload(*jobs), Cluster(4, 1))
    return path.read_bytes()


NOT_OURS = "is not a timeline from `headway simulate --timeline`."
FOREIGN = {
    "an empty file": (b"", "is empty; a timeline comes from `headway simulate --timeline`."),
    "text": (b"job_id,arrival_s,gpus,iterations,model\n", NOT_OURS),
    "zeros": (bytes(1000), NOT_OURS),
    "a compressed file": (b"\x1f\x8b\x08" + bytes(100), NOT_OURS),
    "the first bytes": (b"PAR", "is cut off after 3 bytes."),
    "nothing but the mark": (b"PAR1", "is cut off after 4 bytes."),
    "two marks": (b"PAR1PAR1", "is cut off after 8 bytes."),
    "a footer with a huge length": (b"PAR1\xff\xff\xff\x7fPAR1", "is damaged: "),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_no_timeline_is_refused(name: str, tmp_path: Path) -> None:
    content, message = FOREIGN[name]
    path = tmp_path / "t.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"{path}: {message}")):
        read_timeline(path)


def test_tables_and_results_are_no_timelines(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    polars.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(InputError, match=re.escape(f"{path}: {NOT_OURS}")):
        read_timeline(path)
    write_parquet(simulate(CROWD, TWO_BY_TWO), path)
    with pytest.raises(InputError, match=re.escape(f"{path}: {NOT_OURS}")):
        read_timeline(path)


def test_an_export_for_perfetto_is_refused_by_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    path.write_bytes(b"\x0a\x0b")
    with pytest.raises(InputError, match=r"is an export for Perfetto.* --timeline FILE\.parquet"):
        read_timeline(path)


def rewritten(good: bytes, path: Path, *changes: polars.Expr, **metadata: str | None) -> None:
    """Write a timeline with changed columns or metadata."""
    known = polars.read_parquet_metadata(BytesIO(good))
    kept = {key: value for key, value in known.items() if key.startswith("headway.")}
    for name, value in metadata.items():
        kept.pop(f"headway.{name}")
        if value is not None:
            kept[f"headway.{name}"] = value
    polars.read_parquet(BytesIO(good)).with_columns(*changes).write_parquet(path, metadata=kept)


@pytest.mark.parametrize(
    "name",
    ["timeline", "window", "jobs", "server_gpus", "settings", "graphs", "graph_of_job"],
)
@pytest.mark.parametrize(
    "value",
    [
        *(None, "{", "null", "[]", '"x"', "7", "[1, -2, 3]", "{}", '"\\ud800"'),
        *(f"[0, {'9' * 30}]", "[" * 100_000 + "]" * 100_000),
    ],
    ids=lambda value: str(value)[:12],
)
def test_damaged_metadata_is_refused(
    good_mix: bytes, name: str, value: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    rewritten(good_mix, path, **{name: value})
    with pytest.raises(InputError) as caught:
        read_timeline(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_another_version_of_the_format_is_named(good: bytes, tmp_path: Path) -> None:
    rewritten(good, tmp_path / "t", timeline="1")
    message = r"has format 1 of timelines.* reads format 2; record the run again\."
    with pytest.raises(InputError, match=message):
        read_timeline(tmp_path / "t")


COL, INT32 = polars.col, polars.Int32
WRONG = {
    "an unknown job": polars.lit(2, INT32).alias("job"),
    "a negative job": polars.lit(-1, INT32).alias("job"),
    "no job": polars.lit(None, INT32).alias("job"),
    "an unknown GPU": COL("gpu") + 1,
    "no GPU": polars.lit(None, INT32).alias("gpu"),
    "an unknown server": COL("servers").list.eval(polars.element() + 1),
    "no servers": COL("servers").list.head(0),
    "a message ready after its start": COL("ready_ns") + 10**9,
    "an end before the start": COL("start_ns") - 10**9,
    "a negative iteration": COL("iteration") - 1,
    "a column of another type": COL("iteration").cast(INT32),
    "an unknown node": COL("node") + 1,
    "a negative node": COL("node") - 1,
    "a task that is a message": COL("node").reverse(),
    "no node": polars.lit(None, INT32).alias("node"),
    "a node without a graph": COL("node").fill_null(0),
    "no entry": COL("entry").shift(1000),
    "passes of a graph": COL("kind").replace("compute", "forward"),
    "a graph's task without one": COL("kind").replace("forward", "compute"),
}


@pytest.mark.parametrize("name", WRONG)
def test_impossible_tasks_are_refused(good_mix: bytes, name: str, tmp_path: Path) -> None:
    rewritten(good_mix, tmp_path / "t", WRONG[name])
    with pytest.raises(InputError, match="t: is damaged: "):
        read_timeline(tmp_path / "t")


def test_a_timeline_cut_off_anywhere_is_refused(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for size in range(1, len(good), 7):
        path.write_bytes(good[:size])
        with pytest.raises(InputError, match="is cut off after"):
            read_timeline(path)


def test_no_flipped_bit_changes_a_timeline(good: bytes, tmp_path: Path) -> None:
    chance, path = random.Random(0), tmp_path / "t.parquet"
    path.write_bytes(good)
    whole = read_timeline(path)
    refused = 0
    for _ in range(200):
        content = bytearray(good)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        try:
            run = read_timeline(path)
        except InputError:
            refused += 1
            continue
        assert_frame_equal(run.tasks, whole.tasks)
        assert_frame_equal(run.jobs, whole.jobs)
        assert (run.settings, run.window) == (whole.settings, whole.window)
    assert refused > 150


def test_damaged_bytes_without_a_checksum_are_refused_or_harmless(
    good: bytes, tmp_path: Path
) -> None:
    chance = random.Random(0)
    path = tmp_path / "t.parquet"
    path.write_bytes(good)
    drop_checksum(path)
    good = path.read_bytes()
    read, messages = 0, set[str]()
    for _ in range(300):
        content = bytearray(good)
        for _ in range(chance.choice((1, 1, 1, 5))):
            content[chance.randrange(4, len(content) - 4)] = chance.randrange(256)
        path.write_bytes(content)
        try:
            run = read_timeline(path)
        except InputError as error:
            messages.add(str(error))
        else:
            read += 1
            if read % 20 == 0:
                draw_report(run)
    assert read > 20
    assert messages
    assert all(text.startswith(f"{path}: ") and "\n" not in text for text in messages)
