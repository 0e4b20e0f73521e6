"""Types of GPU: memory, performance, and power while busy and while idle.

Performance is the paper's P, the theoretical peak: fp32 TFLOPS in NVIDIA's data sheet, at the boost
clock and without tensor cores. Memory is that of the smallest board in the data sheet. Busy watts
are the data sheet's power limit, an upper bound that training comes close to. Data sheets do not
give idle watts: they are what published `nvidia-smi` output shows for boards without work, rounded,
or an assumption where a comment says so. Boards of one type differ by a few watts, and an idle
board that holds a process's memory draws tens of watts more than an empty one.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import MAX_BYTES, whole

MAX_W = 1e6
MAX_TFLOPS = 1e9


@dataclass(frozen=True, slots=True)
class GpuType:
    """A type of GPU: memory in bytes, performance P in TFLOPS, idle and busy power in watts."""

    name: str
    memory_bytes: int
    performance: float
    idle_w: float
    busy_w: float

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"must be a non-empty string, not {shown(self.name)}.", field="name")
        whole(self.memory_bytes, "memory_bytes", 1, MAX_BYTES)
        object.__setattr__(self, "performance", tflops(self.performance, "performance"))
        for name in ("idle_w", "busy_w"):
            object.__setattr__(self, name, watts(getattr(self, name), name))
        if self.idle_w > self.busy_w:
            raise InputError(
                f"must be at least idle_w, {self.idle_w:g}, not {self.busy_w:g}.", field="busy_w"
            )

    def __str__(self) -> str:
        return f"{self.name} of {self.memory_bytes / 2**30:g} GB"


def watts(value: float, field: str) -> float:
    """Return a power in watts if it is valid."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"must be a number, not {shown(value)}.", field=field)
    if not 0 <= value <= MAX_W:
        raise InputError(f"must be from 0 to {MAX_W:,.0f} watts, not {shown(value)}.", field=field)
    return float(value)


def tflops(value: float, field: str) -> float:
    """Return a performance in TFLOPS if it is valid."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"must be a number, not {shown(value)}.", field=field)
    if not 1 / MAX_TFLOPS <= value <= MAX_TFLOPS:
        raise InputError(
            f"must be from 1e-9 to 1e9 TFLOPS, not {shown(value)}.",
            field=field,
        )
    return float(value)


def _known(name: str, memory_gb: int, performance: float, idle_w: float, busy_w: float) -> GpuType:
    return GpuType(name, memory_gb * 2**30, performance, idle_w, busy_w)


GPUS = {
    gpu.name: gpu
    for gpu in (
        # Tesla V100 data sheet (2018): 15.7 TFLOPS, 300 W (SXM2); 14 TFLOPS, 250 W (PCIe); 16 or
        # 32 GB. Idle: 23 to 41 W in listings of the SXM2 board, the 32 GB one at the upper end; for
        # PCIe an assumption.
        _known("v100-sxm2", 16, 15.7, 40.0, 300.0),
        _known("v100-pcie", 16, 14.0, 30.0, 250.0),
        # Tesla P100 data sheets (2016): 10.6 TFLOPS, 300 W, 16 GB (SXM2); 9.3 TFLOPS, 250 W, 12 or
        # 16 GB (PCIe; this is the common 16 GB board). Idle: assumptions.
        _known("p100-sxm2", 16, 10.6, 35.0, 300.0),
        _known("p100-pcie", 16, 9.3, 30.0, 250.0),
        # T4 data sheet (2019): 8.1 TFLOPS, 70 W, 16 GB. Idle: 8 to 9 W.
        _known("t4", 16, 8.1, 9.0, 70.0),
        # A100 data sheet (2020): 19.5 TFLOPS, 40 GB, 400 W (SXM4), 250 W (PCIe). Idle: 46 to 54 W
        # (SXM4), 31 W.
        _known("a100-sxm4", 40, 19.5, 50.0, 400.0),
        _known("a100-pcie", 40, 19.5, 31.0, 250.0),
        # H100 data sheet (2023): 67 TFLOPS, 700 W (SXM5); 51 TFLOPS, 350 W (PCIe); 80 GB. Idle: 67
        # to 70 W (SXM5); for PCIe an assumption.
        _known("h100-sxm5", 80, 67.0, 70.0, 700.0),
        _known("h100-pcie", 80, 51.0, 50.0, 350.0),
        # H200 data sheet (2024): 67 TFLOPS, 700 W, 141 GB (SXM). Idle: an assumption.
        _known("h200-sxm5", 141, 67.0, 75.0, 700.0),
    )
}
"""Built-in types. The paper measured on a Tesla V100."""

ALIASES = {
    "v100": "v100-sxm2",
    "p100": "p100-sxm2",
    "a100": "a100-sxm4",
    "h100": "h100-sxm5",
    "h200": "h200-sxm5",
}
"""Short names of built-in types."""

V100 = GPUS["v100-sxm2"]
"""The reference type: times are measured on it unless stated otherwise."""


def gpu_type(name: str) -> GpuType:
    """Return a built-in type of GPU by its name or short name."""
    known = ALIASES.get(name, name) if isinstance(name, str) else ""
    if known not in GPUS:
        raise InputError(
            f"unknown GPU {shown(name)}.{did_you_mean(str(name), [*GPUS, *ALIASES])}", field="gpu"
        )
    return GPUS[known]
