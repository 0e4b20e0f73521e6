"""Samples over seeds, taken from the raw results, and classes of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Literal, cast

import numpy as np
import polars

from headway.configuration import cluster_from
from headway.experiments.reproduction.paper import LARGE_GPUS, LONG_ITERATIONS, SHAPE, Case
from headway.experiments.reproduction.runs import RawResults
from headway.experiments.statistics import Estimate, Sample, paired_ratio

Metric = Literal["average_gpu_utilization", "average_jct_s", "median_jct_s", "p95_jct_s"]
METRICS: tuple[Metric, ...] = (
    "average_gpu_utilization",
    "average_jct_s",
    "median_jct_s",
    "p95_jct_s",
)

CLASSES = ("small, short", "small, long", "large, short", "large, long")

JOB_SIZES = (4, 8, 16)
"""GPUs of the jobs whose spread over servers is shown."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How jobs queued and how widely they were placed."""

    queued: float
    """The share of the jobs that queued."""
    wait_s: float
    """The mean wait."""
    servers: list[float]
    """The mean number of servers of a job, by JOB_SIZES."""


@dataclass(frozen=True)
class Evaluation:
    """The raw results by case; samples are in the order of the seeds."""

    raw: RawResults
    seeds: Sequence[int]

    @cached_property
    def _runs(self) -> dict[tuple[object, ...], dict[str, float]]:
        rows = self.raw.runs.iter_rows(named=True)
        return {_key(row): row for row in rows}

    @cached_property
    def _jobs(self) -> dict[tuple[object, ...], polars.DataFrame]:
        seconds = ((polars.col("finish_ns") - polars.col("arrival_ns")) / 1e9).alias("jct_s")
        large = (polars.col("gpus").list.len() > LARGE_GPUS).cast(polars.Int8)
        long = (polars.col("iterations") > LONG_ITERATIONS).cast(polars.Int8)
        jobs = self.raw.jobs.with_columns(seconds, (2 * large + long).alias("class"))
        return dict(jobs.partition_by(*_KEY, as_dict=True))

    def has(self, case: Case) -> bool:
        """Return whether there are runs of a case."""
        return _of(case, self.seeds[0]) in self._runs

    def jobs(self, case: Case, seed: int) -> polars.DataFrame:
        """Return the jobs of one run, with `jct_s` and `class`, an index into CLASSES."""
        return self._jobs[_of(case, seed)]

    def sample(self, case: Case, metric: str) -> Sample:
        """Return a metric of a case, one value per seed."""
        return np.array([self._runs[_of(case, seed)][metric] for seed in self.seeds])

    def jct_s(self, case: Case) -> Sample:
        """Return the completion times of all jobs of all seeds."""
        return np.concatenate([self._jct_s(case, seed) for seed in self.seeds])

    def share_below(self, case: Case, jct_s: float) -> Sample:
        """Return the share of jobs that complete within a time, one value per seed."""
        return np.array([(self._jct_s(case, seed) < jct_s).mean() for seed in self.seeds])

    def gpu_utilization(self, case: Case) -> Sample:
        """Return the utilization of all GPUs of all seeds."""
        same = [polars.col(name) == value for name, value in zip(_KEY, _of(case, 0), strict=True)]
        return self.raw.gpus.filter(*same[:-1])["utilization"].to_numpy()

    def class_average_jct_s(self, case: Case) -> list[Estimate]:
        """Return the average completion time of each of CLASSES.

        It is the mean over all jobs of all seeds, as a seed may lack a class; NaN if all lack it.
        """
        total_s = self.total_jct_s(case, "class", range(len(CLASSES)))
        count = np.zeros_like(total_s)
        for index, seed in enumerate(self.seeds):
            kinds = self.jobs(case, seed)["class"].to_numpy()
            count[:, index] = np.bincount(kinds, minlength=len(CLASSES))
        return [_ratio_or_none(total, jobs) for total, jobs in zip(total_s, count, strict=True)]

    def total_jct_s(self, case: Case, column: str, groups: Sequence[object]) -> Sample:
        """Return the sum of the completion times of each group of jobs, one value per seed.

        A row for each value of a column of the jobs' table.
        """
        places = {group: place for place, group in enumerate(groups)}
        total_s = np.zeros((len(groups), len(self.seeds)))
        for index, seed in enumerate(self.seeds):
            jobs = self.jobs(case, seed)
            of = [places[group] for group in jobs[column]]
            total_s[:, index] = np.bincount(of, jobs["jct_s"].to_numpy(), len(groups))
        return total_s

    def group_ratios(
        self, case: Case, other: Case, column: str, groups: Sequence[object]
    ) -> list[Estimate]:
        """Return the average JCT of each group of jobs in one case over that in another.

        Both cases have the same jobs. NaN for a group without jobs.
        """
        totals = (self.total_jct_s(one, column, groups) for one in (case, other))
        return [_ratio_or_none(one, two) for one, two in zip(*totals, strict=True)]

    def spread(self, case: Case) -> Spread:
        """Return how jobs queued and how widely they were placed, over all jobs of all seeds."""
        jobs = polars.concat(self.jobs(case, seed) for seed in self.seeds)
        wait_ns = (jobs["start_ns"] - jobs["arrival_ns"]).to_numpy()
        gpus = jobs["gpus"].list.len().to_numpy()
        per_server = cluster_from(SHAPE).gpus_per_server
        servers = jobs["gpus"].list.eval(polars.element() // per_server).list.n_unique().to_numpy()
        return Spread(
            float((wait_ns > 0).mean()),
            float(wait_ns.mean() / 1e9),
            [float(servers[gpus == size].mean()) for size in JOB_SIZES],
        )

    def class_shares(self, case: Case) -> list[float]:
        """Return the share of each class among the jobs; all cases have the same jobs."""
        kinds = np.concatenate([self.jobs(case, seed)["class"].to_numpy() for seed in self.seeds])
        return [float((kinds == kind).mean()) for kind in range(len(CLASSES))]

    def _jct_s(self, case: Case, seed: int) -> Sample:
        return cast(Sample, self.jobs(case, seed)["jct_s"].to_numpy())


def _ratio_or_none(sample: Sample, other: Sample) -> Estimate:
    return paired_ratio(sample, other) if other.any() else Estimate(np.nan, np.nan, np.nan)


_KEY = ("placement", "scheduler", "gpu_memory_gb", "network", "workload", "seed")


def _of(case: Case, seed: int) -> tuple[object, ...]:
    return *astuple(case), seed


def _key(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in _KEY)
