"""Contention without a scheduler: the paper's Fig. 2 and the example of its introduction.

The curves are the model's formula; the points are simulated jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.domain.job import Job
from headway.domain.models import MODELS
from headway.domain.records import COMMUNICATION
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.experiments.reproduction.paper import ALONE_S
from headway.experiments.reproduction.runs import Change
from headway.network.contention import NetworkModel
from headway.results.timeline.sinks import Timeline

MAX_CONCURRENT = 8
MESSAGE_BYTES = 100 * 2**20
SIZES_BYTES = tuple(2**power for power in range(10, 31))


def concurrent_all_reduce_s(message_bytes: int, k: int, network: NetworkModel) -> float:
    """Return the simulated time of k all-reduces that start together on two servers."""
    jobs = [
        Job(
            job_id=str(index),
            arrival_ns=0,
            gpus=2,
            iterations=1,
            forward_ns=1,
            backward_ns=1,
            gradient_bytes=message_bytes,
            memory_bytes=2**20,
        )
        for index in range(k)
    ]
    timeline = Timeline()
    simulate(
        Workload(jobs),
        f"2x{k}",
        network=network,
        policy=f"spread+srsf:{k}",
        timeline=timeline,
    )
    tasks = timeline.tasks()
    messages = tasks[tasks.kind == COMMUNICATION]
    return float((messages.end_ns - messages.start_ns).max()) / 1e9


@dataclass(frozen=True, slots=True)
class Example:
    """The introduction's example with one model: completion times in seconds."""

    model: str
    iterations: int
    alone_s: float
    together_s: float
    together_ada_srsf_s: float
    together_srsf_1_s: float


def introduction_example(
    model: str, network: NetworkModel, change: Change | None = None
) -> Example:
    """Run one 4-GPU job across four servers, then four of them at once, each on GPUs of its own.

    The number of iterations makes the job alone take the published 295 s, as nearly as possible.
    With `change` the jobs have other iterations than the paper's.
    """

    def jct_s(jobs: int, scheduler: str, iterations: int) -> float:
        workload = Workload(
            [
                Job.of_model(model, job_id=str(i), arrival_ns=0, gpus=4, iterations=iterations)
                for i in range(jobs)
            ]
        )
        if change is not None:
            workload = change(workload)
        result = simulate(workload, "4x4", network=network, policy=f"spread+{scheduler}")
        return float(result.jct_s.mean())

    iterations = round(ALONE_S / jct_s(1, "srsf:1", iterations=1))
    return Example(
        model,
        iterations,
        jct_s(1, "srsf:1", iterations),
        jct_s(4, "srsf:4", iterations),
        jct_s(4, "ada-srsf", iterations),
        jct_s(4, "srsf:1", iterations),
    )


def introduction_examples(network: NetworkModel, change: Change | None = None) -> Sequence[Example]:
    """Return the example for every model of the paper."""
    return [introduction_example(model, network, change) for model in MODELS]
