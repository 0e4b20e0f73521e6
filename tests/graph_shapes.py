"""Graphs of usual shapes for tests, and cases in which every other job has one."""

from __future__ import annotations

from dataclasses import replace

from builders import MB
from headway.domain.graph import Graph, Message, Task
from headway.domain.job import Job
from headway.domain.workload import Workload
from strategies import Case

MS = 1_000_000


def ddp_graph(ranks: int, ns: int = MS, size: int = 10 * MB) -> Graph:
    """Return gradients in two parts, the first of which overlaps with the backward pass."""
    every = range(ranks)
    tasks = [Task("forward", every, ns), Task("late", every, ns), Task("early", every, 2 * ns)]
    if ranks == 1:
        return Graph(1, tasks)
    return Graph(
        ranks,
        tasks,
        [
            Message("late gradients", "all-reduce", [every], size, after=["late"]),
            Message("early gradients", "all-reduce", [every], size // 2, after=["early"]),
        ],
    )


def sharded_graph(ranks: int, ns: int = MS, size: int = 10 * MB) -> Graph:
    """Return parameters gathered before computing and gradients scattered after, two channels."""
    if ranks == 1:
        return ddp_graph(1, ns)
    every = range(ranks)
    return Graph(
        ranks,
        [
            Task("first", every, ns, after=["gather 1"]),
            Task("second", every, ns, after=["gather 2"]),
        ],
        [
            Message("gather 1", "all-gather", [every], size),
            Message("gather 2", "all-gather", [every], size),
            Message("scatter 1", "reduce-scatter", [every], size, "gradients", ["first"]),
            Message("scatter 2", "reduce-scatter", [every], size + 1, "gradients", ["second"]),
        ],
    )


def pipeline_graph(ranks: int, ns: int = MS, size: int = MB, microbatches: int = 2) -> Graph:
    """Return a pipeline of one rank a stage, forward and back, with a channel for each pair."""
    if ranks == 1:
        return ddp_graph(1, ns)
    tasks, messages = [], []
    for batch in range(microbatches):
        for stage in range(ranks):
            before = [f"send {batch} {stage - 1}"] if stage else []
            tasks.append(Task(f"forward {batch} {stage}", [stage], ns, before))
    for batch in range(microbatches):
        for stage in reversed(range(ranks)):
            before = [f"return {batch} {stage + 1}"] if stage < ranks - 1 else []
            tasks.append(Task(f"backward {batch} {stage}", [stage], 2 * ns, before))
    for batch in range(microbatches):
        for stage in range(ranks - 1):
            pair, name = [stage, stage + 1], f"send {batch} {stage}"
            after = [f"forward {batch} {stage}"]
            messages.append(Message(name, "send", [pair], size, f"to {stage + 1}", after))
    for batch in range(microbatches):
        for stage in range(1, ranks):
            pair, name = [stage - 1, stage], f"return {batch} {stage}"
            after = [f"backward {batch} {stage}"]
            messages.append(Message(name, "send", [pair], size, f"from {stage}", after))
    return Graph(ranks, tasks, messages)


def experts_graph(ranks: int, ns: int = MS, size: int = MB) -> Graph:
    """Return tokens exchanged among all ranks, and gradients within two groups of ranks."""
    if ranks < 4:
        return ddp_graph(ranks, ns, size)
    every, half = range(ranks), ranks // 2
    groups = [range(half), range(half, ranks)]
    return Graph(
        ranks,
        [
            Task("router", every, ns),
            Task("experts", range(0, ranks, 2), ns, ["dispatch"]),
            Task("experts of others", range(1, ranks, 2), 3 * ns, ["dispatch"]),
            Task("head", every, ns, ["combine"]),
        ],
        [
            Message("dispatch", "all-to-all", [every], size, after=["router"]),
            Message("combine", "all-to-all", [every], size, after=["experts", "experts of others"]),
            Message("gradients", "all-reduce", groups, 2 * size, "gradients", ["router"]),
            Message("last gradients", "all-reduce", groups, size, "gradients", ["head"]),
        ],
    )


SHAPES = (ddp_graph, pipeline_graph, sharded_graph, experts_graph)


def with_graph(job: Job, shape: int) -> Job:
    """Return a job with a graph of some shape instead of its passes and its gradient."""
    graph = SHAPES[shape % len(SHAPES)](job.gpus, job.forward_ns, job.gradient_bytes)
    return replace(job, forward_ns=0, backward_ns=0, gradient_bytes=0, model="", graph=graph)


def mixed(case: Case, keep: int = 2) -> Case:
    """Return a case in which all jobs but every `keep`-th have graphs, of all shapes in turn."""
    jobs = [
        job if index % keep == 0 else with_graph(job, index // 2)
        for index, job in enumerate(case.workload)
    ]
    return replace(case, workload=Workload(jobs))
