"""The cases are run once, found again, and run anew when the code or a file has changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars
import pytest

import headway
from experiments.sweeps import finished
from headway.configuration import cluster_from
from headway.experiments.reproduction.paper import Case, cases
from headway.experiments.reproduction.runs import RawResults, run_cases
from headway.experiments.sweep import grid

CASES = [
    Case("lwf:1", "srsf:1", 32),
    Case("lwf:1", "ada-srsf", 16, "no-contention"),
    Case("ff", "srsf:2"),
]
SEEDS = (4, 1)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RawResults]:
    folder = tmp_path_factory.mktemp("stored") / "runs"
    return folder, run_cases(folder, SEEDS, 2, only=CASES)


def count_new(folder: Path) -> int:
    """Run the cases and return how many were not there yet."""
    new: list[None] = []
    run_cases(folder, SEEDS, 2, done=lambda: new.append(None), only=CASES)
    return len(new)


def test_the_tables_hold_what_simulate_returns(stored: tuple[Path, RawResults]) -> None:
    _, raw = stored
    runs = [(case, seed) for seed in SEEDS for case in CASES]
    assert len(raw.runs) == len(runs)
    for index, (case, seed) in enumerate(runs):
        result = headway.simulate(
            headway.generate_workload("paper", seed=seed),
            cluster_from("16x4", float(case.gpu_memory_gb)),
            network=case.network,
            policy=f"{case.placement}+{case.scheduler}",
            seed=seed,
        )
        jobs = raw.jobs[160 * index : 160 * (index + 1)]
        assert jobs["finish_ns"].to_list() == result.finish_ns.tolist()
        assert jobs["gpus"].to_list() == [list(gpus) for gpus in result.gpus]
        assert set(jobs["placement"]) == {case.placement}
        assert set(jobs["seed"]) == {seed}
        row = raw.runs.row(index, named=True)
        assert row["gpu_memory_gb"] == case.gpu_memory_gb
        assert row["average_jct_s"] == result.summary.average_jct_s
        assert row["average_gpu_utilization"] == result.summary.average_gpu_utilization
        gpus = raw.gpus[64 * index : 64 * (index + 1)]
        assert gpus["gpu"].to_list() == list(range(64))
        assert gpus["busy_ns"].to_list() == result.gpu_busy_ns.tolist()
        mean = polars.Series(gpus["utilization"]).mean()
        assert mean == pytest.approx(result.summary.average_gpu_utilization)


def test_finished_runs_are_not_repeated(stored: tuple[Path, RawResults]) -> None:
    folder, raw = stored
    counts: list[int] = []
    again = run_cases(folder, SEEDS, 1, lambda *both: counts.extend(both), pytest.fail, CASES)
    assert counts == [6, 6]
    assert again.runs.equals(raw.runs)
    assert again.jobs.equals(raw.jobs)
    assert again.gpus.equals(raw.gpus)


def test_every_case_of_the_paper_is_a_point_of_the_sweep(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(_: int, total: int) -> None:
        assert total == 2 * len(cases()) == 2 * len(set(cases()))
        raise StopError

    with pytest.raises(StopError):
        run_cases(tmp_path, (0, 1), 1, stop)


@pytest.mark.parametrize("rows", ["jobs", "gpus"])
@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "bit", "another", "missing"])
def test_a_run_with_a_damaged_file_is_done_anew(
    stored: tuple[Path, RawResults], tmp_path: Path, rows: str, damage: str
) -> None:
    folder = shutil.copytree(stored[0], tmp_path / "copy")
    assert count_new(folder) == 0
    target, another, *_ = sorted((folder / rows).iterdir())
    whole = target.read_bytes()
    if damage == "missing":
        target.unlink()
    else:
        middle = len(whole) // 2
        damaged = {
            "empty": b"",
            "cut": whole[:middle],
            "noise": bytes(range(256)) * 9,
            "bit": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "another": another.read_bytes(),
        }
        target.write_bytes(damaged[damage])
    assert count_new(folder) == 1
    assert target.read_bytes() == whole


def test_runs_of_other_code_are_done_anew(
    stored: tuple[Path, RawResults], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(stored[0], tmp_path / "copy")
    monkeypatch.setattr(grid, "code_version", lambda: "other")
    assert count_new(folder) == 6


def test_an_error_stops_the_threads_and_keeps_finished_runs(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop() -> None:
        raise StopError

    with pytest.raises(StopError):
        run_cases(tmp_path, range(20), 2, done=stop)
    keys = finished(tmp_path)
    assert len(keys) == 1
    for rows in ("jobs", "gpus"):
        assert [path.name for path in (tmp_path / rows).iterdir()] == [f"{keys[0]}.parquet"]
