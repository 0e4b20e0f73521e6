"""Discretised two-dimensional least attained service.

J. Gu, M. Chowdhury, K. G. Shin, Y. Zhu, M. Jeon, J. Qian, H. Liu, C. Guo, "Tiresias: A GPU Cluster
Manager for Distributed Deep Learning", NSDI 2019, section 3.2: few queues by attained GPU time,
first in, first out in each. The bounds have the ratios of the example in the authors'
simulator (github.com/SymbioticLab/Tiresias: 3600, 7200 and 18000 s).
"""

from __future__ import annotations

from headway.policies import HORIZON_NS, ClusterView, Parameter, priority_policy


@priority_policy("2d-las", parameter=Parameter("quantum_s", least=0), timeless=True)
def discretised_least_attained(cluster: ClusterView, job: int, quantum_s: float) -> int:
    """Discretised 2D-LAS: four queues by GPU time attained, in each first in, first out.

    The queues end at 1, 2 and 5 times QUANTUM_S, in GPU seconds. In a queue jobs go by the time at
    which they were placed or, before that, by arrival. Times are below 2**62 ns, so that four
    queues of them are an int64.
    """
    record = cluster.jobs[job]
    done = record.iterations - record.iterations_left
    attained_ns = float(done * record.service_ns * record.gpus)
    quantum_ns = quantum_s * 1e9
    first_ns = record.start_ns if record.start_ns >= 0 else record.arrival_ns
    if attained_ns < quantum_ns:
        return int(first_ns - HORIZON_NS - HORIZON_NS)
    if attained_ns < 2 * quantum_ns:
        return int(first_ns - HORIZON_NS)
    if attained_ns < 5 * quantum_ns:
        return int(first_ns)
    return int(first_ns + HORIZON_NS)
