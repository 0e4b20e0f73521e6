"""Admissions for tests that name a time: an all-reduce starts alone, at a multiple of some time."""

from __future__ import annotations

from headway.policies import (
    ADMIT,
    WAIT,
    ClusterView,
    Parameter,
    admission_policy,
    most_messages,
)


@admission_policy("lattice", parameter=Parameter("ns", least=1, integer=True), steady=True)
def lattice(cluster: ClusterView, message: int, parameter: float) -> int:
    """Start alone on the job's servers, at a multiple of `parameter` ns."""
    if most_messages(cluster, message) > 0:
        return WAIT
    now_ns, step_ns = cluster.system[0].now_ns, int(parameter)
    past_ns = now_ns % step_ns
    return ADMIT if past_ns == 0 else now_ns + step_ns - past_ns


@admission_policy("fickle", parameter=Parameter("ns", least=1, integer=True))
def fickle(cluster: ClusterView, message: int, parameter: float) -> int:
    """As `lattice`, but asked at every instant; an odd job takes back a time it named."""
    now_ns, step_ns = cluster.system[0].now_ns, int(parameter)
    past_ns = now_ns % step_ns
    if past_ns == 0 and most_messages(cluster, message) == 0:
        return ADMIT
    if most_messages(cluster, message) > 0 and cluster.messages[message].job % 2 == 1:
        return WAIT
    return int(now_ns + step_ns - past_ns)
