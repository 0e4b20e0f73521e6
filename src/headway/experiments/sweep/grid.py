"""The runs of a sweep in order, the key of each, and how one is run."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from io import BytesIO
from typing import NamedTuple

from headway.domain.cluster import Cluster
from headway.domain.errors import HeadwayError
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.experiments.parallel import Look
from headway.experiments.sweep.specification import Coordinate, Jobs, Sweep
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.results.schema import Result, Summary
from headway.results.store import code_version, job_columns

FIGURES = tuple(field.name for field in fields(Summary) if field.name != "wall_s")
"""What every run gives; the same bits wherever it runs."""

_DRAWN_KEPT = 64
"""Drawn workloads that are kept: runs of the same one stand side by side in the grid."""


class Point(NamedTuple):
    """A run: places in the sweep's lists, and a seed."""

    workload: int
    seed: int
    cluster: int
    network: int
    policy: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run: its figures, or the problem that ended it."""

    key: str
    figures: Mapping[str, float] | None = None
    wall_s: float = 0.0
    jobs: bytes | None = None
    """A row per job, as a Parquet file."""
    problem: str | None = None


def points(sweep: Sweep) -> Iterator[Point]:
    """Yield every run; those of the same workload stand side by side."""
    for workload, entry in enumerate(sweep.workloads):
        for seed in entry.value.seeds:
            for cluster in range(len(sweep.clusters)):
                for network in range(len(sweep.networks)):
                    for policy in range(len(sweep.policies)):
                        yield Point(workload, seed, cluster, network, policy)


def coordinates(sweep: Sweep, point: Point) -> dict[str, Coordinate]:
    """Return where in the grid a run is."""
    return {
        **sweep.workloads[point.workload].coordinates,
        "seed": point.seed,
        **sweep.clusters[point.cluster].coordinates,
        **sweep.networks[point.network].coordinates,
        **sweep.policies[point.policy].coordinates,
    }


def key_of(sweep: Sweep, point: Point) -> str:
    """Return the key of a run: a hash of the contents of all its inputs and of the code."""
    parts = (
        code_version(),
        sweep.workloads[point.workload].digest,
        str(point.seed),
        sweep.clusters[point.cluster].digest,
        sweep.networks[point.network].digest,
        sweep.policies[point.policy].digest,
    )
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Inputs:
    """What runs need, apart from where they came from: it can be sent to another machine."""

    workloads: tuple[Jobs, ...]
    clusters: tuple[Cluster, ...]
    networks: tuple[NetworkModel, ...]
    policies: tuple[PolicySet, ...]
    files: Mapping[str, bytes]
    jobs: bool
    code: str

    @classmethod
    def of(cls, sweep: Sweep, jobs: bool) -> Inputs:
        """Return the inputs of a sweep; with `jobs`, runs also give a row per job."""
        return cls(
            workloads=tuple(entry.value for entry in sweep.workloads),
            clusters=tuple(entry.value for entry in sweep.clusters),
            networks=tuple(entry.value for entry in sweep.networks),
            policies=tuple(entry.value for entry in sweep.policies),
            files=sweep.files,
            jobs=jobs,
            code=code_version(),
        )


class Runner:
    """Runs points, in any number of threads; drawn workloads are kept for the next."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._drawn: OrderedDict[tuple[int, int], Workload] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, key: str, point: Point, look: Look | None = None) -> Outcome:
        """Simulate one point; what Headway reports on purpose is an outcome too."""
        inputs = self._inputs
        try:
            result = simulate(
                self._workload(point),
                inputs.clusters[point.cluster],
                network=inputs.networks[point.network],
                policy=inputs.policies[point.policy],
                seed=point.seed,
                progress=look,
            )
        except HeadwayError as error:
            return Outcome(key, problem=str(error))
        figures = asdict(result.summary)
        wall_s = figures.pop("wall_s")
        return Outcome(key, figures, wall_s, _jobs(key, result) if inputs.jobs else None)

    def _workload(self, point: Point) -> Workload:
        jobs = self._inputs.workloads[point.workload]
        if isinstance(jobs.source, Workload):
            return jobs.source
        place = (point.workload, point.seed)
        with self._lock:
            if place not in self._drawn:
                self._drawn[place] = jobs.draw(point.seed)
                if len(self._drawn) > _DRAWN_KEPT:
                    self._drawn.popitem(last=False)
            return self._drawn[place]


def _jobs(key: str, result: Result) -> bytes:
    import polars

    stream = BytesIO()
    columns = {"run": [key] * len(result.workload), **job_columns(result)}
    polars.DataFrame(columns).write_parquet(stream)
    return stream.getvalue()
