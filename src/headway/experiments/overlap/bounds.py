"""What overlap could gain at most, and whether one bucket is the paper's chain.

An iteration of a job alone on several servers takes forward + backward + all-reduce in the paper.
Gradients exist after the forward pass only, so that no overlap makes it shorter than forward +
max(backward, all-reduce).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars

from headway.configuration import cluster_from
from headway.domain.job import Job
from headway.domain.models import MODELS
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.experiments.reproduction.evaluation import Evaluation
from headway.experiments.reproduction.paper import SHAPE, Case
from headway.experiments.reproduction.runs import Change
from headway.experiments.statistics import Sample
from headway.network.contention import NetworkModel


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of a model's job alone on two servers; times in ns."""

    model: str
    forward_ns: int
    backward_ns: int
    all_reduce_ns: int
    """Of the whole gradient as one message."""
    length_ns: int
    messages: int

    @property
    def plain_ns(self) -> int:
        """Its length without overlap."""
        return self.forward_ns + self.backward_ns + self.all_reduce_ns

    @property
    def least_ns(self) -> int:
        """No overlap makes it shorter."""
        return self.forward_ns + max(self.backward_ns, self.all_reduce_ns)


def iteration_alone(model: str, network: NetworkModel, change: Change) -> Iteration:
    """Return an iteration of a model whose jobs are changed."""
    workload = change(
        Workload([Job.of_model(model, job_id="0", arrival_ns=0, gpus=2, iterations=1)])
    )
    result = simulate(workload, "2x1", network=network, policy="ff+srsf:1")
    profile = MODELS[model]
    return Iteration(
        model,
        profile.forward_ns,
        profile.backward_ns,
        network.all_reduce_ns(profile.gradient_bytes),
        int(result.finish_ns[0]),
        workload[0].message_count,
    )


def iterations_alone(network: NetworkModel, change: Change) -> list[Iteration]:
    """Return an iteration of each of the paper's models."""
    return [iteration_alone(model, network, change) for model in MODELS]


@dataclass(frozen=True, slots=True)
class Busiest:
    """Shares of the makespan, one value per seed; it cannot be shorter with the same placement."""

    gpu: Sample
    """The computing of the busiest GPU."""
    link: Sample
    """The sending on the busiest server's link: b * M for each message, as if none met another."""


def busiest(evaluation: Evaluation, case: Case, network: NetworkModel) -> Busiest:
    """Return how long the busiest GPU computes and the busiest link sends, in a case's runs."""
    makespan_ns = evaluation.sample(case, "makespan_s") * 1e9
    gpu_ns, link_ns = zip(
        *(_longest_ns(evaluation.jobs(case, seed), network) for seed in evaluation.seeds),
        strict=True,
    )
    return Busiest(np.array(gpu_ns) / makespan_ns, np.array(link_ns) / makespan_ns)


def _longest_ns(jobs: polars.DataFrame, network: NetworkModel) -> tuple[float, float]:
    cluster = cluster_from(SHAPE)
    gpu_ns, link_ns = np.zeros(cluster.gpus), np.zeros(cluster.servers)
    for model, iterations, gpus in jobs.select("model", "iterations", "gpus").iter_rows():
        profile = MODELS[model]
        gpu_ns[gpus] += iterations * (profile.forward_ns + profile.backward_ns)
        servers = cluster.servers_of(gpus)
        if len(servers) > 1:
            link_ns[servers] += iterations * network.b_ns_per_byte * profile.gradient_bytes
    return float(gpu_ns.max()), float(link_ns.max())


def identical(evaluation: Evaluation, case: Case, other: Case) -> tuple[int, int]:
    """Return how many jobs have the same start, finish and GPUs in two cases, and of how many."""
    same, count = 0, 0
    for seed in evaluation.seeds:
        one, two = evaluation.jobs(case, seed), evaluation.jobs(other, seed)
        columns = ("job_id", "start_ns", "finish_ns", "gpus")
        rows = zip(one.select(columns).rows(), two.select(columns).rows(), strict=True)
        same += sum(left == right for left, right in rows)
        count += len(one)
    return same, count
