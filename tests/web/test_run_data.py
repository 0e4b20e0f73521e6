"""The blocks that the page reads say what the timeline says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import make_graph_job, make_job, make_workload
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.workload import Workload
from headway.results.timeline.file import read_timeline
from headway.results.timeline.recorded import RecordedRun
from headway.results.timeline.window import Window
from headway.web import run_data
from headway.web.columns import pack, unpack
from headway.web.periods import Periods
from headway.web.run_data import RunData
from results.recording import CROWD, MIX, TWO_BY_TWO, record

Columns = dict[str, Any]


def recorded(path: Path, workload: Workload, cluster: Cluster = TWO_BY_TWO) -> RecordedRun:
    record(path / "run.parquet", workload, cluster)
    return read_timeline(path / "run.parquet")


@pytest.fixture(params=["crowd", "mix"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RecordedRun:
    return recorded(tmp_path, CROWD if request.param == "crowd" else MIX)


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=9), max_size=4),
    st.text(max_size=5),
)
def test_a_block_holds_what_was_packed(rows: list[list[int]], text: str) -> None:
    values = {"name": text, "window": [0, 2**53]}
    columns = {str(index): np.array(row, np.int64) for index, row in enumerate(rows)}
    found, read = unpack(pack(values, columns))
    assert found == values
    assert {name: column.tolist() for name, column in read.items()} == {
        name: column.tolist() for name, column in columns.items()
    }


spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 30)), max_size=12
).map(lambda rows: [(row, start, start + length) for row, start, length in rows])


@settings(max_examples=50)
@given(spans, st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_means_and_maxima_over_periods_are_those_of_every_instant(
    rows: list[tuple[int, int, int]], counts: list[int]
) -> None:
    # Every period is `scale` ns long, and so is the distance of two instants.
    scale = 7
    periods = Periods(np.zeros(3, np.int64), scale * np.array(counts), np.array(counts))
    columns = [np.array([one[part] for one in rows], np.int64) for part in range(3)]
    mean, most = periods.mean(*columns), periods.most(*columns)
    ends = periods.count_before(columns[0], columns[2])
    at = 0
    for row, count in enumerate(counts):
        own = [(start, end) for owner, start, end in rows if owner == row]
        for period in range(count):
            instants = range(scale * period, scale * (period + 1))
            levels = [sum(start <= now < end for start, end in own) for now in instants]
            assert mean[at] == pytest.approx(sum(levels) / scale)
            is_last = period == count - 1
            beyond = [sum(start <= now < end for start, end in own) for now in range(200)]
            assert max(levels) <= most[at] <= (max(beyond) if is_last else max(levels))
            until = 200 if is_last else scale * (period + 1)
            assert ends[at] == sum(end < until for _, end in own)
            at += 1


def parts_of(data: RunData) -> list[tuple[dict[str, Any], Columns]]:
    return [unpack(data.part(number)) for number in range(data.parts)]


def messages_of(columns: Columns) -> set[tuple[int, ...]]:
    """Return (job, group, iteration, ready, start, end) as the page works them out."""
    length = columns["message_wait"] + columns["message_length"]
    ready = np.cumsum(columns["message_gap"] + length) - length
    start = ready + columns["message_wait"]
    steps = ("message_job_step", "message_group_step", "message_iteration_step")
    rows = [np.cumsum(columns[name]).tolist() for name in steps]
    times = [column.tolist() for column in (ready, start, ready + length)]
    return set(zip(*rows, *times, strict=True))


def computing_of(columns: Columns) -> set[tuple[int, int, int]]:
    length = columns["computing_length"]
    end = np.cumsum(columns["computing_gap"] + length)
    job = np.cumsum(columns["computing_job_step"])
    return set(zip(job.tolist(), (end - length).tolist(), end.tolist(), strict=True))


def union(rows: Iterable[Any]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(rows):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def test_parts_hold_every_message_and_all_computing(
    run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_data, "PART_ROWS", 20)
    data = RunData(run, "run")
    values, overview = unpack(data.overview)
    first = np.cumsum(overview["group_size"]) - overview["group_size"]
    parts = parts_of(data)
    assert len(parts) > 2
    assert [part["from"] for part, _ in parts] == values["part_from"]
    found = set()
    for part, columns in parts:
        rows = messages_of(columns)
        assert all(ready < part["to"] and end > part["from"] for *_, ready, _, end in rows)
        for job, group, *rest in rows:
            size = overview["group_size"][group]
            servers = overview["group_server"][first[group] : first[group] + size]
            found.add((job, tuple(servers.tolist()), *rest))
    names = ("job", "servers", "iteration", "ready_ns", "start_ns", "end_ns")
    expected = {(row[0], tuple(row[1]), *row[2:]) for row in run.messages.select(names).rows()}
    assert found == expected
    compute = run.tasks.filter(polars.col("gpu").is_not_null())
    spans = {
        (job, *span)
        for (job,), rows in compute.group_by("job")
        for span in union(rows.select("start_ns", "end_ns").rows())
    }
    assert (
        set[tuple[int, int, int]]().union(*(computing_of(columns) for _, columns in parts)) == spans
    )


def test_the_parts_of_a_job_add_up(run: RecordedRun) -> None:
    _, overview = unpack(RunData(run, "run").overview)
    _, columns = unpack(RunData(run, "run").part(0))
    messages, computing = messages_of(columns), computing_of(columns)
    for job in range(len(run.jobs)):
        compute = [(start, end) for owner, start, end in computing if owner == job]
        sending = [(row[4], row[5]) for row in messages if row[0] == job]
        waiting = [(row[3], row[4]) for row in messages if row[0] == job]
        lengths = [
            sum(end - start for start, end in union(rows))
            for rows in (compute, compute + sending, compute + sending + waiting)
        ]
        found = [overview[f"{name}_total"][job] for name in ("computing", "sending", "waiting")]
        assert found == [lengths[0], lengths[1] - lengths[0], lengths[2] - lengths[1]]
        assert lengths[2] <= overview["finish"][job] - overview["start"][job]


def test_the_overview_has_means_of_what_is_exact_in_parts(run: RecordedRun) -> None:
    values, overview = unpack(RunData(run, "run").overview)
    periods = values["periods"]
    length_ns = values["window"][1] / periods
    sent_ns = run.messages.select(
        (polars.col("end_ns") - polars.col("start_ns")) * polars.col("servers").list.len()
    ).sum()
    assert overview["server_mean"].sum() / 100 * length_ns == pytest.approx(sent_ns.item(), rel=0.1)
    servers = run.servers
    assert len(overview["server_mean"]) == len(overview["server_most"]) == servers * periods
    assert overview["server_most"].max() == run.steps.peak.max()
    per_job = overview["job_periods"]
    ends = np.cumsum(per_job) - 1
    assert np.cumsum(overview["iteration_step"])[ends].tolist() == overview["iterations"].tolist()
    share = overview["computing"].reshape(len(per_job), -1).mean(axis=1) / 255
    life_ns = overview["finish"] - overview["start"]
    assert share * life_ns == pytest.approx(overview["computing_total"].astype(float), rel=0.02)


def test_entries_of_graphs_and_racks_have_their_names(tmp_path: Path) -> None:
    cluster = Cluster.of([ServerGroup(1, 2, rack="left"), ServerGroup(1, 2, rack="right")])
    workload = make_workload(make_graph_job("ddp", iterations=2), make_job(gpus=2))
    data = RunData(recorded(tmp_path, workload, cluster), "run")
    values, overview = unpack(data.overview)
    assert values["rack"] == ["left", "right"]
    assert overview["server_rack"].tolist() == [0, 1]
    _, columns = unpack(data.part(0))
    named = {values["entry"][entry] for entry in columns["message_entry"] if entry >= 0}
    messages = read_timeline(tmp_path / "run.parquet").messages
    assert named == set(messages["entry"].drop_nulls().to_list())
    assert named


def test_racks_of_equal_size_are_numbered(tmp_path: Path) -> None:
    cluster = Cluster(4, 1, servers_per_rack=2)
    values, overview = unpack(RunData(recorded(tmp_path, CROWD, cluster), "run").overview)
    assert values["rack"] == ["0", "1"]
    assert overview["server_rack"].tolist() == [0, 0, 1, 1]


def test_a_part_of_a_run_can_be_shown_too(tmp_path: Path) -> None:
    result = record(tmp_path / "all.parquet", CROWD, TWO_BY_TWO)
    last_ns = int(result.finish_ns.max())
    window = Window(last_ns // 2, last_ns // 2 + last_ns // 50)
    record(tmp_path / "some.parquet", CROWD, TWO_BY_TWO, window)
    data = RunData(read_timeline(tmp_path / "some.parquet"), "run")
    values, _ = unpack(data.overview)
    assert values["window"] == [window.from_ns, window.to_ns]
    assert not values["whole"]
    assert data.parts == 1


def test_a_run_on_one_server_has_no_messages(tmp_path: Path) -> None:
    data = RunData(
        recorded(tmp_path, make_workload(make_job(gpus=2, iterations=3)), Cluster(1, 2)), "run"
    )
    values, overview = unpack(data.overview)
    _, columns = unpack(data.part(0))
    assert len(columns["message_gap"]) == 0
    assert not overview["server_most"].any()
    assert values["part_from"] == [0]


def test_parts_that_are_too_large_are_left_out(run: RecordedRun) -> None:
    data = RunData(run, "run")
    assert data.all_parts(10) is None
    assert data.all_parts(1 << 20) == [data.part(0)]
