"""Consolidation of those models alone that need it.

J. Gu, M. Chowdhury, K. G. Shin, Y. Zhu, M. Jeon, J. Qian, H. Liu, C. Guo, "Tiresias: A GPU Cluster
Manager for Distributed Deep Learning", NSDI 2019, section 3.3: a profiler finds the models that
suffer from being spread, those with skewed tensors, and only their jobs are consolidated. Here a
model suffers if its all-reduce alone takes longer than its computation.
"""

from __future__ import annotations

from headway.domain.records import ClusterView
from headway.network.messages import all_reduce_alone_ns
from headway.policies.ordering import Integers, put_least_first
from headway.policies.placement.by_server import count_by_server, take_from_servers
from headway.policies.placement.consolidate import fewest_servers
from headway.policies.registry import placement_policy


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
