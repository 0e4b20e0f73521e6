"""What a simulation returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.cluster import Cluster
from headway.domain.workload import Workload
from headway.network.contention import NetworkModel

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in a few figures; `wall_s` times the engine alone and is the only one that varies."""

    average_jct_s: float
    median_jct_s: float
    p95_jct_s: float
    makespan_s: float
    average_gpu_utilization: float
    energy_j: float
    simulated_tasks: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class Settings:
    """What was simulated, but for the workload."""

    cluster: Cluster
    network: NetworkModel
    placement: str
    priority: str
    admission: str
    seed: int
    bucket_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """Every job's times and GPUs, in workload order, with the summary."""

    workload: Workload = field(repr=False)
    settings: Settings
    summary: Summary
    start_ns: Integers = field(repr=False)
    finish_ns: Integers = field(repr=False)
    gpus: tuple[tuple[int, ...], ...] = field(repr=False)
    gpu_busy_ns: Integers = field(repr=False)

    @property
    def arrival_ns(self) -> Integers:
        """When each job arrived."""
        return np.array([job.arrival_ns for job in self.workload], np.int64)

    @property
    def jct_s(self) -> NDArray[np.float64]:
        """Each job's completion time: finish - arrival, in seconds."""
        return (self.finish_ns - self.arrival_ns) / 1e9

    @property
    def energy_j(self) -> NDArray[np.float64]:
        """What each job's computing takes, in joules: its busy GPU time at busy watts.

        What GPUs draw while they do not compute belongs to no job; the summary has it too.
        """
        busy_w = self.settings.cluster.gpu_busy_w
        seconds = [
            job.gpus * job.iterations * (job.forward_ns + job.backward_ns) / 1e9
            for job in self.workload
        ]
        return np.array(seconds) * busy_w

    def to_dict(self) -> dict[str, Any]:
        """Return the summary and the jobs as plain values, as `--json` writes them."""
        jobs = [
            {
                "job_id": job.job_id,
                "arrival_ns": job.arrival_ns,
                "start_ns": int(start_ns),
                "finish_ns": int(finish_ns),
                "gpus": list(gpus),
                "energy_j": float(energy_j),
            }
            for job, start_ns, finish_ns, gpus, energy_j in zip(
                self.workload,
                self.start_ns,
                self.finish_ns,
                self.gpus,
                self.energy_j,
                strict=True,
            )
        ]
        return {"summary": asdict(self.summary), "jobs": jobs}
