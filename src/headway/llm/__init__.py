"""Large language models: what an iteration under a plan computes, sends and takes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.llm.config import LatentAttention, ModelConfig
    from headway.llm.config_file import config_from, config_names
    from headway.llm.estimate import estimated_iteration_ns
    from headway.llm.gpu import GpuModel
    from headway.llm.gpu_file import gpu_from, gpu_names
    from headway.llm.graph import iteration_graph
    from headway.llm.memory import Memory, check_memory, plan_memory
    from headway.llm.plan import Plan
    from headway.llm.plans import candidate_plans
    from headway.llm.sizes import active_parameters, iteration_flops, parameters

_HOMES = {
    "GpuModel": "gpu",
    "LatentAttention": "config",
    "Memory": "memory",
    "ModelConfig": "config",
    "Plan": "plan",
    "active_parameters": "sizes",
    "candidate_plans": "plans",
    "check_memory": "memory",
    "config_from": "config_file",
    "config_names": "config_file",
    "estimated_iteration_ns": "estimate",
    "gpu_from": "gpu_file",
    "gpu_names": "gpu_file",
    "iteration_flops": "sizes",
    "iteration_graph": "graph",
    "parameters": "sizes",
    "plan_memory": "memory",
}
"""Where each public name lives; imported on first use: GPUs are measured where only PyTorch is."""

__all__ = [
    "GpuModel",
    "LatentAttention",
    "Memory",
    "ModelConfig",
    "Plan",
    "active_parameters",
    "candidate_plans",
    "check_memory",
    "config_from",
    "config_names",
    "estimated_iteration_ns",
    "gpu_from",
    "gpu_names",
    "iteration_flops",
    "iteration_graph",
    "parameters",
    "plan_memory",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headway.llm' has no attribute {name!r}")
    return getattr(import_module(f"headway.llm.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
