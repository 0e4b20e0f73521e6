"""Small builders for jobs and workloads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.domain.graph import Graph
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.graphs import Layer, MoeLayer, ddp, fsdp, moe, pipeline
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


_LAYER = Layer(1_000_000, 2_000_000, parameter_bytes=10 * MB, activation_bytes=MB)
_EXPERTS = MoeLayer(1_000_000, 1_000_000, 2_000_000, 3_000_000, MB, 5 * MB, 5 * MB)

GRAPHS: dict[str, Graph] = {
    "ddp": ddp([_LAYER] * 3, 4),
    "fsdp": fsdp([_LAYER] * 2, 3),
    "pipeline": pipeline([[_LAYER]] * 4, 3),
    "replicas": pipeline([[_LAYER]] * 2, 2, data_parallel=2),
    "moe": moe([_EXPERTS] * 2, 4, expert_parallel=2),
}
"""Small graphs of usual shapes."""


def make_graph_job(graph: Graph | str, **changes: Any) -> Job:
    """Return a small job with a graph, or with one of GRAPHS."""
    own = GRAPHS[graph] if isinstance(graph, str) else graph
    fields: dict[str, Any] = {"forward_ns": 0, "backward_ns": 0, "gradient_bytes": 0}
    return make_job(**(fields | {"gpus": own.ranks, "graph": own} | changes))


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
        if not policy.is_built_in:
            continue
        if policy.parameter is None:
            texts.append(policy.name)
        else:
            texts += [f"{policy.name}:{value}" for value in PARAMETERS[kind, policy.name]]
    return texts
