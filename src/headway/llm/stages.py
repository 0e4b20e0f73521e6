"""The stages of a model under a plan: times of their passes, and bytes that they send.

Collectives within a server, over its links between GPUs, are part of the times. Those that span
servers are bytes to send: they are messages of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from headway.llm.gpu import GpuModel
from headway.llm.layers import Block, Rank, Work, embedding, head, transformer_layer
from headway.llm.plan import Plan

_BUSY_SHARE = 20 / 132
"""The share of a GPU's multiprocessors that overlapped all-to-alls keep busy: DeepSeek-V3's on the
H800 (arXiv 2412.19437, section 3.2.2)."""


@dataclass(frozen=True, slots=True)
class PassCost:
    """The time of a pass through a stage on each rank, and what its ranks exchange."""

    time_ns: int
    tensor_bytes: int = 0
    exchange_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StageCost:
    """One stage: its passes, and the gradients that its ranks hold.

    `expert_gradient_bytes` are those of experts, which fewer ranks share.
    """

    forward: PassCost
    backward: PassCost
    gradient_bytes: int
    expert_gradient_bytes: int
    parameters: int
    expert_parameters: int


@dataclass(frozen=True, slots=True)
class Costs:
    """All stages of a model on servers of `gpus_per_server` GPUs."""

    stages: tuple[StageCost, ...]
    activation_bytes: int
    embedding_bytes: int


@lru_cache(maxsize=2**12)
def work_out(rank: Rank, gpus_per_server: int) -> Costs:
    """Return the costs of all stages."""
    plan, model = rank.plan, rank.model
    gpu = _beside_messages(rank.gpu) if plan.overlaps_exchanges else rank.gpu
    part = _alike(replace(rank, gpu=gpu))
    stages = []
    for number, layers in enumerate(plan.stage_layers(model.layers)):
        dense = sum(1 for layer in layers if not model.ffn_of(layer)[1])
        blocks = [(transformer_layer(part, False), dense)] if dense else []
        if dense < len(layers):
            blocks.append((transformer_layer(part, True), len(layers) - dense))
        if number == 0:
            blocks.append((embedding(part), 1))
        if number == plan.stages - 1:
            blocks.append((head(part), 1))
        stages.append(_stage(rank, blocks, gpus_per_server))
    tied = model.tied_embeddings and plan.stages > 1
    return Costs(
        tuple(stages),
        rank.activation_bytes // plan.tensor,
        embedding(rank).parameters * model.number_bytes if tied else 0,
    )


def updated_parameters(plan: Plan, stages: Sequence[StageCost]) -> float:
    """Return the parameters that a rank updates: with ZeRO those of its shard."""
    shards = plan.data if plan.zero else 1
    expert_shards = plan.data // plan.expert if plan.zero else 1
    return sum(
        stage.parameters / shards + stage.expert_parameters / expert_shards for stage in stages
    )


def _beside_messages(gpu: GpuModel) -> GpuModel:
    """Return what is left of a GPU for computing during all-to-alls."""
    left = gpu.multiprocessors - round(_BUSY_SHARE * gpu.multiprocessors)
    share = left / gpu.multiprocessors
    return replace(
        gpu,
        multiprocessors=left,
        peak_flops_per_s=share * gpu.peak_flops_per_s,
        fp32_peak_flops_per_s=share * gpu.fp32_peak_flops_per_s,
        fp8_peak_flops_per_s=share * gpu.fp8_peak_flops_per_s,
    )


def _alike(rank: Rank) -> Rank:
    """Return a rank with the same blocks: many plans differ in nothing that matters to them."""
    plan = rank.plan
    reduced = replace(
        plan,
        data=plan.expert,
        pipeline=1,
        global_batch=plan.micro_batch * plan.expert,
        schedule="1f1b",
        interleave=1,
        zero=0,
    )
    return replace(rank, plan=reduced)


def _stage(rank: Rank, blocks: list[tuple[Block, int]], gpus_per_server: int) -> StageCost:
    """Return the cost of blocks, each with how many there are of it.

    A tied embedding is counted twice where both copies are on one rank; it is there once.
    """
    size = rank.model.number_bytes
    parameters = sum(block.parameters * times for block, times in blocks)
    if rank.model.tied_embeddings and rank.plan.stages == 1:
        parameters -= embedding(rank).parameters
    expert_parameters = sum(block.expert_parameters * times for block, times in blocks)
    return StageCost(
        _cost(rank, [(block.forward, times) for block, times in blocks], gpus_per_server),
        _cost(rank, [(block.backward, times) for block, times in blocks], gpus_per_server),
        parameters * size,
        expert_parameters * size,
        parameters,
        expert_parameters,
    )


def _cost(rank: Rank, works: list[tuple[Work, int]], gpus_per_server: int) -> PassCost:
    """Return the cost of a pass: for each part the longer of GPU and CPU."""
    plan, gpu = rank.plan, rank.gpu
    tensor_bytes = rank.activation_bytes
    tensor_ns = exchange_ns = gpu.collective_ns
    tensor_inside = plan.tensor <= gpus_per_server
    if tensor_inside:
        # Groups on one server share its links, and their all-reduces meet.
        groups = max(1, min(gpus_per_server, plan.gpus) // plan.tensor)
        tensor_ns += gpu.all_reduce_ns(plan.tensor, groups * tensor_bytes)
    experts_inside = plan.expert * plan.tensor <= gpus_per_server
    token_bytes = _exchanged_bytes(rank, experts_inside)
    if experts_inside:
        exchange_ns += gpu.all_reduce_ns(plan.expert, token_bytes) / 2
    waited_ns = 0.0 if plan.overlaps_exchanges else exchange_ns
    time_ns, collectives, exchanges = 0.0, 0, 0
    for work, times in works:
        gpu_ns = work.gpu_ns + work.collectives * tensor_ns + work.exchanges * waited_ns
        gpu_ns += max(0.0, work.overlapped * tensor_ns - work.cover_ns)
        launched = work.collectives + work.overlapped
        others = launched * (plan.tensor - 1) + work.exchanges * (plan.expert - 1)
        cpu_ns = work.kernels * gpu.launch_ns + others * gpu.collective_launch_ns
        time_ns += times * max(gpu_ns, cpu_ns)
        collectives += times * launched
        exchanges += times * work.exchanges
    if plan.overlaps_exchanges:
        time_ns = max(time_ns, exchanges * exchange_ns)
    return PassCost(
        max(1, round(time_ns)),
        0 if tensor_inside else collectives * tensor_bytes,
        0 if experts_inside else exchanges * token_bytes,
    )


def _exchanged_bytes(rank: Rank, inside: bool) -> int:
    """Return what a rank sends to experts in an all-to-all; tensor parallelism splits it.

    In fp8, tokens go to experts in 8 bits and come back in 16; this is the mean of both ways. If
    a token goes to a limited number of servers, each gets it once and passes it on within.
    """
    model = rank.model
    copies = model.experts_per_token
    if model.servers_per_token and not inside:
        copies = min(copies, model.servers_per_token)
    sent = rank.activation_bytes * copies // rank.plan.tensor
    return sent * 3 // 4 if model.precision == "fp8" else sent
