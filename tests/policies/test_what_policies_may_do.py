"""What a policy may do: read the cluster, and decide by that alone, compiled or not."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from builders import make_job, make_workload, paper_with
from headway.domain.errors import PolicyError
from headway.engine.run import simulate
from headway.policies import Integers, routine, stable_sort

COMPILED = not os.environ.get("NUMBA_DISABLE_JIT")
TWO_JOBS = make_workload(make_job(gpus=2), make_job(gpus=1))


@routine
def _free(gpus: Any) -> None:
    gpus[0].free_bytes = 2**40


def _writes_a_field(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    cluster.gpus[0].held = 10**9
    return True


def _writes_by_name(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    record = cluster.jobs[job]
    record["gpus"] = 2**40
    return True


def _writes_a_column(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    jobs = cluster.jobs
    jobs.gpus[:] = 0
    return True


def _writes_a_record(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    cluster.jobs[0] = cluster.jobs[1]
    return True


def _writes_numbers(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    cluster.gpus.load_ns[0] += 1
    return True


def _has_it_written(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    _free(cluster.gpus)
    return True


def _sorts_a_column(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    stable_sort(cluster.gpus.load_ns, cluster.gpus.load_ns)
    return True


def _sorts_in_place(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    cluster.gpus.load_ns.sort()
    return True


@pytest.mark.parametrize(
    "function",
    [
        _writes_a_field,
        _writes_by_name,
        _writes_a_column,
        _writes_a_record,
        _writes_numbers,
        _has_it_written,
        _sorts_a_column,
        _sorts_in_place,
    ],
)
def test_the_cluster_is_read_only(function: Callable[..., Any]) -> None:
    expected = "does not compile. It writes to the cluster" if COMPILED else "read-only"
    with pytest.raises(PolicyError, match=expected):
        simulate(TWO_JOBS, "2x2", policy=paper_with(placement=function))


def _writes_to_its_own(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    free, loads = cluster.gpus.free_bytes[candidates], cluster.gpus.load_ns.copy()
    free[0], loads[0] = 0, 1
    keys = loads if len(free) > 2 else cluster.gpus.load_ns
    stable_sort(candidates, keys)
    candidates[:] = candidates[::-1].copy()
    return True


def test_a_placement_may_write_to_the_candidates_and_to_arrays_that_it_makes() -> None:
    result = simulate(TWO_JOBS, "2x2", policy=paper_with(placement=_writes_to_its_own))
    assert result.gpus[0] == (0, 3)


def _depends_on_an_address(cluster: Any, job: int, parameter: float) -> int:
    return int(cluster.jobs.ctypes.data)


def test_a_policy_that_decides_otherwise_in_an_equal_run_is_refused() -> None:
    with pytest.raises(PolicyError, match="_depends_on_an_address' decides otherwise"):
        simulate(TWO_JOBS, "2x2", policy=paper_with(priority=_depends_on_an_address))
