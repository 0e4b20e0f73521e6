"""Clusters from TOML files."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import EXAMPLES
from headway.configuration import cluster_from
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.gpus import V100, GpuType, gpu_type
from headway.domain.profiles import Profile

A100 = gpu_type("a100")


def read(tmp_path: Path, text: str) -> Cluster:
    path = tmp_path / "c.toml"
    path.write_text(text)
    return cluster_from(str(path))


def test_the_example_is_two_racks_with_three_types() -> None:
    cluster = cluster_from(str(EXAMPLES / "mixed-cluster.toml"))
    larger = GpuType("v100-sxm2", 32 * 2**30, 15.7, 40, 300)
    own = GpuType("sample", 24 * 2**30, 31.4, 20, 300)
    assert cluster.gpu_types == (larger, A100, own)
    assert cluster.server_gpus == (4,) * 8 + (8, 8)
    assert cluster.server_type == (0,) * 8 + (1, 2)
    assert cluster.server_rack == (0,) * 8 + (1, 1)
    assert cluster.uplinks == ((4 / 8, 4 / 2),)
    assert cluster.gpus == 48
    assert cluster.profiles == (Profile("resnet50", "a100-sxm4", 17_500_000, 26_000_000, 16),)
    assert str(cluster) == (
        "8x4 v100-sxm2 of 32 GB, 1x8 a100-sxm4 of 40 GB, 1x8 sample of 24 GB, "
        "2 racks, oversubscribed 4 to 1"
    )


def test_equal_servers_may_be_in_racks(tmp_path: Path) -> None:
    shape = "[cluster]\nservers = 5\ngpus_per_server = 2\n"
    cluster = read(
        tmp_path, f"{shape}[cluster.racks]\nservers_per_rack = 2\noversubscription = 3\n"
    )
    assert cluster == Cluster(5, 2, servers_per_rack=2, oversubscription=3)
    assert cluster.server_rack == (0, 0, 1, 1, 2)
    assert cluster.uplinks == ((1.5, 1.5, 3.0),)
    assert read(tmp_path, shape) == Cluster(5, 2)


def test_a_group_has_the_reference_type_unless_it_names_one(tmp_path: Path) -> None:
    group = "servers = 1\ngpus_per_server = 2\n"
    cluster = read(tmp_path, f"[[cluster.group]]\n{group}[[cluster.group]]\n{group}gpu = 'a100'\n")
    assert cluster == Cluster.of([ServerGroup(1, 2, V100), ServerGroup(1, 2, A100)])
    assert cluster.uplinks == ()


def test_racks_are_filled_with_the_servers_of_all_groups_in_order(tmp_path: Path) -> None:
    group = "[[cluster.group]]\nservers = 3\ngpus_per_server = 1\n"
    cluster = read(tmp_path, f"{group}{group}[cluster.racks]\nservers_per_rack = 2\n")
    assert cluster.server_rack == (0, 0, 1, 1, 2, 2)
    assert cluster.uplinks == ((0.5, 0.5, 0.5),)


@pytest.mark.parametrize(("memory_gb", "gpu"), [(None, "v100"), (16, None)])
def test_options_for_equal_gpus_are_refused_with_groups(
    memory_gb: float | None, gpu: str | None
) -> None:
    with pytest.raises(InputError, match=r"the groups of servers in .* omit this option"):
        cluster_from(str(EXAMPLES / "mixed-cluster.toml"), memory_gb, gpu)


def test_options_replace_the_memory_and_power_of_equal_servers(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[cluster]\nservers = 1\ngpus_per_server = 2\ngpu_memory_gb = 8\n")
    cluster = cluster_from(str(path), 32, "a100")
    assert cluster == Cluster(1, 2, 32 * 2**30, A100.idle_w, A100.busy_w)


def test_an_error_about_an_option_does_not_point_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[cluster]\nservers = 1\ngpus_per_server = 2\ngpu_memory_gb = 8\n")
    with pytest.raises(InputError) as caught:
        cluster_from(str(path), 0)
    assert str(caught.value) == "gpu_memory_gb: must be at least 0.000977 GB, not 0."
