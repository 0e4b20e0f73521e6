"""Clusters as the text of a cluster file."""

from __future__ import annotations

from collections.abc import Sequence

from headway import toml_text
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.gpus import GPUS, V100, GpuType
from headway.domain.tiers import Tier


def cluster_text(cluster: Cluster, comment: Sequence[str] = ()) -> str:
    """Return a file that reads back as the cluster, but for profiles; comment lines come first."""
    parts = ["".join(f"# {line}\n" for line in comment)] if comment else []
    if cluster.groups:
        groups = [_group(group) for group in cluster.groups]
        if cluster.exclusive:
            parts.append(toml_text.table("cluster", {"exclusive": True}))
        parts.append(toml_text.tables("group", groups, inside="cluster"))
        parts += [
            toml_text.table(gpu.name, _own_type(gpu), inside="gpu")
            for gpu in {gpu.name: gpu for gpu in cluster.gpu_types}.values()
            if gpu.name not in GPUS
        ]
    else:
        parts.append(toml_text.table("cluster", _uniform(cluster)))
    racks: dict[str, toml_text.Value] = {}
    if cluster.servers_per_rack is not None:
        racks["servers_per_rack"] = cluster.servers_per_rack
    if cluster.oversubscription != 1:
        racks["oversubscription"] = _number(cluster.oversubscription)
    if racks:
        parts.append(toml_text.table("racks", racks, inside="cluster"))
    if cluster.tiers:
        tiers = [_tier(tier) for tier in cluster.tiers]
        parts.append(toml_text.tables("tier", tiers, inside="cluster"))
    text = "\n".join(parts)
    if (size := len(text.encode())) > toml_text.LARGEST_FILE_BYTES:
        raise InputError(
            f"the cluster's file would have {size:,} bytes, and at most "
            f"{toml_text.LARGEST_FILE_BYTES:,} are read; its servers differ too much."
        )
    return text


def _uniform(cluster: Cluster) -> dict[str, toml_text.Value]:
    values: dict[str, toml_text.Value] = {
        "servers": cluster.servers,
        "gpus_per_server": cluster.gpus_per_server,
        "gpu_memory_gb": _number(cluster.gpu_memory_bytes / 2**30),
    }
    if (cluster.gpu_idle_w, cluster.gpu_busy_w) != (V100.idle_w, V100.busy_w):
        values["gpu_idle_w"] = _number(cluster.gpu_idle_w)
        values["gpu_busy_w"] = _number(cluster.gpu_busy_w)
    if cluster.rails > 1:
        values["rails"] = cluster.rails
    if cluster.exclusive:
        values["exclusive"] = True
    return values


def _group(group: ServerGroup) -> dict[str, toml_text.Value]:
    values: dict[str, toml_text.Value] = {
        "servers": group.servers,
        "gpus_per_server": group.gpus_per_server,
        "gpu": group.gpu.name,
    }
    if group.gpu != GPUS.get(group.gpu.name):
        values["gpu_memory_gb"] = _number(group.gpu.memory_bytes / 2**30)
    if group.rack:
        values["rack"] = group.rack
    if group.rails > 1:
        values["rails"] = group.rails
    if group.switches:
        values["switches"] = group.switches
    return values


def _own_type(gpu: GpuType) -> dict[str, toml_text.Value]:
    return {
        "memory_gb": _number(gpu.memory_bytes / 2**30),
        "tflops": _number(gpu.performance),
        "idle_w": _number(gpu.idle_w),
        "busy_w": _number(gpu.busy_w),
    }


def _tier(tier: Tier) -> dict[str, toml_text.Value]:
    values: dict[str, toml_text.Value] = {"name": tier.name}
    if tier.servers_per_switch is not None:
        values["servers_per_switch"] = tier.servers_per_switch
    values["oversubscription"] = _number(tier.oversubscription)
    return values


def _number(value: float) -> int | float:
    """Return a whole number as an int, which reads better."""
    return int(value) if value == int(value) else value
