"""Random placement."""

from __future__ import annotations

import numpy as np

from headway.policies import ClusterView, Integers, inlined, placement_policy, put_least_first

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@inlined
def _mix(value: np.uint64) -> np.uint64:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


@placement_policy("rand", steady=True, timeless=True)
def random_order(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Random: a shuffle that depends on the seed and the job alone (the paper's RAND).

    Each (seed, job, GPU) has a fixed 64-bit key and candidates go by ascending key. A job tried
    again later so keeps its order, however often it was tried.
    """
    stream = _mix(_mix(np.uint64(cluster.system[0].seed) + _GOLDEN) + np.uint64(job + 1) * _GOLDEN)
    keys = np.empty(len(cluster.gpus), np.uint64)
    for gpu in candidates:
        keys[gpu] = _mix(stream + np.uint64(gpu + 1) * _GOLDEN)
    put_least_first(candidates, keys, cluster.jobs[job].gpus)
    return True
