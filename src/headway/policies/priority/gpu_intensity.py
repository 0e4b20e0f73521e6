"""GPU intensity.

J. Cao, Y. Guan, K. Qian, J. Gao, W. Xiao, J. Dong, B. Fu, D. Cai, E. Zhai, "Crux: GPU-Efficient
Communication Scheduling for Deep Learning Training", SIGCOMM 2024, Definition 2: the computation of
an iteration divided by the time that its communication takes.
"""

from __future__ import annotations

import math

from headway.policies import ClusterView, all_reduce_alone_ns, priority_policy

_SCALE = 2.0**53


@priority_policy("gpu-intensity", timeless=True)
def gpu_intensity(cluster: ClusterView, job: int, parameter: float) -> int:
    """Highest GPU intensity first: computation of an iteration over its communication (Crux).

    With W = n * (forward + backward) and t = a + floor(b * M), or 0 for a job in one server, the
    key is floor(2**53 * t / (t + W)): the less, the higher W / t.
    """
    record = cluster.jobs[job]
    if record.servers == 1 or record.gpus == 1:
        return 0
    computing_ns = float(record.gpus * (record.forward_ns + record.backward_ns))
    sending_ns = float(all_reduce_alone_ns(cluster, job))
    return math.floor(_SCALE * (sending_ns / (sending_ns + computing_ns)))
