"""Clos fabrics: pods of leaf switches, as clusters with two tiers."""

from __future__ import annotations

from collections.abc import Sequence

from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError, shown
from headway.domain.gpus import GpuType
from headway.domain.limits import MAX_GPUS, number_from, whole
from headway.domain.tiers import Tier


def clos_cluster(
    pods: int,
    leaves_per_pod: int,
    servers_per_leaf: int,
    gpus_per_server: int,
    gpu: GpuType,
    rails: int = 1,
    oversubscription: Sequence[float] = (1.0,),
) -> Cluster:
    """Return a cluster of equal pods, or of equal leaves if there is one pod.

    `oversubscription` is that of leaves and that of pods, or one for both.
    """
    for name, value in (
        ("pods", pods),
        ("leaves_per_pod", leaves_per_pod),
        ("servers_per_leaf", servers_per_leaf),
    ):
        whole(value, name, 1, MAX_GPUS)
    servers_per_pod = leaves_per_pod * servers_per_leaf
    names, sizes = ["leaf", "pod"], [servers_per_leaf, servers_per_pod]
    if pods == 1:
        names, sizes = names[:1], sizes[:1]
    tiers = map(Tier, names, factors_for(names, oversubscription), sizes)
    group = ServerGroup(pods * servers_per_pod, gpus_per_server, gpu, rails=rails)
    return Cluster.of([group], tiers=tiers)


def factors_for(tiers: Sequence[str], oversubscription: Sequence[float]) -> list[float]:
    """Return the oversubscription of each tier: one for each, or one for all."""
    if len(oversubscription) not in (1, len(tiers)):
        raise InputError(
            f"must be one number, or one for each tier ({', '.join(tiers)}), not "
            f"{len(oversubscription)}.",
            field="oversubscription",
        )
    return [*oversubscription] if len(oversubscription) > 1 else [*oversubscription] * len(tiers)


def oversubscription_from(text: str) -> list[float]:
    """Return the numbers of a text such as `2` or `1,2`."""
    try:
        return [number_from(part.strip()) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"must be a number, or one for each tier such as 1,2, not {shown(text)}.",
            field="oversubscription",
        ) from None
