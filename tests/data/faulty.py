"""Policies that go wrong in every way we can think of."""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.policies import Integers, stable_sort


def never_place(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    return False


def never_admit(cluster: Any, job: int, parameter: float) -> bool:
    return False


def same_twice(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    candidates[:] = candidates[0]
    return True


def out_of_range(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    candidates[0] = len(cluster.gpus)
    return True


def no_room(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    candidates[0] = 0
    return True


def beyond(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    return bool(cluster.gpus[len(cluster.gpus) + job].free_bytes > 0)


def raises(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    if cluster.jobs[job].gpus > 0:
        raise ValueError("too many")
    return True


def short_keys(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    stable_sort(candidates, cluster.servers.load_ns)
    return True


def unknown_field(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    return bool(cluster.gpus[0].colour > 0)


def makes_an_array(cluster: Any, job: int, parameter: float) -> bool:
    return bool(np.zeros(3).sum() == 0)


def returns_nothing(cluster: Any, job: int, parameter: float) -> None:
    return None


def too_few_arguments(cluster: Any, job: int) -> bool:
    return True
