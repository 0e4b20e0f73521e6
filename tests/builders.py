"""Small builders for jobs and workloads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.policies.policy_set import PolicySet
from headway.policies.registry import Kind, policies

MB = 2**20
DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).parent.parent / "examples"

PARAMETERS: dict[tuple[Kind, str], tuple[str, ...]] = {
    ("placement", "lwf"): ("1", "2", "4", "8"),
    ("priority", "2d-las"): ("0.004",),
    ("admission", "srsf"): ("1", "2", "3"),
}
"""The values to test of every policy that takes a parameter."""


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


def built_in(kind: Kind) -> list[str]:
    """Return every built-in policy of a kind, as text, with each of its PARAMETERS."""
    texts = []
    for policy in policies(kind):
        if not policy.function.__module__.startswith("headway.policies."):
            continue
        if policy.parameter is None:
            texts.append(policy.name)
        else:
            texts += [f"{policy.name}:{value}" for value in PARAMETERS[kind, policy.name]]
    return texts
