"""SRSF(N): at most N messages on a server."""

from __future__ import annotations

from headway.policies import ADMIT, ClusterView, Parameter, admission_policy, full


@admission_policy(
    "srsf", parameter=Parameter("n", least=1, integer=True), steady=True, timeless=True
)
def at_most(cluster: ClusterView, message: int, most_allowed: float) -> int:
    """SRSF(N): start while every server of the job has fewer than N messages."""
    first = cluster.messages[message].first_link
    for link in range(first, first + cluster.messages[message].links):
        port = cluster.links[link].port
        if cluster.ports[port].messages >= most_allowed:
            return full(port)
    return ADMIT
