"""The compute model of a GPU type: the time of its kernels and of messages within a server.

A matrix multiplication of m x k by k x n is cut into output tiles, which the multiprocessors
compute in waves. A tile takes as long as its multiplications at `gemm_efficiency` of the peak, plus
those of `gemm_extra_depth` more of k, for its start and its end. The whole takes no less than the
memory needs to read its inputs and write its output. Other kernels take as long as the memory
needs for their bytes. Each kernel takes `kernel_ns` besides.

The CPU that launches kernels can be what limits a small model: it needs `launch_ns` for each.

This module needs nothing but the standard library, so that it works where measurements are taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
"""Rows and columns of the output that one thread block computes; a library takes the fastest."""

_FULL_REUSE = 64.0
"""Multiplications per number read, rows * columns / (rows + columns), that hide the reading."""

_ALIGNMENT = 8
"""Matrix units reach their full speed with rows of a multiple of this many 16-bit numbers."""


@dataclass(frozen=True, slots=True)
class ServerLink:
    """The time of an all-reduce among some GPUs of one server: a + b * bytes, in ns."""

    gpus: int
    a_ns: float
    b_ns_per_byte: float


@dataclass(frozen=True, slots=True)
class GpuModel:
    """The parameters of a GPU type; `source` says where they come from.

    `estimate` is true unless they were measured, or fitted to measurements; `estimates` names those
    that were not, though the others were. Peaks are those of dense matrices, 0 for a precision that
    the GPU does not have. `memory_bytes_per_s` is the published bandwidth, of which kernels reach
    `memory_efficiency`. `attention_efficiency` is the share of the peak that fused attention
    reaches, and `unaligned_efficiency` that of matrices whose rows are no multiple of 8 numbers,
    relative to others. Each collective takes `collective_ns` more in a training process than alone,
    and `collective_launch_ns` of CPU time for each other rank.
    """

    name: str
    source: str
    estimate: bool
    memory_bytes: int
    multiprocessors: int
    peak_flops_per_s: float
    fp32_peak_flops_per_s: float
    fp8_peak_flops_per_s: float
    gemm_efficiency: float
    gemm_extra_depth: float
    unaligned_efficiency: float
    attention_efficiency: float
    memory_bytes_per_s: float
    memory_efficiency: float
    kernel_ns: float
    launch_ns: float
    collective_ns: float
    collective_launch_ns: float
    server_links: tuple[ServerLink, ...] = ()
    estimates: tuple[str, ...] = ()

    def peak(self, precision: str) -> float:
        """Return the peak of matrix multiplications in a precision, in FLOPs per second."""
        peaks = {"fp32": self.fp32_peak_flops_per_s, "fp8": self.fp8_peak_flops_per_s}
        return peaks.get(precision, self.peak_flops_per_s)

    def gemm_ns(self, m: int, n: int, k: int, precision: str = "bf16", batch: int = 1) -> float:
        """Return the time of `batch` multiplications of m x k by k x n in one kernel."""
        speed = self.peak(precision) * self.gemm_efficiency
        if not aligned(m, n, k):
            speed *= self.unaligned_efficiency
        # A tile's start and end take the same time in every precision.
        extra = self.gemm_extra_depth * self.peak(precision) / self.peak_flops_per_s
        flops = _flops_of_waves(m, n, k + extra, batch, self.multiprocessors)
        size = 1 if precision == "fp8" else 4 if precision == "fp32" else 2
        moved = batch * size * (m * k + k * n + m * n)
        return self.kernel_ns + max(1e9 * flops / speed, self._moving_ns(moved))

    def elementwise_ns(self, moved_bytes: float) -> float:
        """Return the time of a kernel that reads and writes this many bytes in all."""
        return self.kernel_ns + self._moving_ns(moved_bytes)

    def attention_ns(self, flops: float, precision: str = "bf16") -> float:
        """Return the time of a fused attention kernel of some FLOPs, masked ones left out."""
        speed = self.peak("bf16" if precision == "fp8" else precision) * self.attention_efficiency
        return self.kernel_ns + 1e9 * flops / speed

    def all_reduce_ns(self, gpus: int, buffer_bytes: float) -> float:
        """Return the time of an all-reduce among GPUs of one server, alone."""
        link = self._link(gpus)
        return link.a_ns + link.b_ns_per_byte * buffer_bytes

    def send_ns(self, sent_bytes: float) -> float:
        """Return the time of a message between two GPUs of one server, alone.

        A ring all-reduce of two sends each byte once in each direction.
        """
        return self.all_reduce_ns(2, sent_bytes)

    def _link(self, gpus: int) -> ServerLink:
        """Return the link of this many GPUs, or of the next larger number, or of the largest."""
        for link in self.server_links:
            if link.gpus >= gpus:
                return link
        return self.server_links[-1]

    def _moving_ns(self, moved_bytes: float) -> float:
        return 1e9 * moved_bytes / (self.memory_bytes_per_s * self.memory_efficiency)


def aligned(*sizes: int) -> bool:
    """Return whether rows of a multiplication's matrices begin at addresses that suit a GPU."""
    return not any(size % _ALIGNMENT for size in sizes)


@lru_cache(maxsize=2**16)
def _flops_of_waves(m: int, n: int, depth: float, batch: int, multiprocessors: int) -> float:
    """Return the FLOPs that a GPU could do at its peak while it computes all tiles."""
    best = math.inf
    for rows, columns in TILES:
        tiles = batch * -(-m // rows) * -(-n // columns)
        waves = -(-tiles // multiprocessors)
        # A smaller tile reads more inputs for each multiplication.
        share = min(1.0, rows * columns / (rows + columns) / _FULL_REUSE)
        best = min(best, waves * multiprocessors * 2 * rows * columns * depth / share)
    return best
