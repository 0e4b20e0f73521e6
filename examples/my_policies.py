"""Two custom policies: the complete example of the tutorial "Your own policy".

headway simulate jobs.csv --placement examples/my_policies.py:packed
headway simulate jobs.csv --admission examples/my_policies.py:patient:0.25
"""

from __future__ import annotations

import numpy as np

from headway.policies import (
    ClusterView,
    Integers,
    Parameter,
    admission_policy,
    bytes_left,
    messages_in_the_way,
    placement_policy,
    stable_sort,
)


@placement_policy("packed", steady=True, timeless=True)
def packed(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    """Fill the fullest servers first, so that whole servers stay free for large jobs."""
    free_bytes = np.zeros(len(cluster.servers), np.int64)
    for gpu in range(len(cluster.gpus)):
        free_bytes[cluster.gpus[gpu].server] += cluster.gpus[gpu].free_bytes
    # The sorts are stable: the last key is the most significant.
    stable_sort(candidates, cluster.gpus.load_ns)
    stable_sort(candidates, cluster.gpus.server)
    stable_sort(candidates, free_bytes[cluster.gpus.server])
    return True


@admission_policy("patient", parameter=Parameter("share", least=0))
def patient(cluster: ClusterView, message: int, share: float) -> bool:
    """Join other messages only if this one is at most a share of what is left of each."""
    first = cluster.messages[message].first_link
    for link in range(first, first + cluster.messages[message].links):
        port = cluster.links[link].port
        if messages_in_the_way(cluster, port) == 0:
            continue
        other = cluster.ports[port].first_in_flight
        while other >= 0:
            left = bytes_left(cluster, cluster.links[other].message)
            if cluster.messages[message].size_bytes > share * left:
                return False
            other = cluster.links[other].next
    return True
