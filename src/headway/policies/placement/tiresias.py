"""Consolidation of those models alone that need it.

J. Gu, M. Chowdhury, K. G. Shin, Y. Zhu, M. Jeon, J. Qian, H. Liu, C. Guo, "Tiresias: A GPU Cluster
Manager for Distributed Deep Learning", NSDI 2019, section 3.3: a profiler finds the models that
suffer from being spread, those with skewed tensors, and only their jobs are consolidated. Here a
model suffers if its all-reduce alone takes longer than its computation.
"""

from __future__ import annotations

from headway.policies import (
    ClusterView,
    Integers,
    all_reduce_alone_ns,
    count_by_server,
    fewest_servers,
    placement_policy,
    put_least_first,
    take_from_servers,
)


@placement_policy("tiresias", steady=True, timeless=True)
def tiresias(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Tiresias: `consolidate` if a + b*M exceeds forward + backward, else `ls`."""
    record = cluster.jobs[job]
    if all_reduce_alone_ns(cluster, job) > record.forward_ns + record.backward_ns:
        counts = count_by_server(cluster, candidates)
        shares = fewest_servers(counts, record.gpus)
        take_from_servers(cluster, candidates, counts, shares)
    else:
        put_least_first(candidates, cluster.gpus.load_ns, record.gpus)
    return True
