"""A cluster to simulate, from what Slurm says about its nodes and switches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.gpus import ALIASES, GPUS, GpuType
from headway.domain.tiers import Tier
from headway.slurm.nodes import SlurmNode
from headway.slurm.topology import Topology

GIBIBYTE = 2**30
_MEMORY = re.compile(r"-?(\d+)gb$")


def known_gpu(gres_type: str) -> GpuType | None:
    """Return the type that a name in Slurm means: `nvidia_a100-sxm4-80gb`, `tesla_v100`, `h100`."""
    name = re.sub(r"^(nvidia[-_])?(tesla[-_])?", "", gres_type.lower()).replace("_", "-")
    memory = _MEMORY.search(name)
    plain = name[: memory.start()] if memory else name
    kind = GPUS.get(ALIASES.get(plain, plain))
    if kind is None or memory is None:
        return kind
    return replace(kind, memory_bytes=int(memory[1]) * GIBIBYTE)


def cluster_of(
    nodes: Iterable[SlurmNode],
    topology: Topology,
    default: GpuType,
    rails: int,
    oversubscription: Sequence[float],
) -> tuple[Cluster, list[str]]:
    """Return the cluster, and notes about what had to be assumed.

    Nodes without GPUs are left out. `default` is the type of GPUs whose type Slurm does not say or
    Headway does not know; `oversubscription` is that of each tier, lowest first.
    """
    servers = [node for node in nodes if node.gpus]
    if not servers:
        raise InputError("Slurm knows no node with GPUs.")
    notes: list[str] = []
    types = {name: _type(name, default, notes) for name in dict.fromkeys(n.gpu for n in servers)}
    missing = [node.name for node in servers if node.name not in topology.switches]
    if topology.tiers and missing:
        some = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        notes.append(f"no switch for {some}: each is under one of its own")
    # In the order of the topology, so that servers under the same switch are together.
    order = {name: index for index, name in enumerate(topology.switches)}
    servers.sort(key=lambda node: order.get(node.name, len(order)))

    def group_of(node: SlurmNode) -> ServerGroup:
        own = (node.name,) * len(topology.tiers)
        switches = topology.switches.get(node.name, own)
        return ServerGroup(1, node.gpus, types[node.gpu], rails=rails, switches=switches)

    groups = [
        replace(group, servers=len(list(members)))
        for group, members in groupby(servers, key=group_of)
    ]
    return Cluster.of(groups, tiers=map(Tier, topology.tiers, oversubscription)), notes


def _type(gres_type: str, default: GpuType, notes: list[str]) -> GpuType:
    found = known_gpu(gres_type)
    if found is None:
        what = f"GPUs of type {gres_type}" if gres_type else "GPUs whose type Slurm does not say"
        notes.append(f"{what} are taken for {default.name}; --gpu says what they are")
    return found or default
