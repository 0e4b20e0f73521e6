"""Clusters written as files: any that reads back, Clos fabrics, the Lingjun topology."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.configuration import cluster_from
from headway.configuration.clos import clos_cluster
from headway.configuration.cluster_text import cluster_text
from headway.configuration.lingjun import read_lingjun
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.errors import InputError
from headway.domain.gpus import V100, GpuType, gpu_type
from headway.domain.tiers import Tier
from strategies import fabrics, mixed_clusters, uniform_clusters

A100 = gpu_type("a100")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clusters") / "c.toml"


# The strategies' GPUs have a few bytes of memory, and one type of two sizes.
PLAIN = [
    Cluster(5, 2, 8 * 2**30, servers_per_rack=2, oversubscription=2.5),
    Cluster(5, 2, 2**30, 10.0, 99.5, rails=2, exclusive=True),
    Cluster.of([ServerGroup(1, 2, GpuType('a "b"', 3 * 2**29, 9.3, 10, 100), rack="x")]),
    Cluster.of([ServerGroup(1, 2, rack="x"), ServerGroup(2, 4, A100, rack="é\n")]),
]


@pytest.mark.parametrize("cluster", PLAIN, ids=str)
def test_a_cluster_reads_back_as_it_was_written(cluster: Cluster, file: Path) -> None:
    file.write_text(cluster_text(cluster, ["About it."]))
    assert cluster_from(str(file)) == cluster


def test_a_cluster_whose_file_would_be_too_large_to_be_read_is_not_written() -> None:
    groups = [ServerGroup(1, 1 + number % 2) for number in range(20_000)]
    with pytest.raises(InputError, match="bytes, and at most 1,048,576 are read"):
        cluster_text(Cluster.of(groups))


@settings(max_examples=min(settings().max_examples, 50))
@given(data=st.data())
def test_a_fabric_reads_back_as_it_was_written(data: st.DataObject, file: Path) -> None:
    drawn = data.draw(st.one_of(mixed_clusters(False), uniform_clusters(False)))
    drawn = data.draw(fabrics(drawn))
    groups = [
        ServerGroup(g.servers, g.gpus_per_server, V100, rails=g.rails, switches=g.switches)
        for g in drawn.all_groups
    ]
    cluster = Cluster.of(groups, tiers=drawn.tiers)
    file.write_text(cluster_text(cluster))
    assert cluster_from(str(file)) == cluster


def test_a_clos_fabric_has_leaves_and_pods() -> None:
    cluster = clos_cluster(2, 3, 4, 8, A100, rails=8, oversubscription=[1, 2])
    assert (cluster.servers, cluster.gpus) == (24, 192)
    assert cluster.tiers == (Tier("leaf", 1, 4), Tier("pod", 2, 12))
    assert cluster.uplinks == ((1 / 32,) * 6, (2 / 96,) * 2)
    assert cluster.uplink_carries == ((32,) * 6, (48,) * 2)


def test_a_single_pod_has_leaves_alone() -> None:
    assert clos_cluster(1, 3, 4, 8, V100).tiers == (Tier("leaf", 1, 4),)
    with pytest.raises(InputError, match=r"one for each tier \(leaf\), not 2"):
        clos_cluster(1, 3, 4, 8, V100, oversubscription=[1, 2])


TOPOLOGY = "ip,DSW,PSW,ASW\na,G6,P10,S2\nb,G6,P9,S1\nc,G6,P10,S10\nd,G6,P10,S2\ne,G6,P10,S1\n"


def topology(tmp_path: Path, text: str) -> str:
    path = tmp_path / "topo.csv"
    path.write_text(text)
    return str(path)


def test_a_lingjun_topology_has_a_group_for_each_leaf(tmp_path: Path) -> None:
    """Names of leaves repeat from aggregation group to group; one core group has no uplink."""
    cluster = read_lingjun(topology(tmp_path, TOPOLOGY), 8, A100, 4, [1, 3])
    assert [(group.servers, group.switches) for group in cluster.groups] == [
        (1, ("P9/S1", "P9")),
        (1, ("P10/S1", "P10")),
        (2, ("P10/S2", "P10")),
        (1, ("P10/S10", "P10")),
    ]
    assert cluster.tiers == (Tier("ASW", 1), Tier("PSW", 3))
    assert {group.rails for group in cluster.groups} == {4}


def test_names_of_switches_may_have_any_number_of_digits(tmp_path: Path) -> None:
    path = topology(tmp_path, TOPOLOGY + f"f,G6,P9,S{'1' * 5000}\ng,G6,P9,S002\n")
    leaves = [group.switches[0] for group in read_lingjun(path, 8, V100).groups]
    assert leaves[:3] == ["P9/S1", "P9/S002", f"P9/S{'1' * 5000}"]


def test_several_core_groups_are_a_tier_of_their_own(tmp_path: Path) -> None:
    path = topology(tmp_path, TOPOLOGY + "f,G7,P10,S2\n")
    cluster = read_lingjun(path, 8, V100)
    assert [tier.name for tier in cluster.tiers] == ["ASW", "PSW", "DSW"]
    assert cluster.groups[-1].switches == ("G7/P10/S2", "G7/P10", "G7")
    assert cluster.server_switches[2] == (0, 0, 0, 0, 0, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: no column ip; the first line must name ip, DSW, PSW, ASW."),
        ("ip,DSW,ASW\n", "line 1: no column PSW; the first line must name ip, DSW, PSW, ASW."),
        ("ip,DSW,PSW,ASW\n", "has no hosts."),
        (TOPOLOGY + "f,G6,,S1\n", "line 7, PSW: is empty."),
        (TOPOLOGY + "f,G6\n", "line 7, PSW: is empty."),
        (TOPOLOGY + "b,G6,P9,S1\n", "line 7, ip: 'b' is duplicated; it is on line 3 too."),
        (TOPOLOGY + 'f,"G6\n', "line 7: not CSV: unexpected end of data."),
    ],
)
def test_a_bad_topology_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = topology(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_lingjun(path, 8, V100)
    separator = ": " if message.startswith("has") else ", "
    assert str(caught.value) == f"{path}{separator}{message}"
