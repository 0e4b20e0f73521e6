"""Clusters: uniform ones and groups of servers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.gpus import GPUS, V100, GpuType, gpu_type
from headway.domain.profiles import Profile

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
    assert cluster.uplinks == (2.0, 6.0)
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
