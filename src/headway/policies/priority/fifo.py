"""First in, first out."""

from __future__ import annotations

from headway.policies import ClusterView, priority_policy


@priority_policy("fifo", timeless=True)
def first_in_first_out(cluster: ClusterView, job: int, parameter: float) -> int:
    """First in, first out: by arrival."""
    return int(cluster.jobs[job].arrival_ns)
