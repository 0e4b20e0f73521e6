"""Shortest remaining service first."""

from __future__ import annotations

from headway.policies import ClusterView, priority_policy


@priority_policy("srsf", timeless=True)
def shortest_remaining_service(cluster: ClusterView, job: int, parameter: float) -> int:
    """Shortest remaining service first: L_J, GPU time left (the paper's SRSF)."""
    return int(cluster.jobs[job].remaining_service_ns)
