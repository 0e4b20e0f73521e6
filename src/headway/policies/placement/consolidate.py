"""Consolidation.

Placing a job in as few servers as possible, whatever its model, is the rule that J. Gu et al.,
"Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, section 2, describe as
the common practice before them; there a job waits until it can be consolidated, here it does not.
"""

from __future__ import annotations

from headway.policies import (
    ClusterView,
    Integers,
    count_by_server,
    fewest_servers,
    placement_policy,
    take_from_servers,
)


@placement_policy("consolidate", steady=True, timeless=True)
def consolidate(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Consolidate: the fewest servers that hold the job, the last of them the best fit."""
    counts = count_by_server(cluster, candidates)
    shares = fewest_servers(counts, cluster.jobs[job].gpus)
    take_from_servers(cluster, candidates, counts, shares)
    return True
