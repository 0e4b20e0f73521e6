"""What is compared: policies on the paper's jobs with and without overlap, in several settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.experiments.overlap.workloads import (
    BUCKETS,
    CUT,
    NO_COMPUTING,
    NO_MESSAGES,
    ONE_BUCKET,
    OVERLAPPED,
    PAPER,
)
from headway.experiments.reproduction import paper
from headway.experiments.reproduction.paper import Case, Setting
from headway.policies.policy_set import PolicySet

HEADWAY = Case("least-delay", "srtf+ada-dual/needed-first@50/if-shared")

POLICIES = {
    **{f"{name} + Ada-SRSF": case for name, case in paper.PLACEMENTS.items()},
    **{f"LWF-1 + {name}": case for name, case in paper.SCHEDULERS.items()},
    "headway": HEADWAY,
}
"""The paper's policies, and the best we know."""

OTHERS = {
    **{
        f"{name} + Ada-SRSF": Case(placement, "ada-srsf")
        for name, placement in (
            ("Spread", "spread"),
            ("Consolidate", "consolidate"),
            ("Tiresias", "tiresias"),
            ("Apart", "apart"),
            ("Least delay", "least-delay"),
        )
    },
    **{
        f"LWF-1, {name}, AdaDUAL": Case("lwf:1", f"{priority}+ada-dual")
        for name, priority in (
            ("SRTF", "srtf"),
            ("FIFO", "fifo"),
            ("smallest first", "smallest"),
            ("LAS", "las"),
            ("2D-LAS", "2d-las:3600"),
            ("GPU intensity", "gpu-intensity"),
        )
    },
    "LWF-1, SRSF, k-way": Case("lwf:1", "k-srsf"),
    "LWF-1, SRSF, interleave": Case("lwf:1", "srsf+interleave"),
}
"""All other policies, each in place of its kind in the paper's; run with 16 GB only."""

SPLIT_MB = 25
"""Messages are split into parts of this size in some settings."""
ORDER = "srtf"
"""The order of jobs in other settings, by remaining time whatever their number of GPUs."""


def _setting(
    workload: str = PAPER, memory_gb: int = 16, split_mb: int | None = None, order: str = "srsf"
) -> Setting:
    def run_there(case: Case) -> Case:
        admission = PolicySet.parse(case.policy).admission
        scheduler = case.scheduler if order == "srsf" else f"{order}+{admission}"
        if split_mb is not None:
            scheduler = f"{scheduler}@{split_mb}"
        return replace(case, scheduler=scheduler, gpu_memory_gb=memory_gb, workload=workload)

    return run_there


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "16 GB": {},
    "32 GB": {"memory_gb": 32},
    f"16 GB, messages of at most {SPLIT_MB} MB": {"split_mb": SPLIT_MB},
    f"16 GB, jobs in the order of {ORDER.upper()}": {"order": ORDER},
}

SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    name: {"plain": _setting(**options), "overlapped": _setting(OVERLAPPED, **options)}
    for name, options in _OPTIONS.items()
}
"""Where the paper's claims are judged, each without overlap and with it.

All are judged with either memory, those on schedulers in the other settings too.
"""

MEMORIES = {f"{gb} GB": gb for gb in paper.MEMORIES_GB}

SHOWN = {name: POLICIES[name] for name in ("LWF-1 + SRSF(1)", "LWF-1 + Ada-SRSF", "headway")}
"""The policies of figures that have no room for all."""

BY_BUCKET = {name: POLICIES[name] for name in ("LWF-1 + SRSF(1)", "headway")}
"""The policies that are run with other buckets."""

UNAWARE = {
    "FF, FIFO, SRSF(1)": Case("ff", "fifo+srsf:1"),
    "RAND, FIFO, SRSF(2)": Case("rand", "fifo+srsf:2"),
    "FF, FIFO, AdaDUAL": Case("ff", "fifo+ada-dual"),
}
"""Policies that do not read how long an iteration of a job takes alone."""


def with_workload(case: Case, workload: str) -> Case:
    """Return the same policies on another workload."""
    return replace(case, workload=workload)


def cases() -> list[Case]:
    """Return every case of the experiment once."""
    found: list[Case] = []
    for name, settings in SETTINGS.items():
        placements = paper.PLACEMENTS if name in MEMORIES else {}
        for setting in settings.values():
            found += [setting(case) for case in (placements | paper.SCHEDULERS).values()]
    for workload in (PAPER, OVERLAPPED):
        found += [with_workload(case, workload) for case in paper.KAPPAS.values()]
        found += [with_workload(case, workload) for case in OTHERS.values()]
        for memory_gb in MEMORIES.values():
            found.append(replace(HEADWAY, workload=workload, gpu_memory_gb=memory_gb))
    for workload in (*BUCKETS.values(), CUT):
        found += [with_workload(case, workload) for case in BY_BUCKET.values()]
    for workload in (NO_MESSAGES, NO_COMPUTING):
        found += [with_workload(case, workload) for case in POLICIES.values()]
    for workload in (PAPER, ONE_BUCKET):
        found += [with_workload(case, workload) for case in UNAWARE.values()]
    return list(dict.fromkeys(found))
