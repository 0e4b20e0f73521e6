"""SRSF(N): at most N messages on a server."""

from __future__ import annotations

from headway.policies import NO_LIMIT, ClusterView, Parameter, admission_policy


@admission_policy(
    "srsf", parameter=Parameter("n", least=1, integer=True), by_port=True, timeless=True
)
def at_most(cluster: ClusterView, port: int, most_allowed: float) -> int:
    """SRSF(N): start while every server of the job has fewer than N messages."""
    return NO_LIMIT if cluster.ports[port].messages < most_allowed else 0
