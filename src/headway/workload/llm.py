"""Synthetic workloads of clusters that develop large language models.

Three kinds of jobs share the cluster: pretraining, fine-tuning and small jobs. What was taken from
the published traces of Acme and Philly, and what is assumed, is in docs/reference/llm-workload.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from headway.domain.gpus import gpu_type
from headway.domain.graph import Graph, Task
from headway.domain.job import Job
from headway.domain.limits import whole
from headway.domain.workload import Workload
from headway.llm.config_file import config_from
from headway.llm.gpu_file import gpu_from
from headway.llm.graph import iteration_graph
from headway.llm.memory import check_memory
from headway.llm.plan import Plan
from headway.workload.draw import LONGEST_SPAN_S, MAX_JOBS, Draw, counts_by_share


@dataclass(frozen=True, slots=True)
class Shape:
    """A model and how it is spread over GPUs, with its share of its kind's jobs."""

    model: str
    plan: str
    share: float


@dataclass(frozen=True, slots=True)
class JobKind:
    """Jobs of one kind: their share of all jobs, their shapes, and how long they run.

    Durations are log-normal, of a median and a mean in seconds, and cut off at the shortest and the
    longest.
    """

    name: str
    share: float
    median_s: float
    mean_s: float
    shapes: tuple[Shape, ...]

    @property
    def sigma(self) -> float:
        """The standard deviation of the logarithm of durations."""
        return math.sqrt(2 * math.log(self.mean_s / self.median_s))


SHORTEST_S, LONGEST_S = 10.0, 43_200.0
JOBS, SPAN_S = 500, 86_400
GPU = "a100"

KINDS = (
    JobKind(
        "pretraining",
        share=0.032,
        median_s=10_800,
        mean_s=18_000,
        shapes=(
            Shape("llama2-7b", "dp64-mb1-gb256-zero1", 3),
            Shape("llama2-13b", "tp2-dp64-sp-mb1-gb256-zero1", 2),
            Shape("megatron-22b", "tp8-pp2-dp8-sp-mb2-gb128-zero1", 2),
            Shape("llama2-70b", "tp8-pp4-dp8-sp-mb1-gb64-zero1", 1),
        ),
    ),
    JobKind(
        "fine-tuning",
        share=0.1,
        median_s=1_800,
        mean_s=7_200,
        shapes=(
            Shape("llama2-7b", "tp8-sp-mb4-gb16", 1643),
            Shape("llama2-13b", "tp8-dp2-sp-mb4-gb16-zero1", 199),
            Shape("mixtral-8x7b", "tp4-dp8-ep8-sp-mb1-gb32-zero1", 67),
        ),
    ),
    JobKind(
        "small",
        share=0.868,
        median_s=122,
        mean_s=1_414,
        shapes=(
            Shape("gpt2-1.5b", "mb4-gb16", 76_627),
            Shape("gpt2-355m", "dp2-mb8-gb32", 1_818),
            Shape("gpt2-355m", "dp4-mb8-gb64", 1_870),
            Shape("gpt2-1.5b", "dp8-mb4-gb64", 1_643),
        ),
    ),
)
"""The kinds of jobs of the preset `llm`."""


def generate_llm_workload(
    seed: int = 0, *, jobs: int | None = None, span_s: int | None = None
) -> Workload:
    """Draw a workload of pretraining, fine-tuning and small jobs, in order of arrival.

    Jobs of the same shape have the same graph, and a job takes all memory of its GPUs, so that it
    has them alone. Iterations are as many as the duration holds when messages take no time.

    Args:
        seed: The same seed draws the same jobs.
        jobs: The number of jobs; 500 by default.
        span_s: The time in which they arrive, in seconds; a day by default.
    """
    count = whole(JOBS if jobs is None else jobs, "jobs", 1, MAX_JOBS)
    span = whole(SPAN_S if span_s is None else span_s, "span", 1, LONGEST_SPAN_S, " seconds")
    draw = Draw(whole(seed, "seed", 0, 2**63 - 1))
    drawn: list[tuple[JobKind, Shape]] = []
    for kind, of_kind in zip(
        KINDS, counts_by_share(count, [kind.share for kind in KINDS]), strict=True
    ):
        shares = [shape.share for shape in kind.shapes]
        for shape, of_shape in zip(kind.shapes, counts_by_share(of_kind, shares), strict=True):
            drawn += [(kind, shape)] * of_shape
    draw.shuffle(drawn)
    durations = [_duration_s(kind, draw) for kind, _ in drawn]
    arrivals = sorted(draw.integer(1, span) for _ in drawn)
    return Workload(
        [
            _job(shape, f"{kind.name}-{number}", arrival_s, duration_s)
            for number, ((kind, shape), arrival_s, duration_s) in enumerate(
                zip(drawn, arrivals, durations, strict=True)
            )
        ],
        source=f"generated workload llm, seed {seed}",
    )


def _duration_s(kind: JobKind, draw: Draw) -> float:
    normal = NormalDist().inv_cdf((draw.integer(0, 2**32 - 1) + 0.5) / 2**32)
    duration_s = kind.median_s * math.exp(kind.sigma * normal)
    return min(max(duration_s, SHORTEST_S), LONGEST_S)


def _job(shape: Shape, job_id: str, arrival_s: int, duration_s: float) -> Job:
    graph = _graph(shape.model, shape.plan)
    return Job(
        job_id=job_id,
        arrival_ns=arrival_s * 10**9,
        gpus=graph.ranks,
        iterations=max(1, round(duration_s * 1e9 / graph.unit_ns())),
        memory_bytes=gpu_from(GPU).memory_bytes,
        model=shape.model,
        measured_on=gpu_type(GPU).name,
        graph=graph,
        parallel=shape.plan,
    )


@cache
def _graph(model: str, plan_text: str) -> Graph:
    """Return the graph of a shape."""
    config, plan, gpu = config_from(model), Plan.parse(plan_text), gpu_from(GPU)
    plan.check(config)
    check_memory(config, plan, gpu.memory_bytes, gpu.name)
    return _placed_anywhere(
        iteration_graph(config, plan, gpu, gpus_per_server=1), iteration_graph(config, plan, gpu)
    )


def _placed_anywhere(apart: Graph, together: Graph) -> Graph:
    """Return a graph for a job that may be placed on any GPUs.

    It has all messages, as on servers with one GPU; those that end up within a server take no time.
    Its tasks take as long as on servers with eight GPUs, messages within a server included. So a
    group that is split over servers pays for its messages.
    """
    times = {task.name: task.duration_ns for task in together.tasks}
    tasks = [Task(task.name, task.ranks, times[task.name], task.after) for task in apart.tasks]
    return Graph(apart.ranks, tasks, apart.messages)
