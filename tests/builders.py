"""Small builders for jobs and workloads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.policies.policy_set import PolicySet

MB = 2**20
DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).parent.parent / "examples"


def make_job(job_id: str = "job", **changes: Any) -> Job:
    """Return a small job; every field can be changed."""
    fields: dict[str, Any] = {
        "arrival_ns": 0,
        "gpus": 1,
        "iterations": 1,
        "forward_ns": 1_000_000,
        "backward_ns": 2_000_000,
        "gradient_bytes": 10 * MB,
        "memory_bytes": 1000 * MB,
    }
    return Job(job_id=job_id, **(fields | changes))


def make_workload(*jobs: Job) -> Workload:
    """Return a workload of these jobs, with ids that differ."""
    return Workload([replace(job, job_id=str(index)) for index, job in enumerate(jobs)])


def paper_with(**parts: Any) -> PolicySet:
    """Return the paper's policies with some parts replaced, as `PolicySet.override` takes them."""
    return PolicySet.parse("paper").override(**parts)
