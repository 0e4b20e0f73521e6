"""Headway: schedule many distributed training jobs that share a GPU cluster and its network.

import headway
print(headway.simulate("paper", "16x4", policy="lwf:1+ada-srsf"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headway.version import __version__ as __version__

if TYPE_CHECKING:
    from headway.domain.cluster import Cluster, ServerGroup
    from headway.domain.errors import HeadwayError, InputError, PolicyError
    from headway.domain.gpus import GpuType
    from headway.domain.graph import Graph, Message, Task
    from headway.domain.job import Job
    from headway.domain.moment import InFlight, Moment, PendingMessage, StartedJob
    from headway.domain.profiles import Profile
    from headway.domain.tiers import Tier
    from headway.domain.workload import Workload
    from headway.engine.progress import Progress
    from headway.experiments.compare import Comparison, compare
    from headway.experiments.simulation import simulate
    from headway.network.contention import NetworkModel
    from headway.policies.policy_set import PolicySet
    from headway.results.schema import Result, Summary
    from headway.results.store import StoredResult, read_result, write_json, write_parquet
    from headway.results.timeline.file import read_timeline, record_timeline
    from headway.results.timeline.recorded import RecordedRun
    from headway.results.timeline.sinks import Timeline
    from headway.results.timeline.window import Window
    from headway.workload.files import read_workload, write_workload
    from headway.workload.generate import Recipe, generate_workload
    from headway.workload.graphs import read_graph, write_graph

_HOMES = {
    "Cluster": "domain.cluster",
    "Comparison": "experiments.compare",
    "GpuType": "domain.gpus",
    "Graph": "domain.graph",
    "HeadwayError": "domain.errors",
    "InFlight": "domain.moment",
    "InputError": "domain.errors",
    "Job": "domain.job",
    "Message": "domain.graph",
    "Moment": "domain.moment",
    "NetworkModel": "network.contention",
    "PendingMessage": "domain.moment",
    "PolicyError": "domain.errors",
    "PolicySet": "policies.policy_set",
    "Profile": "domain.profiles",
    "Progress": "engine.progress",
    "Recipe": "workload.generate",
    "RecordedRun": "results.timeline.recorded",
    "Result": "results.schema",
    "ServerGroup": "domain.cluster",
    "StartedJob": "domain.moment",
    "StoredResult": "results.store",
    "Summary": "results.schema",
    "Task": "domain.graph",
    "Tier": "domain.tiers",
    "Timeline": "results.timeline.sinks",
    "Window": "results.timeline.window",
    "Workload": "domain.workload",
    "compare": "experiments.compare",
    "generate_workload": "workload.generate",
    "read_graph": "workload.graphs",
    "read_result": "results.store",
    "read_timeline": "results.timeline.file",
    "read_workload": "workload.files",
    "record_timeline": "results.timeline.file",
    "simulate": "experiments.simulation",
    "write_graph": "workload.graphs",
    "write_json": "results.store",
    "write_parquet": "results.store",
    "write_workload": "workload.files",
}
"""Where each public name lives; imported on first use, so that `import headway` stays light."""

__all__ = [
    "Cluster",
    "Comparison",
    "GpuType",
    "Graph",
    "HeadwayError",
    "InFlight",
    "InputError",
    "Job",
    "Message",
    "Moment",
    "NetworkModel",
    "PendingMessage",
    "PolicyError",
    "PolicySet",
    "Profile",
    "Progress",
    "Recipe",
    "RecordedRun",
    "Result",
    "ServerGroup",
    "StartedJob",
    "StoredResult",
    "Summary",
    "Task",
    "Tier",
    "Timeline",
    "Window",
    "Workload",
    "compare",
    "generate_workload",
    "read_graph",
    "read_result",
    "read_timeline",
    "read_workload",
    "record_timeline",
    "simulate",
    "write_graph",
    "write_json",
    "write_parquet",
    "write_workload",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return getattr(import_module(f"headway.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
