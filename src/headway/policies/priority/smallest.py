"""Smallest job first."""

from __future__ import annotations

from headway.policies import ClusterView, priority_policy


@priority_policy("smallest", timeless=True)
def smallest_first(cluster: ClusterView, job: int, parameter: float) -> int:
    """Smallest job first: by number of GPUs (the size-based order the paper cites)."""
    return int(cluster.jobs[job].gpus)
