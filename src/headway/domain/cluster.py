"""The cluster: servers of equal GPUs behind one switch that is never a bottleneck."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headway.domain.errors import InputError, shown
from headway.domain.limits import MOST_BYTES, MOST_GPUS, scaled, whole
from headway.domain.power import V100, GpuPower, watts


def gigabytes(value: float, field: str) -> int:
    """Convert GPU memory in GB (1 GB = 1024 MB = 2**30 bytes) to bytes."""
    return scaled(value, 2**30, field, 2**20, MOST_BYTES, "GB")


@dataclass(frozen=True, slots=True)
class Cluster:
    """N_s servers of N_g GPUs; GPU g is on server g // N_g.

    A GPU draws `gpu_busy_w` watts while it computes and `gpu_idle_w` while it does not; the
    defaults are those of a Tesla V100 (SXM2).
    """

    servers: int = 16
    gpus_per_server: int = 4
    gpu_memory_bytes: int = 16 * 2**30
    gpu_idle_w: float = V100.idle_w
    gpu_busy_w: float = V100.busy_w

    def __post_init__(self) -> None:
        whole(self.servers, "servers", 1, MOST_GPUS)
        whole(self.gpus_per_server, "gpus_per_server", 1, MOST_GPUS)
        whole(self.gpu_memory_bytes, "gpu_memory_bytes", 1, MOST_BYTES)
        whole(self.gpus, "servers x gpus_per_server", 1, MOST_GPUS)
        for name in ("gpu_idle_w", "gpu_busy_w"):
            object.__setattr__(self, name, watts(getattr(self, name), name))
        if self.gpu_idle_w > self.gpu_busy_w:
            raise InputError(
                f"must be at least gpu_idle_w, {self.gpu_idle_w:g}, not {self.gpu_busy_w:g}.",
                field="gpu_busy_w",
            )

    @property
    def gpus(self) -> int:
        """The number of GPUs in all."""
        return self.servers * self.gpus_per_server

    @classmethod
    def parse(cls, shape: str, gpu_memory_gb: float = 16, power: GpuPower = V100) -> Cluster:
        """Make a cluster from a shape such as `16x4`: 16 servers of 4 GPUs."""
        match = re.fullmatch(r"([0-9]{1,9})[xX]([0-9]{1,9})", shape.strip())
        if match is None:
            raise InputError(
                f"must look like 16x4 (servers x GPUs per server) or be the path of a .toml file, "
                f"not {shown(shape)}.",
                field="cluster",
            )
        memory_bytes = gigabytes(gpu_memory_gb, "gpu_memory_gb")
        return cls(int(match[1]), int(match[2]), memory_bytes, power.idle_w, power.busy_w)

    def __str__(self) -> str:
        memory = self.gpu_memory_bytes / 2**30
        return f"{self.servers}x{self.gpus_per_server} GPUs of {memory:g} GB"
