"""How long the GPUs of jobs compute; use and energy of the GPUs of each type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.domain.cluster import Cluster
from headway.domain.compute_times import ComputeTimes
from headway.domain.gpus import GpuType
from headway.domain.workload import Workload

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TypeUse:
    """Use of the GPUs of one type: their total busy time, and their energy over the makespan."""

    gpu: GpuType
    gpus: int
    busy_ns: int
    utilization: float
    energy_j: float


def use_by_type(cluster: Cluster, busy_ns: Integers, makespan_ns: int) -> tuple[TypeUse, ...]:
    """Return the use of each GPU type over the makespan, in the order of `gpu_types`."""
    uses = []
    for kind, gpu in enumerate(cluster.gpu_types):
        busy = busy_ns[cluster.type_of_gpu == kind]
        utilization = float((busy / makespan_ns).mean())
        active_w = gpu.busy_w - gpu.idle_w
        uses.append(
            TypeUse(
                gpu=gpu,
                gpus=len(busy),
                busy_ns=int(busy.sum()),
                utilization=utilization,
                energy_j=len(busy) * (makespan_ns / 1e9) * (gpu.idle_w + active_w * utilization),
            )
        )
    return tuple(uses)


def seat_compute_ns(
    workload: Workload, times: ComputeTimes, gpus: NDArray[np.integer], cluster: Cluster
) -> Integers:
    """Return one iteration's compute time on each GPU of each job, with the jobs' GPUs in a row."""
    counts = [job.gpus for job in workload]
    owner, types = np.repeat(np.arange(len(counts)), counts), cluster.type_of_gpu[gpus]
    seat_ns: Integers = times.times_ns.sum(axis=2)[owner, types]
    first = 0
    for job, on_types in zip(workload, times.graph_times_ns, strict=True):
        if job.graph is not None and on_types is not None:
            expanded = job.graph.expanded
            task_types = types[first : first + job.gpus][expanded.task_rank]
            task_ns = on_types[task_types, expanded.task_entry]
            np.add.at(seat_ns, first + expanded.task_rank, task_ns)
        first += job.gpus
    return seat_ns
