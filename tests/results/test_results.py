"""Summaries, and results on disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars
import pytest

from builders import make_job, make_workload
from headway.domain.cluster import Cluster
from headway.engine.run import simulate
from headway.results.schema import Result
from headway.results.store import code_version, write_json, write_parquet


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


def test_the_json_has_the_fixed_shape(result: Result, tmp_path: Path) -> None:
    write_json(result, tmp_path / "out.json")
    data = json.loads((tmp_path / "out.json").read_text())
    assert list(data) == ["summary", "jobs"]
    assert list(data["summary"]) == [
        "average_jct_s",
        "median_jct_s",
        "p95_jct_s",
        "makespan_s",
        "average_gpu_utilization",
        "energy_j",
        "simulated_tasks",
        "wall_s",
    ]
    assert [list(job) for job in data["jobs"]] == [
        ["job_id", "arrival_ns", "start_ns", "finish_ns", "gpus", "energy_j"]
    ] * 3
    assert data == json.loads(json.dumps(result.to_dict()))
    assert data["jobs"][2]["gpus"] == [0, 1, 2, 3]


def test_the_parquet_has_a_row_per_job_and_the_summary(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    write_parquet(result, path)
    table = polars.read_parquet(path)
    assert table["finish_ns"].to_list() == result.finish_ns.tolist()
    assert table["gpus"].to_list() == [list(gpus) for gpus in result.gpus]
    metadata = polars.read_parquet_metadata(path)
    assert json.loads(metadata["headway.summary"])["makespan_s"] == result.summary.makespan_s
    assert json.loads(metadata["headway.settings"])["placement"] == "lwf:1"
    assert json.loads(metadata["headway.gpu_busy_ns"]) == result.gpu_busy_ns.tolist()
    assert metadata["headway.code"] == code_version()
    assert table["iterations"].to_list() == [3, 4, 2]
    assert table["energy_j"].to_list() == result.energy_j.tolist()


def test_energy_is_busy_watts_while_gpus_compute_and_idle_watts_otherwise() -> None:
    jobs = [make_job(gpus=g, iterations=i) for g, i in ((1, 3), (2, 4), (4, 2))]
    cluster = Cluster(2, 2, gpu_idle_w=30, gpu_busy_w=250)
    result = simulate(make_workload(*jobs), cluster)
    # A job's iteration computes for 3 ms on each of its GPUs.
    assert result.energy_j.tolist() == pytest.approx([2.25, 6.0, 6.0])
    idle_s = (cluster.gpus * result.summary.makespan_s) - result.gpu_busy_ns.sum() / 1e9
    assert result.summary.energy_j == pytest.approx(result.energy_j.sum() + 30 * idle_s)


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
