"""List scheduling."""

from __future__ import annotations

from headway.policies import ClusterView, Integers, placement_policy, put_least_first


@placement_policy("ls", steady=True, timeless=True)
def list_scheduling(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """List scheduling: the GPUs with the least load L_g (the paper's LS)."""
    put_least_first(candidates, cluster.gpus.load_ns, cluster.jobs[job].gpus)
    return True
