"""First fit."""

from __future__ import annotations

from headway.policies import ClusterView, Integers, placement_policy


@placement_policy("ff", steady=True, timeless=True)
def first_fit(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """First fit: the GPUs with the lowest numbers (the paper's FF)."""
    return True
