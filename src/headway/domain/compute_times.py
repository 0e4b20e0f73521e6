"""Times of jobs on each type of GPU, measured or else estimated.

The paper takes the time of a pass as t = lambda * B / P, with lambda a coefficient of the model, B
the mini-batch and P the GPU's theoretical peak. So a time measured on one type gives the time on
another, t = t_ref * P_ref / P, and likewise for batch sizes, t = t_ref * B / B_ref.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.domain.cluster import Cluster
from headway.domain.errors import InputError, shown
from headway.domain.gpus import GPUS, GpuType
from headway.domain.graph import Graph
from headway.domain.job import Job
from headway.domain.limits import HORIZON_NS, LONGEST_NS
from headway.domain.models import at_batch_size
from headway.domain.profiles import Profile, batch_size_of
from headway.domain.workload import Workload

Times = tuple[int, int]
"""Forward and backward, in ns."""

_Measured = Mapping[tuple[str, str], Mapping[int | None, Times]]
"""By model and GPU, then by batch size."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Equal jobs' times on each type: forward and backward, or those of the graph's entries."""

    times: list[tuple[int, ...]]
    estimated: list[bool]
    graph: Graph | None

    def unit_ns(self, times: tuple[int, ...]) -> int:
        """Return the computing of one iteration with the times of one type."""
        if self.graph is None:
            return sum(times)
        return self.graph.unit_ns([times[entry] for entry in self.graph.expanded.task_entry])


@dataclass(frozen=True, slots=True)
class ComputeTimes:
    """The times of every job on every type of GPU of a cluster.

    `times_ns[j, t]` holds the forward and the backward time of job j on type t, both 0 for a job
    with a graph. `graph_times_ns[j]` is None for a job without one, else `graph_times_ns[j][t, i]`
    is the time of the i-th entry of its graph's tasks on type t. `unit_ns[j, t]` is the computing
    of one iteration if all GPUs are of type t: u_J. `estimated[j, t]` is whether times are scaled
    from a measurement on another type or at another batch size.
    """

    times_ns: NDArray[np.int64]
    graph_times_ns: tuple[NDArray[np.int64] | None, ...]
    unit_ns: NDArray[np.int64]
    estimated: NDArray[np.bool_]


def compute_times(workload: Workload, cluster: Cluster) -> ComputeTimes:
    """Return the times of each job of a workload on each type of GPU of a cluster.

    Raises:
        InputError: On some type, a job would compute beyond the simulator's last instant.
    """
    # Later entries win: the cluster knows its own GPUs best.
    measured = _measured(workload.profiles + cluster.profiles)
    performance = {gpu.name: gpu.performance for gpu in (*cluster.gpu_types, *GPUS.values())}
    kinds: dict[Hashable, int] = {}
    rows: list[_Row] = []
    row_of_job = np.empty(len(workload), np.int64)
    for index, job in enumerate(workload):
        times = job.forward_ns, job.backward_ns
        # Jobs that share a graph share the object, and comparing long graphs would take long.
        key = (job.model, job.batch_size, times, job.estimated, job.measured_on, id(job.graph))
        if key not in kinds:
            kinds[key] = len(rows)
            try:
                row = _on_each(job, cluster, performance.get(job.measured_on), measured)
            except InputError as error:
                raise workload.error(index, error.problem, "measured_on") from None
            longest = [max(times) for times in row.times]
            if max(longest) > LONGEST_NS:
                slow = longest.index(max(longest))
                raise _too_slow(workload, index, cluster.gpu_types[slow])
            rows.append(row)
        row_of_job[index] = kinds[key]
    unit_ns = [[row.unit_ns(times) for times in row.times] for row in rows]
    slowest_ns = [max(units) for units in unit_ns]
    for index, (job, at) in enumerate(zip(workload, row_of_job.tolist(), strict=True)):
        if job.arrival_ns + job.iterations * slowest_ns[at] > HORIZON_NS:
            slow = unit_ns[at].index(slowest_ns[at])
            raise _too_slow(workload, index, cluster.gpu_types[slow])
    no_graph = [[(0, 0)] * len(rows[0].times) if row.graph else row.times for row in rows]
    graph_times = [np.array(row.times, np.int64) if row.graph else None for row in rows]
    return ComputeTimes(
        times_ns=np.array(no_graph, np.int64)[row_of_job],
        graph_times_ns=tuple(graph_times[at] for at in row_of_job.tolist()),
        unit_ns=np.array(unit_ns, np.int64)[row_of_job],
        estimated=np.array([row.estimated for row in rows], np.bool_)[row_of_job],
    )


def compute_times_ns(workload: Workload, cluster: Cluster) -> NDArray[np.int64]:
    """Return times[job, type, 0 or 1]: each job's forward and backward time by type, in ns."""
    return compute_times(workload, cluster).times_ns


def estimated_pairs(workload: Workload, cluster: Cluster) -> list[tuple[str, str]]:
    """Return the (model, GPU type) pairs with estimated times in some job, sorted."""
    estimated = compute_times(workload, cluster).estimated
    found = set()
    for index, kind in zip(*np.nonzero(estimated), strict=True):
        job = workload[int(index)]
        # A uniform cluster has the type that the times were measured on.
        gpu = cluster.gpu_types[int(kind)].name if cluster.groups else job.measured_on
        found.add((job.model, gpu))
    return sorted(found)


def _measured(profiles: tuple[Profile, ...]) -> _Measured:
    """Return the times by key; the last wins for equal keys."""
    found: dict[tuple[str, str], dict[int | None, Times]] = {}
    for profile in profiles:
        model, gpu, batch_size = profile.key
        by_batch = found.setdefault((model, gpu), {})
        by_batch[batch_size] = profile.forward_ns, profile.backward_ns
    return found


def _on_each(job: Job, cluster: Cluster, performance: float | None, measured: _Measured) -> _Row:
    """Return a job's times on each type; a uniform cluster takes them unchanged."""
    own: tuple[int, ...] = job.forward_ns, job.backward_ns
    if job.graph is not None:
        own = tuple(task.duration_ns for task in job.graph.tasks)
    if not cluster.groups:
        return _Row([own], [job.estimated], job.graph)
    found = [_on(job, own, gpu, performance, measured) for gpu in cluster.gpu_types]
    return _Row([times for times, _ in found], [flag for _, flag in found], job.graph)


def _on(
    job: Job,
    own: tuple[int, ...],
    gpu: GpuType,
    performance: float | None,
    measured: _Measured,
) -> tuple[tuple[int, ...], bool]:
    """Return a job's times on a type of GPU, and whether they are estimated."""
    is_own = gpu.name == job.measured_on and gpu.performance == performance
    if is_own and not job.estimated:
        return own, False
    batch_size = batch_size_of(job.model, job.batch_size)
    by_batch = {} if job.graph else measured.get((job.model, gpu.name), {})
    if batch_size in by_batch:
        return by_batch[batch_size], False
    if is_own:
        return own, True
    others = [other for other in by_batch if other is not None]
    if others and batch_size is not None:
        nearest = min(others, key=lambda other: (abs(other - batch_size), other))
        forward, backward = by_batch[nearest]
        return (
            at_batch_size(forward, batch_size, nearest),
            at_batch_size(backward, batch_size, nearest),
        ), True
    if performance is None:
        raise InputError(
            f"its times were measured on {shown(job.measured_on)}, whose performance is "
            f"unknown, so they cannot be estimated for {gpu.name}; give a profile for {gpu.name}."
        )
    return tuple(_at_performance(time, performance, gpu.performance) for time in own), True


def _at_performance(time_ns: int, measured: float, wanted: float) -> int:
    """Return round(t * P_measured / P), at least 1 ns; t itself for an equal P."""
    if measured == wanted:
        return time_ns
    return max(1, round(time_ns * measured / wanted))


def _too_slow(workload: Workload, index: int, gpu: GpuType) -> InputError:
    return workload.error(
        index,
        f"too many: on {gpu.name} computation alone would end after the simulator's last instant "
        f"({HORIZON_NS:,} ns, 146 years).",
        "iterations",
    )
