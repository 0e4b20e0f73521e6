"""The runs of a sweep in order, their keys, and how one is run."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from io import BytesIO
from typing import Literal, NamedTuple

from headway.domain.cluster import Cluster
from headway.domain.errors import HeadwayError
from headway.domain.workload import Workload
from headway.engine.parallel import Checkpoint
from headway.engine.run import simulate
from headway.experiments.sweep.specification import Coordinate, Sweep, WorkloadSource
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.results.schema import Result, Summary
from headway.results.store import code_version

FIGURES = tuple(column.name for column in fields(Summary) if column.name != "wall_s")
"""The columns that every run yields, with the same bits wherever it runs."""

Rows = Literal["jobs", "gpus"]
"""Tables that a run can yield besides its figures: a row per job, a row per GPU."""

_WORKLOADS_CACHED = 64
"""Generated workloads to cache; runs of the same workload are adjacent in the grid."""


class Point(NamedTuple):
    """A run: indexes into the sweep's lists, and a seed."""

    workload: int
    seed: int
    cluster: int
    network: int
    policy: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run: its figures, or the problem that ended it."""

    key: str
    figures: Mapping[str, float] | None = None
    wall_s: float = 0.0
    rows: Mapping[Rows, bytes] = field(default_factory=dict)
    """The tables that were asked for, as Parquet files."""
    problem: str | None = None


def points(sweep: Sweep) -> Iterator[Point]:
    """Yield every run; runs of the same workload are adjacent."""
    for workload, entry in enumerate(sweep.workloads):
        for seed in entry.value.seeds:
            for cluster in range(len(sweep.clusters)):
                for network in range(len(sweep.networks)):
                    for policy in range(len(sweep.policies)):
                        yield Point(workload, seed, cluster, network, policy)


def coordinates(sweep: Sweep, point: Point) -> dict[str, Coordinate]:
    """Return the values that locate a run in the grid."""
    return {
        **sweep.workloads[point.workload].coordinates,
        "seed": point.seed,
        **sweep.clusters[point.cluster].coordinates,
        **sweep.networks[point.network].coordinates,
        **sweep.policies[point.policy].coordinates,
    }


def key_of(sweep: Sweep, point: Point) -> str:
    """Return a run's key: a hash of the contents of all its inputs and of the code."""
    parts = (
        code_version(),
        sweep.workloads[point.workload].digest,
        str(point.seed),
        sweep.clusters[point.cluster].digest,
        sweep.networks[point.network].digest,
        sweep.policies[point.policy].digest,
        str(sweep.accuracy),
    )
    return hashlib.blake2b(" ".join(parts).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class Inputs:
    """Everything that runs need, without paths, so that it can be sent to another machine."""

    workloads: tuple[WorkloadSource, ...]
    clusters: tuple[Cluster, ...]
    networks: tuple[NetworkModel, ...]
    policies: tuple[PolicySet, ...]
    accuracy: float | None
    files: Mapping[str, bytes]
    rows: Collection[Rows]
    code: str

    @classmethod
    def of(cls, sweep: Sweep, rows: Collection[Rows] = ()) -> Inputs:
        """Return the inputs of a sweep whose runs also yield the given tables."""
        return cls(
            workloads=tuple(entry.value for entry in sweep.workloads),
            clusters=tuple(entry.value for entry in sweep.clusters),
            networks=tuple(entry.value for entry in sweep.networks),
            policies=tuple(entry.value for entry in sweep.policies),
            accuracy=sweep.accuracy,
            files=sweep.files,
            rows=rows,
            code=code_version(),
        )

    @property
    def have_graphs(self) -> bool:
        """Whether any workload that need not be drawn first has jobs with graphs."""
        known = (workload.source for workload in self.workloads)
        return any(source.has_graphs for source in known if isinstance(source, Workload))


class Runner:
    """Simulates points, also several at a time, and caches generated workloads.

    `threads` are those of each simulation, if it is sampled.
    """

    def __init__(self, inputs: Inputs, threads: int = 1) -> None:
        self._inputs = inputs
        self._threads = threads
        self._workloads: OrderedDict[tuple[int, int], Workload] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, key: str, point: Point, checkpoint: Checkpoint | None = None) -> Outcome:
        """Simulate one point; an error that Headway reports is an outcome too."""
        inputs = self._inputs
        try:
            result = simulate(
                self._workload(point),
                inputs.clusters[point.cluster],
                network=inputs.networks[point.network],
                policy=inputs.policies[point.policy],
                seed=point.seed,
                accuracy=inputs.accuracy,
                threads=self._threads,
                progress=checkpoint,
            )
        except HeadwayError as error:
            return Outcome(key, problem=str(error))
        figures = asdict(result.summary)
        wall_s = figures.pop("wall_s")
        rows = {name: _TABLES[name](key, result) for name in inputs.rows}
        return Outcome(key, figures, wall_s, rows)

    def _workload(self, point: Point) -> Workload:
        workload = self._inputs.workloads[point.workload]
        if isinstance(workload.source, Workload):
            return workload.source
        drawn = (point.workload, point.seed)
        with self._lock:
            if drawn not in self._workloads:
                self._workloads[drawn] = workload.draw(point.seed)
                if len(self._workloads) > _WORKLOADS_CACHED:
                    self._workloads.popitem(last=False)
            return self._workloads[drawn]


def _jobs(key: str, result: Result) -> bytes:
    import polars

    stream = BytesIO()
    result.jobs.select(polars.lit(key).alias("run"), polars.all()).write_parquet(stream)
    return stream.getvalue()


def _gpus(key: str, result: Result) -> bytes:
    import polars

    stream = BytesIO()
    gpus = range(len(result.gpu_busy_ns))
    columns = {"run": [key] * len(gpus), "gpu": gpus, "busy_ns": result.gpu_busy_ns}
    polars.DataFrame(columns).write_parquet(stream)
    return stream.getvalue()


_TABLES: dict[Rows, Callable[[str, Result], bytes]] = {"jobs": _jobs, "gpus": _gpus}
