"""The time of a computation from its operations and bytes, where a file gives no time.

A roofline: a computation takes as long as its floating-point operations at the GPU's peak, or as
its bytes at the memory's bandwidth, whichever is longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.domain.errors import InputError, shown
from headway.domain.gpus import gpu_type

MEMORY_GB_S = {
    "v100-sxm2": 900.0,
    "v100-pcie": 900.0,
    "p100-sxm2": 732.0,
    "p100-pcie": 732.0,
    "t4": 320.0,
    "a100-sxm4": 1555.0,
    "a100-pcie": 1555.0,
    "h100-sxm5": 3350.0,
    "h100-pcie": 2000.0,
    "h200-sxm5": 4800.0,
}
"""Memory bandwidth of the built-in GPU types in NVIDIA's data sheets, in GB/s (10^9 bytes)."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """A GPU's peak in TFLOPS and its memory bandwidth in GB/s."""

    tflops: float
    memory_gb_s: float

    def time_ns(self, operations: float, moved_bytes: float) -> int:
        """Return the time of a computation, at least 1 ns."""
        computing_ns = operations / (self.tflops * 1e3)
        return max(1, round(max(computing_ns, moved_bytes / self.memory_gb_s)))


def roofline(gpu: str | None, tflops: float | None, memory_gb_s: float | None) -> Roofline | None:
    """Return the roofline of a GPU type, of two numbers, or of both: numbers win.

    None if nothing is given.
    """
    if gpu is None and tflops is None and memory_gb_s is None:
        return None
    for value, name in ((tflops, "flops"), (memory_gb_s, "memory_bandwidth")):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"must be a number above 0, not {shown(value)}.", field=name)
        if value is None and gpu is None:
            raise InputError(
                "give both --flops and --memory-bandwidth, or a GPU's name with --gpu.", field=name
            )
    if gpu is not None:
        known = gpu_type(gpu)
        tflops = known.performance if tflops is None else tflops
        memory_gb_s = MEMORY_GB_S[known.name] if memory_gb_s is None else memory_gb_s
    assert tflops is not None
    assert memory_gb_s is not None
    return Roofline(tflops, memory_gb_s)
