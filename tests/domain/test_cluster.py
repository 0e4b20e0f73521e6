"""Clusters: uniform ones and groups of servers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.gpus import GPUS, V100, GpuType, gpu_type
from headway.domain.profiles import Profile
from headway.domain.tiers import Tier

A100 = gpu_type("a100")
SLOWER = replace(V100, performance=9)
TWICE = [Profile("vgg16", "t4", 1, 1), Profile("vgg16", "t4", 2, 2, batch_size=16)]
MIXED = [ServerGroup(2, 4, V100, "x"), ServerGroup(1, 8, A100, "y"), ServerGroup(1, 1, V100, "x")]


def test_a_uniform_cluster_has_one_type_in_one_rack() -> None:
    cluster = Cluster(3, 2, 2**30, 30, 250)
    assert cluster.gpus == 6
    assert cluster.server_gpus == (2, 2, 2)
    assert cluster.server_type == cluster.server_rack == (0, 0, 0)
    assert cluster.uplinks == ()
    assert cluster.gpu_types == (GpuType("v100-sxm2", 2**30, 15.7, 30, 250),)
    assert cluster.server_of_gpu.tolist() == [0, 0, 1, 1, 2, 2]
    assert cluster.type_of_gpu.tolist() == [0] * 6
    assert str(cluster) == "3x2 GPUs of 1 GB"


def test_groups_keep_their_order_and_share_types_and_racks() -> None:
    cluster = Cluster.of(MIXED, oversubscription=6)
    assert cluster.servers == 4
    assert cluster.gpus == 17
    assert cluster.server_gpus == (4, 4, 8, 1)
    assert cluster.gpu_types == (V100, A100)
    assert cluster.server_type == (0, 0, 1, 0)
    assert cluster.server_rack == (0, 0, 1, 0)
    assert cluster.uplinks == ((2.0, 6.0),)
    assert cluster.server_of_gpu.tolist() == [0] * 4 + [1] * 4 + [2] * 8 + [3]
    assert cluster.type_of_gpu.tolist() == [0] * 8 + [1] * 8 + [0]
    assert cluster.servers_of([16, 3, 0]) == [0, 3]


def test_fields_that_differ_between_groups_are_zero() -> None:
    cluster = Cluster.of(MIXED)
    assert (cluster.gpus_per_server, cluster.gpu_memory_bytes) == (0, 0)
    assert (cluster.gpu_idle_w, cluster.gpu_busy_w) == (0, 0)
    alike = Cluster.of([ServerGroup(2, 4, rack="x"), ServerGroup(2, 4, rack="y")])
    assert (alike.gpus_per_server, alike.gpu_memory_bytes) == (4, 16 * 2**30)


def test_equal_clusters_are_equal_and_hash_alike() -> None:
    assert Cluster.of(MIXED) == Cluster.of(list(MIXED))
    assert hash(Cluster.of(MIXED)) == hash(Cluster.of(tuple(MIXED)))
    assert Cluster.of(MIXED) != Cluster.of(MIXED[:2])


def test_a_large_cluster_is_described_quickly() -> None:
    cluster = Cluster.of([ServerGroup(50_000, 8, V100), ServerGroup(50_000, 4, A100)])
    assert cluster.gpus == 600_000
    assert cluster.server_of_gpu[-1] == 99_999


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cluster.of([]), "groups: there are no servers; a cluster needs at least one."),
        (lambda: replace(Cluster.of(MIXED), servers=9), "servers: follows from the groups."),
        (
            lambda: Cluster(profiles=(Profile("vgg16", "a100-sxm4", 1, 1),)),
            "profiles: need groups of servers that name their GPUs.",
        ),
        (
            lambda: Cluster.of([ServerGroup(1, 1, rack="x"), ServerGroup(1, 1)]),
            "rack: either every group names its rack, or none does.",
        ),
        (
            lambda: Cluster.of(MIXED, servers_per_rack=2),
            "servers_per_rack: the groups name their racks already; give only one of the two.",
        ),
        (
            lambda: Cluster.of([ServerGroup(1, 1), ServerGroup(1, 1, SLOWER)]),
            "gpu: 'v100-sxm2' has two performances; rename one of them.",
        ),
        (
            lambda: Cluster.of(MIXED, profiles=TWICE),
            "profile: 'vgg16' on 't4' is duplicated at one batch size.",
        ),
        (lambda: replace(V100, name=""), "name: must be a non-empty string, not ''."),
        (lambda: ServerGroup(1, 1, "t4"), "gpu: must be a GpuType, not 't4'."),  # type: ignore[arg-type]
        (lambda: ServerGroup(1, 1, rack=3), "rack: must be a string, not 3."),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_cluster_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InputError) as refusal:
        make()
    assert str(refusal.value) == message


def test_known_types_are_complete() -> None:
    for gpu in GPUS.values():
        assert gpu.performance > 1
        assert gpu.memory_bytes >= 16 * 2**30
        assert gpu.busy_w > gpu.idle_w > 0


def test_racks_are_one_tier() -> None:
    cluster = Cluster(6, 4, servers_per_rack=2, oversubscription=3)
    assert cluster.all_tiers == (Tier("rack", 3, 2),)
    tiered = Cluster(6, 4, tiers=(Tier("leaf", 3, 2),))
    assert tiered.server_rack == cluster.server_rack == (0, 0, 1, 1, 2, 2)
    assert tiered.uplinks == cluster.uplinks == ((1.5, 1.5, 1.5),)
    assert str(tiered) == "6x4 GPUs of 16 GB, 3 leaf switches, oversubscribed 3 to 1"


def test_an_uplink_has_the_capacity_of_the_tier_below_it_over_its_oversubscription() -> None:
    """Eight servers of two rails: leaves of 2 carry 4 / 1.5 rails, pods of 4 carry 8 / 1.5 / 4."""
    tiers = (Tier("leaf", 1.5, 2), Tier("pod", 4, 4), Tier("core", 2, 8))
    cluster = Cluster(8, 4, rails=2, tiers=tiers)
    assert cluster.uplinks == ((1.5 / 4,) * 4, (6 / 8,) * 2)
    assert cluster.server_switches[1] == (0, 0, 0, 0, 1, 1, 1, 1)
    assert str(cluster) == (
        "8x4 GPUs of 16 GB with 2 rails, 4 leaf switches, oversubscribed 1.5 to 1, 2 pod switches, "
        "oversubscribed 4 to 1"
    )


def test_the_links_of_a_fabric_are_rails_then_uplinks_of_each_tier() -> None:
    groups = [
        ServerGroup(1, 4, rails=2, switches=("x1", "x")),
        ServerGroup(1, 3, rails=3, switches=("y1", "y")),
        ServerGroup(1, 2, switches=("x2", "x")),
    ]
    fabric = Cluster.of(groups, tiers=[Tier("leaf", 2), Tier("pod", 3)]).fabric
    assert fabric.names == [
        *("server 0 rail 0", "server 0 rail 1"),
        *("server 1 rail 0", "server 1 rail 1", "server 1 rail 2"),
        "server 2",
        *("leaf x1", "leaf y1", "leaf x2"),
        *("pod x", "pod y"),
    ]
    assert fabric.tiers == ["server"] * 6 + ["leaf"] * 3 + ["pod"] * 2
    assert fabric.server.tolist() == [0, 0, 1, 1, 1, 2, -1, -1, -1, -1, -1]
    assert fabric.above.tolist() == [6, 6, 7, 7, 7, 8, 9, 10, 9, -1, -1]
    assert fabric.factor.tolist() == [1.0] * 6 + [2 / 2, 2 / 3, 2 / 1, 6 / 3, 6 / 3]
    assert fabric.rail_of_gpu.tolist() == [0, 0, 1, 1, 2, 3, 4, 5, 5]


def test_an_uplink_carries_as_many_messages_as_it_has_rails_worth() -> None:
    tiers = (Tier("leaf", 1.7, 1), Tier("pod", 2, 2))
    fabric = Cluster(4, 4, rails=4, tiers=tiers).fabric
    assert (
        fabric.carries.tolist() == [1] * 16 + [math.floor(4 / 1.7)] * 4 + [math.floor(8 / 3.4)] * 2
    )
    slow = Cluster(2, 4, rails=4, tiers=(Tier("leaf", 5, 1),)).fabric
    assert slow.carries.tolist() == [1] * 10


def test_a_message_has_the_links_of_its_ranks_and_of_the_switches_between_them() -> None:
    tiers = (Tier("leaf", 1, 1), Tier("pod", 4, 2))
    fabric = Cluster(4, 4, rails=2, tiers=tiers).fabric
    assert fabric.shares([0, 1, 2]) == {}
    assert fabric.shares([0, 1, 2, 4]) == {0: 2 / 3, 1: 1 / 3, 2: 1.0, 8: 1.0, 9: 1.0}
    assert list(fabric.shares([3, 15])) == [1, 7, 8, 11, 12, 13]
    assert fabric.alone([0, 2, 4, 6]) == 0.5
    assert fabric.alone([0, 2, 8, 10]) == 4 / 4
    assert fabric.alone([0, 2, 8, 10], uplinks=False) == 0.5


def test_a_cluster_of_tiers_is_described_quickly() -> None:
    tiers = (Tier("leaf", 1, 32), Tier("pod", 2, 1024))
    fabric = Cluster(50_000, 8, rails=8, tiers=tiers).fabric
    assert len(fabric.names) == 400_000 + 1563 + 49


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tier(""), "name: must be a non-empty string, not ''."),
        (lambda: Tier("leaf", True), "oversubscription: must be a number, not True."),
        (
            lambda: Cluster(4, 1, tiers=(Tier("leaf", 1, 2),), servers_per_rack=2),
            "tiers: racks are a tier; give only one of the two.",
        ),
        (
            lambda: Cluster(4, 1, tiers=(Tier("leaf"),)),
            "needs 'servers_per_switch', unless every group of servers names its 'switches'.",
        ),
        (
            lambda: Cluster.of([ServerGroup(1, 1, switches=("a",))]),
            "switches: needs tiers, which describe the switches.",
        ),
        (
            lambda: ServerGroup(1, 1, switches=("",)),
            "switches: must be non-empty strings, not ''.",
        ),
        (
            lambda: Cluster(1, 4, rails=5),
            "rails: must be at most the number of GPUs of a server, 4, not 5.",
        ),
        (
            lambda: replace(Cluster.of([ServerGroup(1, 4, rails=2)]), rails=1),
            "rails: follows from the groups.",
        ),
    ],
)
def test_an_invalid_fabric_is_refused(make: object, message: str) -> None:
    test_an_invalid_cluster_is_refused(make, message)
