"""Memory of a GPU under a plan, with activations after Korthikanti et al. 2022 (arXiv 2205.05198).

Training is mixed-precision Adam as in Megatron: 18 bytes for a parameter, 2 for its 16-bit value, 4
for its gradient, which is added up in fp32, and 12 for the optimizer's copy and two moments. In
fp32 it is 16: there is no second copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headway.domain.errors import InputError
from headway.llm.config import ModelConfig
from headway.llm.plan import GPUS_PER_SERVER, Plan
from headway.llm.sizes import (
    embedding_parameters,
    expert_parameters,
    shared_parameters,
)

GRADIENT_BYTES = 4
OPTIMIZER_BYTES = 12
FP32_OPTIMIZER_BYTES = 8

WORKSPACE_BYTES = 2 * 2**30
"""What the CUDA context, NCCL and the libraries of matrix products take: an assumption."""

GIGABYTE = 2**30


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that the fullest GPU of a plan needs, by what they are for.

    `activations` are those that the microbatches in flight keep for the backward pass, those of
    the embeddings and the logits included. `workspace` is what libraries take, and with ZeRO stage
    3 the gathered parameters of two layers.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    workspace: int
    stage: int
    """The pipeline stage that needs most, from 0."""

    @property
    def total(self) -> int:
        """All bytes."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.workspace


def plan_memory(config: ModelConfig, plan: Plan, *, fused_attention: bool = True) -> Memory:
    """Return what the fullest GPU needs; ranks of one stage need the same.

    Fused attention keeps no matrices of scores, as with selective recomputation.
    """
    if fused_attention and plan.recompute == "none":
        plan = replace(plan, recompute="selective")
    layers = plan.stage_layers(config.layers)
    counts = [_layer_counts(config, plan, layers, device) for device in range(plan.pipeline)]
    # Of devices with the same layers the first keeps most microbatches.
    stages = {0, plan.pipeline - 1} | {counts.index(one) for one in counts}
    found = (_stage(config, plan, stage, counts[stage]) for stage in sorted(stages))
    return max(found, key=lambda one: one.total)


def check_memory(
    config: ModelConfig,
    plan: Plan,
    gpu_bytes: int,
    gpu: str,
    *,
    gpus_per_server: int = GPUS_PER_SERVER,
    fused_attention: bool = True,
) -> Memory:
    """Return the memory of a plan, or refuse one that needs more than a GPU has."""
    needed = plan_memory(config, plan, fused_attention=fused_attention)
    if needed.total <= gpu_bytes:
        return needed
    changes = _advice(config, plan, needed, gpu_bytes, gpus_per_server, fused_attention)
    advice = ", ".join(changes) or "more GPUs"
    raise InputError(
        f"{plan} does not fit: stage {needed.stage} needs {needed.total / GIGABYTE:,.1f} GB and "
        f"{gpu} has {gpu_bytes / GIGABYTE:,.1f} GB, {(needed.total - gpu_bytes) / GIGABYTE:,.1f} "
        f"GB too few. What would help: {advice}.",
        field="plan",
    )


def layer_activation_bytes(config: ModelConfig, plan: Plan, layer: int) -> float:
    """Return what a layer keeps of one microbatch for its backward pass on one GPU.

    For GPT without recomputation, that is s b h (10 + 24 / t + 5 a s / (h t)) bytes (Korthikanti et
    al., Eq. 2), all of it divided by t with sequence parallelism (Eq. 4). Selective recomputation
    leaves out the term of the attention matrix (Eq. 6), and full recomputation all but the layer's
    input.
    """
    tokens = config.sequence * plan.micro_batch
    split = plan.tensor if plan.sequence_parallel else 1
    width = config.number_bytes
    if plan.recompute == "full":
        return tokens * width * config.hidden / split
    return _kept_bytes(config, plan, layer)


def activation_bytes(
    config: ModelConfig, plan: Plan, stage: int, counts: Mapping[int, int]
) -> float:
    """Return the activations of all microbatches that are in flight at a stage, on one GPU.

    `counts` has the numbers of its layers, by the number of a layer of the same kind.
    """
    kept = sum(
        count * layer_activation_bytes(config, plan, layer) for layer, count in counts.items()
    )
    total = in_flight(plan, stage) * kept
    if plan.recompute == "full":
        # The layer that is run again, whose attention matrix is not kept either.
        total += max(_kept_bytes(config, plan, layer) for layer in counts)
    tokens = config.sequence * plan.micro_batch
    split = plan.tensor if plan.sequence_parallel else 1
    if stage == 0:
        # The mask of dropout after the embedding.
        total += in_flight(plan, stage) * tokens * config.hidden / split
    if stage == plan.pipeline - 1:
        # The input of the last norm and of the head, and logits in fp32 (section 4.3).
        total += 2 * config.number_bytes * tokens * config.hidden / split
        total += 4 * tokens * config.vocabulary / plan.tensor
    return total


def in_flight(plan: Plan, stage: int) -> float:
    """Return how many microbatches a stage keeps activations of at most.

    With an interleaved schedule, the first keeps 1 + (p - 1) / (p m) times as many, m being the
    virtual stages of a device (section 4.2.3).
    """
    if plan.schedule == "gpipe":
        return plan.microbatches
    most = plan.pipeline - stage
    if plan.interleave > 1:
        return min(plan.microbatches, most + (plan.pipeline - 1) / plan.interleave)
    return min(plan.microbatches, most)


def _kept_bytes(config: ModelConfig, plan: Plan, layer: int) -> float:
    """Return what a layer keeps without full recomputation."""
    tokens = config.sequence * plan.micro_batch
    split = plan.tensor if plan.sequence_parallel else 1
    width, hidden, heads = config.number_bytes, config.hidden, config.heads
    every_token, experts = config.ffn_of(layer)
    # Inputs of two norms, of attention and of the FFN, and two masks of dropout; a token's hidden
    # values once for each expert that it goes to.
    inputs = 3 + (every_token > 0) + (config.experts_per_token if experts else 0)
    unsplit = width * hidden * inputs + 2 * hidden
    latent = config.latent
    if latent is None:
        attention = width * config.head_size * (2 * heads + 2 * config.kv_heads)
    else:
        unsplit += width * (latent.query_rank + latent.kv_rank + latent.rotary_size)
        keys = config.head_size + latent.rotary_size
        attention = width * heads * (2 * keys + 2 * latent.value_size)
    # The FFN keeps the output of its first matrix, of both if it is gated, and what follows.
    ffn = width * (every_token + experts) * (3 if config.gated_ffn else 2)
    matrix = 0 if plan.recompute != "none" else (2 * width + 1) * heads * config.sequence
    return tokens * (unsplit / split + (attention + ffn + matrix) / plan.tensor)


def _layer_counts(
    config: ModelConfig, plan: Plan, layers: Sequence[range], device: int
) -> dict[int, int]:
    """Return how many layers of each kind a device has, each kind by the number of its last layer.

    There are two kinds, dense layers and then those with experts, if the model has experts.
    """
    held = layers[device :: plan.pipeline]
    dense = sum(max(0, min(one.stop, config.dense_layers) - one.start) for one in held)
    # Dense layers last: they may be all there are, and the last layer of the model is then theirs.
    counts = {config.layers - 1: sum(map(len, held)) - dense, config.dense_layers - 1: dense}
    return {layer: count for layer, count in counts.items() if count}


def _stage(config: ModelConfig, plan: Plan, stage: int, counts: Mapping[int, int]) -> Memory:
    common = (
        sum(count * shared_parameters(config, layer) for layer, count in counts.items())
        / plan.tensor
    )
    if stage == 0 or (stage == plan.pipeline - 1 and config.tied_embeddings):
        common += embedding_parameters(config) / plan.tensor
    if stage == plan.pipeline - 1 and not config.tied_embeddings:
        common += config.vocabulary * config.hidden / plan.tensor
    experts = sum(count * expert_parameters(config, layer) for layer, count in counts.items()) / (
        plan.tensor * plan.expert
    )
    # Spread over ranks, an expert has that many times fewer replicas.
    sharded = common / plan.data + experts / (plan.data / plan.expert)
    whole = common + experts
    width = config.number_bytes
    fp32 = width == 4
    workspace: float = WORKSPACE_BYTES
    if plan.zero == 3:
        # Two layers at a time are gathered.
        workspace += 2 * width * whole / sum(counts.values())
    return Memory(
        parameters=round(width * (sharded if plan.zero >= 3 else whole)),
        gradients=round(GRADIENT_BYTES * (sharded if plan.zero >= 2 else whole)),
        optimizer=round(
            (FP32_OPTIMIZER_BYTES if fp32 else OPTIMIZER_BYTES)
            * (sharded if plan.zero >= 1 else whole)
        ),
        activations=round(activation_bytes(config, plan, stage, counts)),
        workspace=round(workspace),
        stage=stage,
    )


def _advice(
    config: ModelConfig,
    plan: Plan,
    needed: Memory,
    gpu_bytes: int,
    gpus_per_server: int,
    fused_attention: bool,
) -> list[str]:
    """Return changes of a plan that make it fit, or else those that save most."""
    changes: dict[str, dict[str, object]] = {
        "sequence parallelism (sp)": {"sequence_parallel": True},
        "selective recomputation (selective)": {"recompute": "selective"},
        "full recomputation (recompute)": {"recompute": "full"},
        "ZeRO stage 1 (zero1)": {"zero": max(1, plan.zero)},
        "ZeRO stage 3 (zero3)": {"zero": 3},
        f"microbatches of {plan.micro_batch // 2}": {"micro_batch": plan.micro_batch // 2},
        f"tensor {2 * plan.tensor}": {"tensor": 2 * plan.tensor},
        f"pipeline {2 * plan.pipeline}": {"pipeline": 2 * plan.pipeline},
        f"expert {2 * plan.expert}": {"expert": 2 * plan.expert},
    }
    totals: dict[str, int] = {}
    for label, change in changes.items():
        try:
            other = replace(plan, **change)  # type: ignore[arg-type]
            other.check(config, gpus_per_server)
        except InputError:
            continue
        total = plan_memory(config, other, fused_attention=fused_attention).total
        if total < needed.total:
            totals[label] = total
    fitting = [label for label, total in totals.items() if total <= gpu_bytes]
    if fitting:
        return fitting
    best = sorted(totals, key=lambda label: totals[label])[:3]
    return [f"{label} saves {(needed.total - totals[label]) / GIGABYTE:,.1f} GB" for label in best]
