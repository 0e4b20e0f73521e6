"""Use and energy of the GPUs of each type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.domain.cluster import Cluster
from headway.domain.gpus import GpuType

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
