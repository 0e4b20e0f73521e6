"""What a simulation returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.domain.cluster import Cluster
from headway.domain.compute_times import compute_times_ns, estimated_pairs
from headway.domain.workload import Workload
from headway.network.contention import NetworkModel
from headway.results.usage import Integers, TypeUse, use_by_type


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

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; of the cluster, racks, groups and profiles only if it has some."""
        values = asdict(self)
        plain = {field.name: field.default for field in fields(Cluster)}
        for name in ("servers_per_rack", "oversubscription", "groups", "profiles"):
            if values["cluster"][name] == plain[name]:
                del values["cluster"][name]
        return values


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
        cluster = self.settings.cluster
        iteration_ns = compute_times_ns(self.workload, cluster).sum(axis=2).tolist()
        energies = []
        for job, per_type, gpus in zip(self.workload, iteration_ns, self.gpus, strict=True):
            counts = np.bincount(cluster.type_of_gpu[list(gpus)], minlength=len(per_type))
            parts = zip(counts.tolist(), per_type, cluster.gpu_types, strict=True)
            energies.append(
                sum(
                    count * job.iterations * time_ns / 1e9 * gpu.busy_w
                    for count, time_ns, gpu in parts
                )
            )
        return np.array(energies)

    @property
    def use_by_type(self) -> tuple[TypeUse, ...]:
        """What the GPUs of each type did, in the order of the cluster's `gpu_types`."""
        makespan_ns = int(self.finish_ns.max() - self.arrival_ns.min())
        return use_by_type(self.settings.cluster, self.gpu_busy_ns, makespan_ns)

    @property
    def estimated(self) -> list[tuple[str, str]]:
        """The (model, GPU type) pairs for which some job's times are estimated, not measured."""
        return estimated_pairs(self.workload, self.settings.cluster)

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
