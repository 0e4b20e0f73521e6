"""All plans for a model on some GPUs that are worth considering, and what they take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headway.domain.errors import InputError
from headway.llm.config import ModelConfig
from headway.llm.memory import Memory, plan_memory
from headway.llm.plan import GPUS_PER_SERVER, RECOMPUTE, Plan
from headway.llm.sizes import iteration_flops

USUAL_BATCH_TOKENS = 2**22
"""A global batch of 4 million tokens, as for Llama 2 (Touvron et al. 2023, section 2.2)."""

MICRO_BATCHES = (1, 2, 4, 8, 16)
INTERLEAVES = (1, 2, 3, 4, 6, 8)
_ZERO_STAGES = (0, 1, 3)


@dataclass(frozen=True, slots=True)
class RankedPlan:
    """A plan with the time of its iteration alone, estimated or simulated, and its memory."""

    plan: Plan
    iteration_ns: int
    memory: Memory
    simulated: bool = False

    def model_flops_per_s(self, config: ModelConfig) -> float:
        """Return the FLOPs per second of each GPU, those of recomputation left out."""
        flops = iteration_flops(config, self.plan.global_batch)
        return 1e9 * flops / self.iteration_ns / self.plan.gpus


def usual_global_batch(config: ModelConfig) -> int:
    """Return the sequences of a global batch of 4 million tokens."""
    return max(1, USUAL_BATCH_TOKENS // config.sequence)


def candidate_plans(
    config: ModelConfig,
    gpus: int,
    gpu_bytes: int,
    *,
    global_batch: int | None = None,
    gpus_per_server: int = GPUS_PER_SERVER,
    fused_attention: bool = True,
) -> Iterator[Plan]:
    """Yield the plans that divide the model and the batch and fit in a GPU's memory.

    Of plans that differ only in recomputation and ZeRO stage, those that recompute least are
    taken, with the lowest stage for which they fit. Fused attention always recomputes its scores.
    Tensor parallelism comes with sequence parallelism, which saves memory and costs nothing.
    """
    choices = RECOMPUTE[1:] if fused_attention else RECOMPUTE
    batch = usual_global_batch(config) if global_batch is None else global_batch
    for degrees in _degrees(config, gpus, batch, gpus_per_server):
        least = len(choices)
        for zero in _ZERO_STAGES:
            if zero and (degrees.data == 1 or (zero > 1 and degrees.pipeline > 1)):
                continue
            for number, recompute in enumerate(choices[:least]):
                plan = replace(degrees, recompute=recompute, zero=zero)
                if plan_memory(config, plan, fused_attention=fused_attention).total <= gpu_bytes:
                    yield plan
                    least = number
                    break


def _degrees(config: ModelConfig, gpus: int, batch: int, gpus_per_server: int) -> Iterator[Plan]:
    """Yield plans that divide the model and the batch, whether they fit or not."""
    for tensor in _divisors(gpus_per_server):
        for pipeline in range(1, config.layers + 1):
            data, left = divmod(gpus, tensor * pipeline)
            if left:
                continue
            for expert in _divisors(math.gcd(data, config.experts)) if config.experts else (1,):
                for micro_batch in MICRO_BATCHES:
                    for interleave in INTERLEAVES:
                        try:
                            plan = Plan(
                                tensor=tensor,
                                pipeline=pipeline,
                                data=data,
                                expert=expert,
                                sequence_parallel=tensor > 1,
                                micro_batch=micro_batch,
                                global_batch=batch,
                                schedule="interleaved" if interleave > 1 else "1f1b",
                                interleave=interleave,
                            )
                            plan.check(config, gpus_per_server)
                        except InputError:
                            continue
                        yield plan


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]
