"""The plans of a model on some GPUs, fastest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.experiments.prediction import predicted_iteration_ns
from headway.llm.config import ModelConfig
from headway.llm.estimate import estimated_iteration_ns
from headway.llm.gpu import GpuModel
from headway.llm.memory import plan_memory
from headway.llm.plan import GPUS_PER_SERVER, Plan
from headway.llm.plans import RankedPlan
from headway.network.contention import NetworkModel

_UNCERTAINTY = 0.1
"""A plan is simulated if it would be listed with an estimate shorter by this share."""

_MOST_SIMULATED = 3
"""At most this many times as many plans are simulated as are wanted."""


MOST_PASSES = 2**19
"""Passes of all ranks in an iteration, up to which one is simulated: some seconds."""


def estimate_plans(
    config: ModelConfig,
    plans: Sequence[Plan],
    gpu: GpuModel,
    network: NetworkModel,
    *,
    gpus_per_server: int = GPUS_PER_SERVER,
    fused_attention: bool = True,
) -> list[RankedPlan]:
    """Return plans by the estimated time of an iteration, fastest first."""
    found = [
        RankedPlan(
            plan,
            round(
                estimated_iteration_ns(
                    config,
                    plan,
                    gpu,
                    network,
                    gpus_per_server=gpus_per_server,
                    fused_attention=fused_attention,
                )
            ),
            plan_memory(config, plan, fused_attention=fused_attention),
        )
        for plan in plans
    ]
    return sorted(found, key=_order)


def rank_plans(
    config: ModelConfig,
    estimated: Sequence[RankedPlan],
    gpu: GpuModel,
    network: NetworkModel,
    *,
    count: int,
    gpus_per_server: int = GPUS_PER_SERVER,
    fused_attention: bool = True,
    done: Callable[[int, int], None] = lambda finished, total: None,
) -> list[RankedPlan]:
    """Return the fastest plans as simulated, at most `count`, fastest first.

    Plans are simulated in the order of `estimated` until further ones could not be among the
    fastest even if their estimates were a tenth too long, at most three times as many as are
    wanted. Those with more than `MOST_PASSES` passes keep their estimates. `done` is called after
    each with how many are done, and at most how many there are.
    """
    chosen = estimated[: _MOST_SIMULATED * count]
    ranked: list[RankedPlan] = []
    for candidate in chosen:
        one = candidate
        least_ns = (1 - _UNCERTAINTY) * one.iteration_ns
        if len(ranked) >= count and least_ns > ranked[count - 1].iteration_ns:
            break
        if _passes(one.plan) <= MOST_PASSES:
            time_ns = predicted_iteration_ns(
                config,
                one.plan,
                gpu,
                network,
                gpus_per_server=gpus_per_server,
                fused_attention=fused_attention,
            )
            one = RankedPlan(one.plan, time_ns, one.memory, simulated=True)
        ranked.append(one)
        ranked.sort(key=_order)
        done(len(ranked), len(chosen))
    return ranked[:count]


def _passes(plan: Plan) -> int:
    """Return the passes of all ranks, those of a tensor-parallel group counted once."""
    return 2 * plan.microbatches * plan.interleave * plan.gpus // plan.tensor


def _order(one: RankedPlan) -> tuple[int, str]:
    return one.iteration_ns, str(one.plan)
