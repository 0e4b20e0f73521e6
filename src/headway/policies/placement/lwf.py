"""LWF-kappa."""

from __future__ import annotations

from headway.domain.records import ClusterView
from headway.policies.ordering import Integers, stable_sort
from headway.policies.registry import Parameter, placement_policy


@placement_policy("lwf", parameter=Parameter("kappa", least=1, integer=True), steady=True)
def least_workload_first(
    cluster: ClusterView, job: int, candidates: Integers, kappa: float
) -> bool:
    """Least workload first: GPUs by load up to kappa GPUs, else server by server (Algorithm 1).

    n <= kappa: ascending (L_g, g). n > kappa: servers by ascending (L_S, S), and within a server
    GPUs by ascending (L_g, g). Candidates come in ascending g and the sorts are stable, so the last
    sort decides first.
    """
    stable_sort(candidates, cluster.gpus.load_ns)
    if cluster.jobs[job].gpus > kappa:
        stable_sort(candidates, cluster.gpus.server)
        stable_sort(candidates, cluster.servers.load_ns[cluster.gpus.server])
    return True
