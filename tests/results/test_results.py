"""Summaries, and results on disk."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars
import pytest
from polars.testing import assert_frame_equal

from builders import EXAMPLES, make_job, make_workload
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.gpus import V100, GpuType
from headway.domain.graph import Graph, Task
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.figure_style import write_figure
from headway.results.schema import Result
from headway.results.store import code_version, read_result, write_json, write_parquet
from results.recording import MIX, TWO_BY_TWO


@pytest.fixture(scope="module")
def result() -> Result:
    jobs = [make_job(gpus=g, iterations=i, arrival_ns=i) for g, i in ((1, 3), (2, 4), (4, 2))]
    return simulate(make_workload(*jobs), "2x2")


def test_the_summary_follows_from_the_jobs(result: Result) -> None:
    jct = (result.finish_ns - result.arrival_ns) / 1e9
    summary = result.summary
    assert summary.average_jct_s == jct.mean()
    assert summary.median_jct_s == np.median(jct)
    assert summary.p95_jct_s == np.percentile(jct, 95)
    assert summary.makespan_s == (result.finish_ns.max() - 2) / 1e9
    assert result.jct_s.tolist() == jct.tolist()


COLUMNS = {
    "job_id": polars.String(),
    "model": polars.String(),
    "gpu_count": polars.Int64(),
    "iterations": polars.Int64(),
    "arrival_ns": polars.Int64(),
    "start_ns": polars.Int64(),
    "finish_ns": polars.Int64(),
    "jct_s": polars.Float64(),
    "jct_margin_s": polars.Float64(),
    "waiting_s": polars.Float64(),
    "gpus": polars.List(polars.Int64),
    "energy_j": polars.Float64(),
}
RUN_KEYS = ["summary", "settings", "estimated", "gpu_busy_ns", "time_parts_ns"]


def test_the_jobs_are_a_table(result: Result) -> None:
    jobs = result.jobs
    assert dict(jobs.schema) == COLUMNS
    assert jobs["job_id"].to_list() == ["0", "1", "2"]
    assert jobs["gpu_count"].to_list() == [1, 2, 4]
    assert jobs["iterations"].to_list() == [3, 4, 2]
    assert jobs["start_ns"].to_list() == result.start_ns.tolist()
    assert jobs["finish_ns"].to_list() == result.finish_ns.tolist()
    assert jobs["jct_s"].to_list() == result.jct_s.tolist()
    waiting_ns = result.start_ns - result.arrival_ns
    assert jobs["waiting_s"].to_list() == (waiting_ns / 1e9).tolist()
    assert jobs["gpus"].to_list() == [list(gpus) for gpus in result.gpus]
    assert jobs["energy_j"].to_list() == result.energy_j.tolist()


def test_the_json_has_the_fixed_shape(result: Result, tmp_path: Path) -> None:
    write_json(result, tmp_path / "out.json")
    data = json.loads((tmp_path / "out.json").read_text())
    assert sorted(data) == sorted([*RUN_KEYS, "code", "checksum", "jobs"])
    del data["checksum"]
    assert list(data["summary"]) == [
        "average_jct_s",
        "average_jct_margin_s",
        "median_jct_s",
        "p95_jct_s",
        "makespan_s",
        "makespan_margin_s",
        "average_gpu_utilization",
        "energy_j",
        "simulated_tasks",
        "skipped_tasks",
        "sampled_share",
        "wall_s",
    ]
    assert [list(job) for job in data["jobs"]] == [list(COLUMNS)] * 3
    assert data == json.loads(json.dumps(result.to_dict()))
    assert data["jobs"] == result.jobs.to_dicts()
    assert data["jobs"][2]["gpus"] == [0, 1, 2, 3]
    assert data["settings"]["placement"] == "lwf:1"


def test_json_and_parquet_hold_the_same(result: Result, tmp_path: Path) -> None:
    write_json(result, tmp_path / "out.json")
    write_parquet(result, tmp_path / "out.parquet")
    data = json.loads((tmp_path / "out.json").read_text())
    assert_frame_equal(polars.read_parquet(tmp_path / "out.parquet"), result.jobs)
    metadata = polars.read_parquet_metadata(tmp_path / "out.parquet")
    assert metadata["headway.code"] == data["code"] == code_version()
    for key in RUN_KEYS:
        assert json.loads(metadata[f"headway.{key}"]) == data[key]
    assert data["gpu_busy_ns"] == result.gpu_busy_ns.tolist()


@pytest.mark.parametrize("write", [write_json, write_parquet])
def test_a_result_can_be_read_back(
    result: Result, tmp_path: Path, write: Callable[[Result, Path], None]
) -> None:
    write(result, tmp_path / "out")
    stored = read_result(tmp_path / "out")
    assert_frame_equal(stored.jobs, result.jobs)
    assert stored.summary == result.summary
    assert stored.settings == result.settings
    assert stored.gpu_busy_ns.tolist() == result.gpu_busy_ns.tolist()
    assert stored.estimated == result.estimated
    assert (stored.code, stored.source) == (code_version(), str(tmp_path / "out"))


@pytest.mark.parametrize("write", [write_json, write_parquet])
@pytest.mark.parametrize("cluster", ["2x2", f"{EXAMPLES}/mixed-cluster.toml"])
def test_a_result_from_a_file_shows_what_the_run_did(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Result, Path], None],
    cluster: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = simulate(make_workload(*(make_job(gpus=g, iterations=3) for g in (1, 2, 4))), cluster)
    write(result, Path("out"))
    stored = read_result("out")
    assert repr(stored) == repr(result).replace("Result", "StoredResult")
    words = " ".join(str(result).split())
    assert " ".join(str(stored).split()) == words.replace("3 jobs on", "3 jobs from out on")
    assert_frame_equal(stored.time_parts, result.time_parts)
    assert_frame_equal(stored.utilization(5), result.utilization(5))
    assert stored.use_by_type == result.use_by_type
    assert stored.gpus == result.gpus
    for name in ("arrival_ns", "start_ns", "finish_ns", "jct_s", "jct_margin_s", "energy_j"):
        assert getattr(stored, name).tolist() == getattr(result, name).tolist()
    for draw in ("plot", "plot_jct", "plot_use"):
        drawn = []
        for one in (stored, result):
            stream = BytesIO()
            write_figure(getattr(one, draw)(), stream, "png")
            drawn.append(stream.getvalue())
        assert drawn[0] == drawn[1]
    ElementTree.fromstring(stored._repr_html_().replace("<br>", "<br/>"))


def test_a_result_from_a_file_says_what_it_does_not_know(result: Result, tmp_path: Path) -> None:
    write_json(result, tmp_path / "out.json")
    with pytest.raises(AttributeError, match="knows neither the workload nor the tasks"):
        _ = read_result(tmp_path / "out.json").workload
    data = json.loads((tmp_path / "out.json").read_text())
    del data["time_parts_ns"], data["checksum"]
    (tmp_path / "out.json").write_text(json.dumps(data))
    stored = read_result(tmp_path / "out.json")
    stored.plot_use()
    assert "average JCT" in str(stored)
    with pytest.raises(InputError, match=r"out\.json: does not say where the jobs' time went"):
        stored.plot()


def test_without_a_timeline_the_log_says_why_busy_is_null(
    result: Result, caplog: pytest.LogCaptureFixture
) -> None:
    assert result.utilization(2)["busy"].to_list() == [None, None]
    assert "`busy` is null: when GPUs compute is known only of a run that was recorded" in (
        caplog.text
    )


@pytest.mark.parametrize("write", [write_json, write_parquet])
def test_a_result_with_graphs_can_be_read_back(
    tmp_path: Path, write: Callable[[Result, Path], None]
) -> None:
    result = simulate(MIX, TWO_BY_TWO)
    write(result, tmp_path / "out")
    stored = read_result(tmp_path / "out")
    assert_frame_equal(stored.jobs, result.jobs)
    assert stored.summary == result.summary
    assert set(stored.jobs["model"]) == {""}
    assert_frame_equal(stored.time_parts, result.time_parts)
    ElementTree.fromstring(result._repr_html_().replace("<br>", "<br/>"))


@pytest.mark.parametrize("write", [write_json, write_parquet])
def test_no_flipped_bit_changes_a_result(
    result: Result, tmp_path: Path, write: Callable[[Result, Path], None]
) -> None:
    path, chance = tmp_path / "out", random.Random(0)
    write(result, path)
    whole = path.read_bytes()
    refused = 0
    for _ in range(200):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        try:
            stored = read_result(path)
        except InputError:
            refused += 1
            continue
        assert_frame_equal(stored.jobs, result.jobs)
        assert stored.summary == result.summary
        assert stored.settings == result.settings
        assert stored.gpu_busy_ns.tolist() == result.gpu_busy_ns.tolist()
    assert refused > 150


def test_json_can_be_laid_out_anew_but_not_changed_unless_its_checksum_is_removed(
    result: Result, tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    write_json(result, path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data, indent=1, sort_keys=True))
    assert read_result(path).summary == result.summary
    data["jobs"][0]["iterations"] += 1
    path.write_text(json.dumps(data))
    with pytest.raises(
        InputError, match=r"does not match its checksum.* remove the key 'checksum'"
    ):
        read_result(path)
    del data["checksum"]
    path.write_text(json.dumps(data))
    assert read_result(path).jobs["iterations"][0] == data["jobs"][0]["iterations"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("summary", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("settings", '{"placement": "\\ud800"}'),
        ("gpu_busy_ns", "[" + "9" * 30 + "]"),
    ],
    ids=["deep", "half a surrogate pair", "long number"],
)
def test_metadata_that_was_changed_is_refused(
    result: Result, tmp_path: Path, name: str, value: str
) -> None:
    path = tmp_path / "out.parquet"
    write_parquet(result, path)
    metadata = polars.read_parquet_metadata(path) | {f"headway.{name}": value}
    del metadata["ARROW:schema"]
    polars.read_parquet(path).write_parquet(path, metadata=metadata)
    with pytest.raises(InputError, match=r"out\.parquet: is (not a result from|damaged: )"):
        read_result(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"\xff\xfe",
        b"7",
        b"{}",
        b'{"jobs": [7]}',
        b'{"jobs": []}',
        b'{"jobs": [], "summary": 7, "gpu_busy_ns": [], "estimated": [], "code": 7}',
        b"PAR1",
        b"PAR1" + bytes(100),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "out").write_bytes(content)
    with pytest.raises(InputError, match=r"out: is (not a result from|damaged: )"):
        read_result(tmp_path / "out")


def test_a_table_that_is_no_result_is_refused(tmp_path: Path) -> None:
    polars.DataFrame({"a": [1]}).write_parquet(tmp_path / "out")
    with pytest.raises(InputError, match="is not a result from"):
        read_result(tmp_path / "out")


def test_a_result_shows_itself(result: Result) -> None:
    text = str(result)
    assert text.startswith("3 jobs on 2x2 GPUs of 16 GB\nplacement lwf:1, priority srsf, ")
    assert f"average JCT  {result.summary.average_jct_s:>30,.2f} s".split() == (
        next(line for line in text.splitlines() if line.startswith("average JCT")).split()
    )
    assert repr(result).startswith("<Result: 3 jobs, average JCT 0.")
    html = result._repr_html_()
    ElementTree.fromstring(html.replace("<br>", "<br/>"))
    assert f"{result.summary.makespan_s:,.2f} s" in html
    assert html.count("<tr>") == 12 + 1 + 3


def test_ids_cannot_break_the_html() -> None:
    workload = Workload([Job("<b>&", 0, 1, 1, 10, 10, 0, 1, model="<i>")])
    html = simulate(workload, "1x1")._repr_html_()
    ElementTree.fromstring(html.replace("<br>", "<br/>"))
    assert "&lt;b&gt;&amp;" in html


def test_energy_is_busy_watts_while_gpus_compute_and_idle_watts_otherwise() -> None:
    jobs = [make_job(gpus=g, iterations=i) for g, i in ((1, 3), (2, 4), (4, 2))]
    cluster = Cluster(2, 2, gpu_idle_w=30, gpu_busy_w=250)
    result = simulate(make_workload(*jobs), cluster)
    # A job's iteration computes for 3 ms on each of its GPUs.
    assert result.energy_j.tolist() == pytest.approx([2.25, 6.0, 6.0])
    idle_s = (cluster.gpus * result.summary.makespan_s) - result.gpu_busy_ns.sum() / 1e9
    assert result.summary.energy_j == pytest.approx(result.energy_j.sum() + 30 * idle_s)


def test_the_energy_of_a_graph_is_that_of_each_ranks_own_tasks() -> None:
    """The second of three ranks computes for 2 ms, the others for 1 ms, on a type twice as fast."""
    graph = Graph(3, [Task("all", range(3), 2_000_000), Task("more", [1], 2_000_000)])
    fast = GpuType("fast", 2**30, 2 * V100.performance, 10.0, 100.0)
    cluster = Cluster.of([ServerGroup(1, 3, fast)])
    result = simulate(Workload([Job("graph", 0, 3, 5, graph=graph)]), cluster)
    assert result.gpu_busy_ns.tolist() == [5_000_000, 10_000_000, 5_000_000]
    assert result.energy_j.tolist() == pytest.approx([0.020 * 100])
    assert result.summary.energy_j == pytest.approx(0.020 * 100 + 0.010 * 10)
    assert result.compute_ns.tolist() == result.service_ns.tolist() == [2_000_000]
    assert result.estimated == [("", "fast")]


def test_watts_do_not_change_the_schedule() -> None:
    workload = make_workload(*(make_job(gpus=2, iterations=3) for _ in range(3)))
    plain, other = simulate(workload, Cluster(2, 2)), simulate(workload, Cluster(2, 2, 2**34, 0, 1))
    assert plain.finish_ns.tolist() == other.finish_ns.tolist()
    assert other.summary.energy_j == pytest.approx(other.gpu_busy_ns.sum() / 1e9)


def test_a_file_is_replaced_whole_and_keeps_its_permissions(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    path.chmod(0o640)
    write_json(result, path)
    assert path.stat().st_mode & 0o777 == 0o640
    assert json.loads(path.read_text())
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


def test_an_interrupted_write_leaves_the_old_file(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_json(result, path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]
