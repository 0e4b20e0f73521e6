"""Runs are kept, found again, and done anew when they are not what this code makes."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest

import headway
from headway.configuration import cluster_from
from headway.experiments import batch
from headway.experiments.batch import Case, Run, collect, execute, missing

RUNS = [
    Run(Case("lwf:1", "srsf:1", 32), 0),
    Run(Case("lwf:1", "ada-srsf", 16, "no-contention"), 0),
    Run(Case("ff", "srsf:2"), 1),
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept") / "runs"
    told: list[Run] = []
    execute(RUNS, folder, 2, told.append)
    assert sorted(told) == sorted(RUNS)
    return folder


def test_what_is_collected_is_what_simulate_returns(kept: Path) -> None:
    raw = collect(RUNS, kept)
    for place, run in enumerate(RUNS):
        result = headway.simulate(
            headway.generate_workload("paper", seed=run.seed),
            cluster_from("16x4", float(run.case.gpu_memory_gb)),
            network=run.case.network,
            policy=f"{run.case.placement}+{run.case.scheduler}",
            seed=run.seed,
        )
        jobs = raw.jobs[160 * place : 160 * (place + 1)]
        assert jobs["finish_ns"].to_list() == result.finish_ns.tolist()
        assert jobs["gpus"].to_list() == [list(gpus) for gpus in result.gpus]
        assert set(jobs["placement"]) == {run.case.placement}
        row = raw.runs.row(place, named=True)
        assert row["average_jct_s"] == result.summary.average_jct_s
        assert row["average_gpu_utilization"] == result.summary.average_gpu_utilization
        gpus = raw.gpus[64 * place : 64 * (place + 1)]
        assert gpus["busy_ns"].to_list() == result.gpu_busy_ns.tolist()
        mean = polars.Series(gpus["utilization"]).mean()
        assert mean == pytest.approx(result.summary.average_gpu_utilization)


def test_kept_runs_are_not_missing(kept: Path) -> None:
    other = Run(Case("ls", "srsf:1"), 0)
    assert missing([*RUNS, other], kept) == [other]
    assert missing(RUNS, kept / "elsewhere") == RUNS


@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "folder", "other code"])
def test_a_damaged_or_foreign_file_counts_as_missing(
    kept: Path, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RUNS[0]
    whole = (kept / run.file_name).read_bytes()
    target = tmp_path / run.file_name
    if damage == "folder":
        target.mkdir()
    else:
        contents = {"empty": b"", "cut": whole[: len(whole) // 2], "noise": bytes(range(256)) * 9}
        target.write_bytes(contents.get(damage, whole))
    if damage == "other code":
        assert missing([run], tmp_path) == []
        monkeypatch.setattr(batch, "code_version", lambda: "of another day")
    assert missing([run], tmp_path) == [run]


def test_what_stops_a_batch_stops_its_threads_and_keeps_what_is_done(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(run: Run) -> None:
        raise StopError

    runs = [Run(case, seed) for seed in range(20) for case in {run.case for run in RUNS}]
    with pytest.raises(StopError):
        execute(runs, tmp_path, 2, stop)
    left = missing(runs, tmp_path)
    assert len(runs) - 4 <= len(left) < len(runs)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".parquet"]
