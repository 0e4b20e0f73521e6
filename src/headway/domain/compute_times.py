"""Forward and backward times of jobs on each type of GPU, measured or else estimated.

The paper takes the time of a pass as t = lambda * B / P, with lambda a coefficient of the model, B
the mini-batch and P the GPU's theoretical peak. So a time measured on one type gives the time on
another, t = t_ref * P_ref / P, and likewise for batch sizes, t = t_ref * B / B_ref.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.domain.cluster import Cluster
from headway.domain.errors import InputError, shown
from headway.domain.gpus import GPUS, GpuType
from headway.domain.job import Job
from headway.domain.limits import HORIZON_NS, LONGEST_NS
from headway.domain.profiles import Profile, at_batch_size, batch_size_of
from headway.domain.workload import Workload

Times = tuple[int, int]
"""Forward and backward, in ns."""

_Measured = Mapping[tuple[str, str], Mapping[int | None, Times]]
"""By model and GPU, then by batch size."""


@dataclass(frozen=True, slots=True)
class ComputeTimes:
    """The times of every job on every type of GPU of a cluster.

    `times_ns[j, t]` holds the forward and the backward time of job j on type t. `estimated[j, t]`
    is whether they are scaled from a measurement on another type or at another batch size.
    """

    times_ns: NDArray[np.int64]
    estimated: NDArray[np.bool_]


def compute_times(workload: Workload, cluster: Cluster) -> ComputeTimes:
    """Return the times of each job of a workload on each type of GPU of a cluster.

    Raises:
        InputError: On some type, a job would compute beyond the simulator's last instant.
    """
    # Later entries win: the cluster knows its own GPUs best.
    measured = _measured(workload.profiles + cluster.profiles)
    performance = {gpu.name: gpu.performance for gpu in (*cluster.gpu_types, *GPUS.values())}
    kinds: dict[tuple[str, int | None, int, int, bool, str], int] = {}
    rows: list[list[tuple[Times, bool]]] = []
    row_of_job = np.empty(len(workload), np.int64)
    for index, job in enumerate(workload):
        times = job.forward_ns, job.backward_ns
        key = (job.model, job.batch_size, *times, job.estimated, job.measured_on)
        if key not in kinds:
            kinds[key] = len(rows)
            try:
                row = _on_each(job, cluster, performance.get(job.measured_on), measured)
            except InputError as error:
                raise workload.error(index, error.problem, "measured_on") from None
            if max(time for times, _ in row for time in times) > LONGEST_NS:
                slow = max(range(len(row)), key=lambda at: max(row[at][0]))
                raise _too_slow(workload, index, cluster.gpu_types[slow])
            rows.append(row)
        row_of_job[index] = kinds[key]
    times_ns = np.array([[times for times, _ in row] for row in rows], np.int64)[row_of_job]
    _check_horizon(workload, cluster, times_ns)
    estimated = np.array([[flag for _, flag in row] for row in rows], np.bool_)[row_of_job]
    return ComputeTimes(times_ns, estimated)


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


def _on_each(
    job: Job, cluster: Cluster, performance: float | None, measured: _Measured
) -> list[tuple[Times, bool]]:
    """Return a job's times on each type; a uniform cluster takes them unchanged."""
    if not cluster.groups:
        return [((job.forward_ns, job.backward_ns), job.estimated)]
    return [_on(job, gpu, performance, measured) for gpu in cluster.gpu_types]


def _on(
    job: Job, gpu: GpuType, performance: float | None, measured: _Measured
) -> tuple[Times, bool]:
    """Return a job's times on a type of GPU, and whether they are estimated."""
    own = job.forward_ns, job.backward_ns
    is_own = gpu.name == job.measured_on and gpu.performance == performance
    if is_own and not job.estimated:
        return own, False
    batch_size = batch_size_of(job.model, job.batch_size)
    by_batch = measured.get((job.model, gpu.name), {})
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
    ratio = performance, gpu.performance
    return (_at_performance(own[0], *ratio), _at_performance(own[1], *ratio)), True


def _at_performance(time_ns: int, measured: float, wanted: float) -> int:
    """Return round(t * P_measured / P), at least 1 ns; t itself for an equal P."""
    if measured == wanted:
        return time_ns
    return max(1, round(time_ns * measured / wanted))


def _check_horizon(workload: Workload, cluster: Cluster, times_ns: NDArray[np.int64]) -> None:
    """Refuse a job whose computation alone would, on some type, end after the last instant."""
    iterations = np.array([job.iterations for job in workload], np.float64)
    arrival_ns = np.array([job.arrival_ns for job in workload], np.float64)
    end_ns = arrival_ns[:, None] + iterations[:, None] * times_ns.sum(axis=2, dtype=np.float64)
    late = np.argwhere(end_ns > HORIZON_NS * 1.0)
    for index, kind in late.tolist():
        job = workload[index]
        # The job itself has checked its own times, exactly.
        if times_ns[index, kind].tolist() != [job.forward_ns, job.backward_ns]:
            raise _too_slow(workload, index, cluster.gpu_types[kind])


def _too_slow(workload: Workload, index: int, gpu: GpuType) -> InputError:
    return workload.error(
        index,
        f"too many: on {gpu.name} computation alone would end after the simulator's last instant "
        f"({HORIZON_NS:,} ns, 146 years).",
        "iterations",
    )
