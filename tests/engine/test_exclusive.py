"""Exclusive GPUs: a GPU that holds a job has no room for another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builders import MB, make_job, make_workload
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.gpus import V100
from headway.domain.job import Job
from headway.domain.moment import Moment, StartedJob
from headway.engine.run import simulate
from headway.results.store import read_result, write_json, write_parquet

ITERATION_NS = make_job().compute_ns
ONE_GPU = Cluster(1, 1)


def job(exclusive: bool, memory_mb: int = 0, iterations: int = 1) -> Job:
    return make_job(exclusive=exclusive, memory_bytes=memory_mb * MB, iterations=iterations)


@pytest.mark.parametrize(
    ("jobs", "exclusive_cluster", "starts"),
    [
        ([job(False), job(False)], False, [0, 0]),
        ([job(False), job(False)], True, [0, 1]),
        ([job(True), job(False)], False, [0, 1]),
        ([job(False), job(True)], False, [0, 1]),
        ([job(False, 9000), job(False, 9000)], False, [0, 1]),
        ([job(True), job(True), job(False), job(False)], False, [0, 1, 2, 2]),
        # The job that needs its GPU to itself holds back no other of its size.
        ([job(False), job(True), job(False)], False, [0, 2, 0]),
        # Nor one that needs more memory and fits when another leaves.
        (
            [job(False, 8000), job(False, 5000, 9), job(True), job(False, 6000)],
            False,
            [0, 0, 11, 1],
        ),
    ],
)
def test_a_gpu_that_a_job_has_to_itself_has_no_room_for_another(
    jobs: list[Job], exclusive_cluster: bool, starts: list[int]
) -> None:
    cluster = replace(ONE_GPU, exclusive=exclusive_cluster)
    result = simulate(make_workload(*jobs), cluster, policy="ff+fifo+srsf:1")
    assert [round(ns / ITERATION_NS) for ns in result.start_ns.tolist()] == starts


@pytest.mark.parametrize("placement", ["ff", "lwf:1", "least-delay", "consolidate"])
def test_a_job_that_has_its_gpus_to_itself_still_needs_enough_memory(placement: str) -> None:
    groups = [ServerGroup(1, 1, replace(V100, name="small", memory_bytes=MB)), ServerGroup(1, 1)]
    large = replace(job(True, 2), iterations=9)
    result = simulate(
        make_workload(large, replace(large, memory_bytes=0)),
        Cluster.of(groups),
        policy=f"{placement}+fifo+srsf:1",
    )
    assert result.gpus == ((1,), (0,))


def test_a_moment_in_which_jobs_share_a_gpu_that_one_has_to_itself_is_refused() -> None:
    started = tuple(
        StartedJob(number, (0,), 0, 0, tasks_done=(0,), task_start_ns=(None,))
        for number in range(2)
    )
    with pytest.raises(InputError, match="job '1' shares a GPU that a job has to itself"):
        simulate(make_workload(job(True), job(False)), ONE_GPU, initial=Moment(0, started))


@pytest.mark.parametrize(
    ("jobs", "exclusive_cluster", "count", "line"),
    [
        ([job(False)] * 3, False, 0, "jobs share GPUs if their memory fits"),
        ([job(False)] * 3, True, 3, "every job has its GPUs to itself"),
        (
            [job(True), job(False), job(False)],
            False,
            1,
            "1 of 3 jobs has its GPUs to itself; others share GPUs if their memory fits",
        ),
    ],
)
def test_a_result_says_whether_its_jobs_shared_gpus(
    jobs: list[Job], exclusive_cluster: bool, count: int, line: str, tmp_path: Path
) -> None:
    result = simulate(make_workload(*jobs), replace(ONE_GPU, exclusive=exclusive_cluster))
    assert line in str(result).splitlines()
    write_json(result, tmp_path / "r.json")
    write_parquet(result, tmp_path / "r.parquet")
    for name in ("r.json", "r.parquet"):
        stored = read_result(tmp_path / name)
        assert stored.exclusive_jobs == count
        assert stored.settings.cluster.exclusive == exclusive_cluster


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cluster(exclusive=1),  # type: ignore[arg-type]
        lambda: make_job(exclusive="yes"),
    ],
)
def test_exclusive_is_true_or_false(make: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=r"^exclusive: must be true or false, not "):
        make()
