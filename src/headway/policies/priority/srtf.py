"""Shortest remaining time first."""

from __future__ import annotations

from headway.policies import ClusterView, priority_policy


@priority_policy("srtf", timeless=True)
def shortest_remaining_time(cluster: ClusterView, job: int, parameter: float) -> int:
    """Shortest remaining time first: iterations left times s_J, however many GPUs."""
    return int(cluster.jobs[job].iterations_left * cluster.jobs[job].service_ns)
