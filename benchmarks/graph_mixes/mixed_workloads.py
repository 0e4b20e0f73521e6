"""Mixes of plain, DDP, FSDP, pipeline and MoE jobs, drawn from a seed.

Language models are built from their shape: a layer of hidden size h has 12 h^2 parameters of two
bytes, computes 2 * 12 h^2 operations for a token forward and twice as much backward, at 60 Tflop/s.
Several layers are one unit, so that a run takes seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from headway import Graph, Job, Workload
from headway.graphs import Layer, MoeLayer, ddp, fsdp, moe, pipeline, split_layers

FLOPS = 60e12
GIB = 2**30


@cache
def transformer(layers: int, hidden: int, tokens: int, units: int) -> tuple[Layer, ...]:
    """Return a language model as units of several layers, for a mini-batch of this many tokens."""
    each = layers / units
    forward_ns = round(each * 24 * hidden**2 * tokens / FLOPS * 1e9)
    parameters = round(each * 24 * hidden**2)
    unit = Layer(forward_ns, 2 * forward_ns, parameters, 2 * hidden * tokens)
    return (unit,) * units


@cache
def overlapped(ranks: int, model: str) -> Graph:
    """Return DDP of a model whose gradients are sent in buckets."""
    shape = {"bert-base": (12, 768), "bert-large": (24, 1024)}[model]
    return ddp(transformer(*shape, 4096, 6), ranks, first_bucket_bytes=25 * 2**20)


@cache
def sharded(ranks: int, model: str) -> Graph:
    """Return FSDP of a model, a unit ahead."""
    shape = {"gpt-1.3b": (24, 2048), "gpt-2.7b": (32, 2560)}[model]
    return fsdp(transformer(*shape, 8192, 8), ranks)


@cache
def pipelined(stages: int, replicas: int, split: int, model: str) -> Graph:
    """Return a pipeline of 1F1B with 8 microbatches."""
    shape = {"gpt-2.7b": (32, 2560), "gpt-6.7b": (32, 4096)}[model]
    units = [
        Layer(
            unit.forward_ns // split,
            unit.backward_ns // split,
            unit.parameter_bytes // split,
            unit.activation_bytes,
            unit.activation_bytes if split > 1 else 0,
        )
        for unit in transformer(*shape, 2048, 16)
    ]
    stages_of = split_layers(units, stages)
    return pipeline(
        stages_of, 8, data_parallel=replicas, tensor_parallel=split, bucket_bytes=200 * 2**20
    )


@cache
def experts(ranks: int, spread: int) -> Graph:
    """Return a mixture of experts, spread over this many ranks."""
    (dense,) = transformer(3, 1024, 4096, 1)
    layer = MoeLayer(
        dense.forward_ns // 2,
        dense.backward_ns // 2,
        dense.forward_ns // 2,
        dense.backward_ns // 2,
        3 * dense.activation_bytes,
        dense.parameter_bytes // 3,
        dense.parameter_bytes // 3 * 2,
    )
    return moe([layer] * 4, ranks, expert_parallel=spread)


PLAIN = ("vgg16", "resnet50", "inception-v3", "lstm-ptb")

GRAPHS: Mapping[str, Sequence[Callable[[], Graph]]] = {
    "ddp": [
        partial(overlapped, ranks, model)
        for ranks in (4, 8, 16)
        for model in ("bert-base", "bert-large")
    ],
    "fsdp": [
        partial(sharded, ranks, model)
        for ranks in (8, 12, 16)
        for model in ("gpt-1.3b", "gpt-2.7b")
    ],
    "pipeline": [
        partial(pipelined, 4, 1, 1, "gpt-2.7b"),
        partial(pipelined, 2, 3, 1, "gpt-2.7b"),
        partial(pipelined, 4, 2, 1, "gpt-2.7b"),
        partial(pipelined, 4, 1, 2, "gpt-6.7b"),
        partial(pipelined, 4, 2, 2, "gpt-6.7b"),
        partial(pipelined, 8, 2, 1, "gpt-6.7b"),
        partial(pipelined, 8, 1, 4, "gpt-6.7b"),
    ],
    "moe": [partial(experts, 8, 8), partial(experts, 8, 4), partial(experts, 16, 8)],
}
"""Graphs to draw from, all as likely."""


@dataclass(frozen=True)
class Mix:
    """How many jobs of each kind, and in how many seconds they arrive."""

    jobs: Mapping[str, int]
    span_s: int
    lengths_s: tuple[int, int] = (20, 200)


def draw_workload(mix: Mix, seed: int) -> Workload:
    """Draw a workload; a job's length is that of its computing."""
    draw = random.Random(seed)
    kinds = [kind for kind, count in mix.jobs.items() for _ in range(count)]
    draw.shuffle(kinds)
    arrivals = sorted(draw.uniform(0, mix.span_s) for _ in kinds)
    jobs = []
    for index, (kind, arrival_s) in enumerate(zip(kinds, arrivals, strict=True)):
        arrival_ns, length_ns = round(arrival_s * 1e9), draw.uniform(*mix.lengths_s) * 1e9
        if kind == "plain":
            model, gpus = draw.choice(PLAIN), draw.choice([1, 1, 1, 2, 4, 4, 8])
            job = Job.of_model(
                model, job_id=f"{kind}-{index}", arrival_ns=arrival_ns, gpus=gpus, iterations=1
            )
        else:
            graph = draw.choice(GRAPHS[kind])()
            job = Job(
                job_id=f"{kind}-{index}",
                arrival_ns=arrival_ns,
                gpus=graph.ranks,
                iterations=1,
                memory_bytes=draw.choice([6, 10, 14]) * GIB,
                graph=graph,
            )
        job = replace(job, iterations=max(1, round(length_ns / job.compute_ns)))
        jobs.append(job)
    return Workload(jobs)
