"""Busy time and energy where GPUs are of several types, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars
import pytest

from builders import make_job, make_workload
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.compute_times import compute_times
from headway.domain.gpus import V100, GpuType
from headway.domain.profiles import Profile
from headway.domain.records import JOB, SEAT, zeros
from headway.network.contention import NetworkModel
from headway.results.metrics import gpu_busy_ns, summarize
from headway.results.schema import Result, Settings
from headway.results.store import write_parquet
from headway.results.usage import seat_compute_ns

FAST = GpuType("fast", 2**34, 31.4, 10.0, 100.0)
CLUSTER = Cluster.of(
    [ServerGroup(1, 2, V100, "a"), ServerGroup(1, 1, FAST, "b")],
    oversubscription=4,
    profiles=[Profile("measured", "fast", 500_000, 500_000)],
)


@pytest.fixture
def result() -> Result:
    """Two jobs over 8 ms: one on GPUs 1 and 2, of both types, one alone on the fast GPU 2."""
    workload = make_workload(
        make_job(gpus=2, iterations=2), make_job(gpus=1, iterations=1, model="measured")
    )
    jobs, seats = zeros(2, JOB), zeros(3, SEAT)
    jobs.gpus[:], jobs.iterations[:], jobs.finish_ns[:] = [2, 1], [2, 1], [8_000_000, 2_000_000]
    seats.gpu[:] = [1, 2, 2]
    seat_ns = seat_compute_ns(workload, compute_times(workload, CLUSTER), seats.gpu, CLUSTER)
    busy_ns = gpu_busy_ns(jobs, seats, CLUSTER.gpus, seat_ns)
    return Result(
        workload=workload,
        settings=Settings(CLUSTER, NetworkModel(), "ff", "srsf", "ada-dual", 0),
        summary=summarize(jobs, CLUSTER, busy_ns, 2, 0.1),
        start_ns=np.zeros(2, np.int64),
        finish_ns=jobs.finish_ns.copy(),
        gpus=((1, 2), (2,)),
        gpu_busy_ns=busy_ns,
        compute_ns=np.array([3_000_000, 1_000_000]),
        service_ns=np.array([3_000_000, 1_000_000]),
        jct_margin_s=np.zeros(2),
    )


def test_a_gpu_is_busy_for_the_times_on_its_type(result: Result) -> None:
    """An iteration of the first takes 3 ms and half of it; of the second, as measured, 1 ms."""
    assert result.gpu_busy_ns.tolist() == [0, 6_000_000, 4_000_000]


def test_energy_is_by_type(result: Result) -> None:
    slow, fast = result.use_by_type
    assert (slow.gpu, slow.gpus, slow.busy_ns) == (V100, 2, 6_000_000)
    assert (fast.gpu, fast.gpus, fast.busy_ns) == (FAST, 1, 4_000_000)
    assert (slow.utilization, fast.utilization) == pytest.approx((6 / 16, 4 / 8))
    assert slow.energy_j == pytest.approx(0.006 * 300 + 0.010 * 40)
    assert fast.energy_j == pytest.approx(0.004 * 100 + 0.004 * 10)
    assert result.summary.energy_j == slow.energy_j + fast.energy_j
    assert result.summary.average_gpu_utilization == pytest.approx(10 / 24)


def test_a_jobs_energy_is_that_of_the_types_it_computes_on(result: Result) -> None:
    assert result.energy_j.tolist() == pytest.approx([0.006 * 300 + 0.003 * 100, 0.001 * 100])


def test_what_is_estimated_is_known_of_a_result(result: Result) -> None:
    assert result.estimated == [("", "fast")]


def test_a_general_cluster_is_written_with_its_groups(result: Result, tmp_path: Path) -> None:
    write_parquet(result, tmp_path / "r.parquet")
    metadata = polars.read_parquet_metadata(tmp_path / "r.parquet")
    cluster = json.loads(metadata["headway.settings"])["cluster"]
    assert [group["gpu"]["name"] for group in cluster["groups"]] == ["v100-sxm2", "fast"]
    assert [group["rack"] for group in cluster["groups"]] == ["a", "b"]
    assert cluster["oversubscription"] == 4
    assert cluster["profiles"][0]["forward_ns"] == 500_000
    assert "servers_per_rack" not in cluster
    assert json.loads(metadata["headway.estimated"]) == [["", "fast"]]


def test_a_uniform_cluster_is_written_as_ever() -> None:
    settings = Settings(Cluster(), NetworkModel(), "ff", "srsf", "ada-dual", 0)
    assert list(settings.to_dict()["cluster"]) == [
        "servers",
        "gpus_per_server",
        "gpu_memory_bytes",
        "gpu_idle_w",
        "gpu_busy_w",
    ]
