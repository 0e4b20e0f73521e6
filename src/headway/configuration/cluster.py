"""Clusters from a shape or a TOML file."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.cluster import Cluster
from headway.domain.gpus import V100, gpu_type

DEFAULT_GPU_MEMORY_GB = 16


def cluster_from(
    text: str,
    gpu_memory_gb: float | None = None,
    gpu: str | None = None,
    exclusive: bool = False,
) -> Cluster:
    """Return the cluster that a shape (`16x4`) or the path of a `.toml` file describes.

    Args:
        text: The shape or the path.
        gpu_memory_gb: Memory of a GPU in place of the file's, or of 16 GB.
        gpu: Type of GPU, such as `v100`, whose power in watts replaces the file's.
        exclusive: Every job has its GPUs to itself, also if the file does not say so.
    """
    cluster = _cluster(text, gpu_memory_gb, gpu)
    return replace(cluster, exclusive=True) if exclusive else cluster


def _cluster(text: str, gpu_memory_gb: float | None, gpu: str | None) -> Cluster:
    if text.endswith(".toml"):
        from headway.configuration.cluster_file import read_cluster

        return read_cluster(text, gpu_memory_gb, gpu)
    kind = V100 if gpu is None else gpu_type(gpu)
    memory_gb = DEFAULT_GPU_MEMORY_GB if gpu_memory_gb is None else gpu_memory_gb
    return Cluster.parse(text, memory_gb, kind)
