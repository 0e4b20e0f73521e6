"""Least attained service first.

J. Gu, M. Chowdhury, K. G. Shin, Y. Zhu, M. Jeon, J. Qian, H. Liu, C. Guo, "Tiresias: A GPU Cluster
Manager for Distributed Deep Learning", NSDI 2019, section 3.2: attained service is GPUs times time.
"""

from __future__ import annotations

from headway.policies import ClusterView, priority_policy


@priority_policy("las", timeless=True)
def least_attained_service(cluster: ClusterView, job: int, parameter: float) -> int:
    """Least attained service first: GPU time of the iterations done, so that new jobs lead."""
    record = cluster.jobs[job]
    return int((record.iterations - record.iterations_left) * record.service_ns * record.gpus)
