"""SRSF(N): at most N messages on a server."""

from __future__ import annotations

from headway.policies import (
    NO_LIMIT,
    ClusterView,
    Parameter,
    admission_policy,
    messages_in_the_way,
)


@admission_policy(
    "srsf", parameter=Parameter("n", least=1, integer=True), by_port=True, timeless=True
)
def at_most(cluster: ClusterView, port: int, most_allowed: float) -> int:
    """SRSF(N): start while fewer than N messages are in the way on every server of the job."""
    return NO_LIMIT if messages_in_the_way(cluster, port) < most_allowed else 0
