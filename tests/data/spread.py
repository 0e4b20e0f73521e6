"""A placement for tests: one GPU of each server, then the next of each."""

from __future__ import annotations

from typing import Any

from headway.policies import Integers, stable_sort


def spread(cluster: Any, job: int, candidates: Integers, parameter: float) -> bool:
    keys = cluster.gpus.load_ns.copy()
    for gpu in range(len(cluster.gpus)):
        keys[gpu] = gpu - cluster.servers[cluster.gpus[gpu].server].first_gpu
    stable_sort(candidates, keys)
    return True
