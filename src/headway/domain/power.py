"""What a GPU draws: watts while it computes and watts while it does not.

Busy is the board's power limit in NVIDIA's data sheet, which training comes near to; it is so an
upper bound. Idle is in no data sheet: it is what listings of `nvidia-smi` show for boards on which
nothing runs, rounded, and an assumption where it says so. Boards of one kind differ by some watts,
and an idle board that holds a process's memory draws some tens of watts more than an empty one.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.errors import InputError, did_you_mean, shown

MOST_W = 1e6


@dataclass(frozen=True, slots=True)
class GpuPower:
    """A kind of GPU, by the name that `--gpu` takes."""

    name: str
    idle_w: float
    busy_w: float


GPUS = {
    power.name: power
    for power in (
        # Tesla V100 data sheet: 300 W (SXM2), 250 W (PCIe). Idle: 23 to 41 W in listings of the
        # SXM2 board, the 32 GB one at the upper end; for PCIe an assumption.
        GpuPower("v100-sxm2", 40.0, 300.0),
        GpuPower("v100-pcie", 30.0, 250.0),
        # Tesla P100 data sheet: 300 W (SXM2), 250 W (PCIe). Idle: assumptions.
        GpuPower("p100-sxm2", 35.0, 300.0),
        GpuPower("p100-pcie", 30.0, 250.0),
        # T4 data sheet: 70 W. Idle: 8 to 9 W.
        GpuPower("t4", 9.0, 70.0),
        # A100 data sheet: 400 W (SXM4), 250 W (PCIe, 40 GB). Idle: 46 to 54 W (SXM4, 40 GB), 31 W.
        GpuPower("a100-sxm4", 50.0, 400.0),
        GpuPower("a100-pcie", 31.0, 250.0),
        # H100 data sheet: 700 W (SXM5), 350 W (PCIe). Idle: 67 to 70 W (SXM5); for PCIe an
        # assumption.
        GpuPower("h100-sxm5", 70.0, 700.0),
        GpuPower("h100-pcie", 50.0, 350.0),
    )
}
"""Kinds of GPU. The paper's measurements are of a Tesla V100."""

ALIASES = {
    "v100": "v100-sxm2",
    "p100": "p100-sxm2",
    "a100": "a100-sxm4",
    "h100": "h100-sxm5",
}
"""Shorter names."""

V100 = GPUS["v100-sxm2"]


def gpu_power(name: str) -> GpuPower:
    """Return what a kind of GPU draws."""
    known = ALIASES.get(name, name) if isinstance(name, str) else ""
    if known not in GPUS:
        raise InputError(
            f"unknown GPU {shown(name)}.{did_you_mean(str(name), [*GPUS, *ALIASES])}", field="gpu"
        )
    return GPUS[known]


def watts(value: float, field: str) -> float:
    """Return a power if it is a number of watts."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"must be a number, not {shown(value)}.", field=field)
    if not 0 <= value <= MOST_W:
        raise InputError(f"must be from 0 to {MOST_W:,.0f} watts, not {shown(value)}.", field=field)
    return float(value)
