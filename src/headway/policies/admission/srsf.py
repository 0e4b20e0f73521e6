"""SRSF(N): at most N messages on a server."""

from __future__ import annotations

from headway.policies import ClusterView, Parameter, admission_policy, most_messages


@admission_policy(
    "srsf", parameter=Parameter("n", least=1, integer=True), steady=True, timeless=True
)
def at_most(cluster: ClusterView, message: int, most_allowed: float) -> bool:
    """SRSF(N): start while every server of the job has fewer than N messages."""
    return bool(most_messages(cluster, message) < most_allowed)
