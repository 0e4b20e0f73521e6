"""Policies compared on the same workloads, pair by pair.

import headway
workloads = [headway.generate_workload("paper", seed=seed) for seed in range(5)]
found = headway.compare(workloads, ["lwf:1+ada-srsf", "lwf:1+srsf:1"])
print(found.ratio("lwf:1+srsf:1"))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headway.configuration import cluster_from, network_from
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.experiments import statistics
from headway.experiments.parallel import Look, run_in_threads, thread_count
from headway.experiments.statistics import Estimate, Sample
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.results.schema import Summary

METRICS = (
    "average_jct_s",
    "median_jct_s",
    "p95_jct_s",
    "makespan_s",
    "average_gpu_utilization",
    "energy_j",
    "energy_delay_js",
)
"""What is compared; the last is the energy-delay product, energy times average JCT."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The summaries of every policy on every workload, and what follows from them.

    A policy is named as it was given, and compared with the first one. With a single workload the
    bounds of intervals are NaN.
    """

    policies: tuple[str, ...]
    workloads: tuple[str, ...]
    summaries: Mapping[str, tuple[Summary, ...]]
    """Of each policy, in the order of the workloads."""

    def sample(self, policy: str, metric: str = "average_jct_s") -> Sample:
        """Return one of METRICS, workload by workload."""
        return np.array([_value(summary, metric) for summary in self.summaries[policy]])

    def mean(self, policy: str, metric: str = "average_jct_s") -> Estimate:
        """Return the mean over the workloads."""
        sample = self.sample(policy, metric)
        if len(sample) == 1:
            return _without_interval(float(sample[0]))
        return statistics.mean(sample)

    def ratio(self, policy: str, metric: str = "average_jct_s") -> Estimate:
        """Return the policy's mean over the first policy's."""
        sample, first = self.sample(policy, metric), self.sample(self.policies[0], metric)
        if len(sample) == 1:
            return _without_interval(float(sample[0] / first[0]))
        return statistics.paired_ratio(sample, first)

    def difference(self, policy: str, metric: str = "average_jct_s") -> Estimate:
        """Return the mean of the policy's figures minus the first policy's."""
        sample, first = self.sample(policy, metric), self.sample(self.policies[0], metric)
        if len(sample) == 1:
            return _without_interval(float(sample[0] - first[0]))
        return statistics.paired_difference(sample, first)

    def wins(self, policy: str, metric: str = "average_jct_s") -> int:
        """Return on how many workloads the policy's figure is lower than the first policy's."""
        return int((self.sample(policy, metric) < self.sample(self.policies[0], metric)).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, as `--json` writes them."""
        policies = []
        for policy in self.policies:
            entry: dict[str, Any] = {"policy": policy}
            entry |= {metric: _plain(self.mean(policy, metric)) for metric in METRICS}
            if policy != self.policies[0]:
                entry["against_first"] = {
                    metric: {
                        "ratio": _plain(self.ratio(policy, metric)),
                        "difference": _plain(self.difference(policy, metric)),
                        "wins": self.wins(policy, metric),
                    }
                    for metric in METRICS
                }
            entry["runs"] = [
                {metric: _value(summary, metric) for metric in METRICS}
                for summary in self.summaries[policy]
            ]
            policies.append(entry)
        return {
            "workloads": list(self.workloads),
            "confidence": statistics.CONFIDENCE,
            "policies": policies,
        }


def compare(
    workloads: Sequence[Workload],
    policies: Sequence[PolicySet | str],
    cluster: Cluster | str = "16x4",
    *,
    network: NetworkModel | str = "10gbe",
    seeds: Sequence[int] | None = None,
    threads: int | None = None,
    done: Callable[[], None] | None = None,
) -> Comparison:
    """Simulate every policy on every workload, on all cores, and compare them pair by pair.

    Args:
        workloads: The jobs; every policy gets the same ones.
        policies: A preset such as `headway`, `placement+scheduler`, such as `lwf:1+ada-srsf`, or
            `placement+priority+admission`; an `@25` at the end sends all-reduces in buckets of
            25 MB. All are compared with the first.
        cluster: A cluster, a shape such as `16x4` with 16 GB a GPU, or the path of a TOML file.
        network: The network between servers, its name, or the path of a TOML file.
        seeds: For policies that draw lots (`rand`), one for each workload; 0, 1, 2, … by default.
        threads: Runs at a time; as many as there are cores by default.
        done: Called after each run.

    Raises:
        InputError: An argument is not what it must be, or a job can never run.
        PolicyError: A policy does not compile, or leaves jobs waiting for ever.
    """
    chosen = [PolicySet.parse(policy) if isinstance(policy, str) else policy for policy in policies]
    if len(chosen) < 2:
        raise InputError("a comparison needs at least two policies.", field="policies")
    if len({policy.name for policy in chosen}) < len(chosen):
        raise InputError("must differ from each other.", field="policies")
    if not workloads:
        raise InputError("a comparison needs at least one workload.", field="workloads")
    draws = range(len(workloads)) if seeds is None else seeds
    if len(draws) != len(workloads):
        raise InputError("there must be as many as workloads.", field="seeds")
    where = cluster_from(cluster) if isinstance(cluster, str) else cluster
    link = network_from(network) if isinstance(network, str) else network
    workers = thread_count(threads)
    found: dict[tuple[str, int], Summary] = {}

    def work(task: tuple[PolicySet, int], look: Look) -> tuple[str, int, Summary]:
        policy, place = task
        result = simulate(
            workloads[place],
            where,
            network=link,
            policy=policy,
            seed=draws[place],
            progress=look,
        )
        return policy.name, place, result.summary

    def keep(result: tuple[str, int, Summary]) -> None:
        name, place, summary = result
        found[name, place] = summary
        if done is not None:
            done()

    places = range(len(workloads))
    run_in_threads([(policy, place) for place in places for policy in chosen], work, workers, keep)
    return Comparison(
        policies=tuple(policy.name for policy in chosen),
        workloads=tuple(
            workload.source or f"workload {place}" for place, workload in enumerate(workloads)
        ),
        summaries={
            policy.name: tuple(found[policy.name, place] for place in places) for policy in chosen
        },
    )


def _value(summary: Summary, metric: str) -> float:
    if metric == "energy_delay_js":
        return summary.energy_j * summary.average_jct_s
    return float(asdict(summary)[metric])


def _without_interval(value: float) -> Estimate:
    return Estimate(value, math.nan, math.nan)


def _plain(estimate: Estimate) -> dict[str, float | None]:
    """Return an estimate for JSON, which has no NaN."""
    values = asdict(estimate)
    return {name: None if math.isnan(value) else value for name, value in values.items()}
