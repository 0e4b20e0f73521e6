"""The paper's evaluation: what it compares, and the figures it prints.

Letters are those of the report: (a) placements, (b) kappa, (c) schedulers, (d) the contention
model, (e) the introduction's example, (f) other settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

SHAPE = "16x4"
"""The cluster: 16 servers of 4 GPUs."""


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """What is compared: policies, the memory of a GPU, the network, and the workload."""

    placement: str
    scheduler: str
    gpu_memory_gb: int = 16
    network: str = "10gbe"
    workload: str = "paper"

    @property
    def policy(self) -> str:
        """The policies as one text."""
        return f"{self.placement}+{self.scheduler}"


RAND = Case("rand", "ada-srsf")
FF = Case("ff", "ada-srsf")
LS = Case("ls", "ada-srsf")
LWF_ADA = Case("lwf:1", "ada-srsf")
SRSF_1 = Case("lwf:1", "srsf:1")
SRSF_2 = Case("lwf:1", "srsf:2")
SRSF_3 = Case("lwf:1", "srsf:3")

PLACEMENTS = {"RAND": RAND, "FF": FF, "LS": LS, "LWF-1": LWF_ADA}
KAPPAS = {f"κ = {kappa}": Case(f"lwf:{kappa}", "ada-srsf") for kappa in (1, 2, 4, 8, 16, 32)}
SCHEDULERS = {"SRSF(1)": SRSF_1, "SRSF(2)": SRSF_2, "SRSF(3)": SRSF_3, "Ada-SRSF": LWF_ADA}

MEMORIES_GB = (16, 32)

Setting = Callable[[Case], Case]
"""Where claims are judged: it returns a case of the paper as it is run there."""


def in_setting(case: Case, gpu_memory_gb: int, network: str = "10gbe") -> Case:
    """Return the same policies with other memory or another network."""
    return replace(case, gpu_memory_gb=gpu_memory_gb, network=network)


def with_memory(gpu_memory_gb: int) -> Setting:
    """Return the setting of GPUs with this memory."""
    return lambda case: in_setting(case, gpu_memory_gb)


def cases() -> list[Case]:
    """Return every case of the evaluation once."""
    found = [*PLACEMENTS.values(), *KAPPAS.values(), *SCHEDULERS.values()]
    for memory in MEMORIES_GB:
        found += [in_setting(c, memory) for c in (*PLACEMENTS.values(), *SCHEDULERS.values())]
        found += [in_setting(c, memory, "no-contention") for c in PLACEMENTS.values()]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Published:
    """A row of the paper's tables of results."""

    average_gpu_utilization: float
    average_jct_s: float
    median_jct_s: float
    p95_jct_s: float


PUBLISHED = {
    RAND: Published(0.1952, 2881.6, 680.3, 8910.9),
    FF: Published(0.2676, 1921.1, 766.1, 6224.6),
    LS: Published(0.2514, 2282.41, 749.9, 7224.9),
    LWF_ADA: Published(0.4278, 1098.57, 487.2, 4024.0),
    SRSF_1: Published(0.3065, 1374.84, 459.0, 6283.1),
    SRSF_2: Published(0.2595, 1734.74, 477.0, 7658.6),
    SRSF_3: Published(0.2514, 1750.9, 520.7, 7578.7),
}
"""The tables "different placement solutions" and "different communication scheduling solutions"."""

ALONE_S, TOGETHER_S = 295.0, 675.0
"""The introduction's measurement: one 4-GPU job on four nodes, and four of them at once."""

LARGE_GPUS, LONG_ITERATIONS = 4, 1600
"""A job with more GPUs is large, and one with more iterations is long."""
