"""`headway cluster import slurm`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cli.commands import headway
from headway.configuration import cluster_from
from headway.domain.cluster import ServerGroup
from headway.domain.gpus import GPUS, GpuType
from headway.domain.tiers import Tier
from headway.slurm.clusters import known_gpu

TREE = (
    "SwitchName=leaf1 Nodes=gpu[1-2]\nSwitchName=leaf2 Nodes=gpu[3-4]\n"
    "SwitchName=spine Switches=leaf[1-2]\n"
)
CONF = """ClusterName=lab
NodeName=DEFAULT CPUs=64 RealMemory=515000 State=UNKNOWN
NodeName=gpu[1-3] Gres=gpu:h100:8
NodeName=gpu4 Gres=gpu:odd:4  # another type
NodeName=login[1-2] CPUs=8
PartitionName=gpu Nodes=gpu[1-4]
"""
NODE = (
    "NodeName=gpu{} CPUTot=64 Gres=gpu:h100:8(S:0-1) NodeAddr=gpu{} RealMemory=515000 State=IDLE \n"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_nodes_and_switches_of_configuration_files_become_a_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("slurm.conf").write_text(CONF)
    Path("topology.conf").write_text(TREE)
    done = headway(
        capsys,
        *("cluster", "import", "slurm", "--conf", "slurm.conf", "--gpu", "a100"),
        *("--oversubscription", "4", "-o", "c.toml"),
    )
    assert done.status == 0
    assert "GPUs of type odd are taken for a100-sxm4; --gpu says what they are" in done.err
    cluster = cluster_from("c.toml")
    h100, a100 = GPUS["h100-sxm5"], GPUS["a100-sxm4"]
    assert cluster.groups == (
        ServerGroup(2, 8, h100, switches=("leaf1",)),
        ServerGroup(1, 8, h100, switches=("leaf2",)),
        ServerGroup(1, 4, a100, switches=("leaf2",)),
    )
    assert cluster.tiers == (Tier("switch", 4),)


def test_what_scontrol_said_becomes_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nodes").write_text("".join(NODE.format(number, number) for number in (1, 2, 7)))
    flat = headway(capsys, "cluster", "import", "slurm", "--nodes", "nodes")
    assert flat.status == 0
    Path("c.toml").write_text(flat.out)
    assert (cluster_from("c.toml").servers, cluster_from("c.toml").tiers) == (3, ())
    Path("blocks").write_text("BlockName=a Nodes=gpu1\nBlockName=b Nodes=gpu2\n")
    done = headway(capsys, "cluster", "import", "slurm", "--nodes", "nodes", "--topology", "blocks")
    assert "no switch for gpu7: each is under one of its own" in done.err
    Path("c.toml").write_text(done.out)
    assert [group.switches for group in cluster_from("c.toml").groups] == [
        ("a",),
        ("b",),
        ("gpu7",),
    ]


def test_a_running_slurm_is_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("nodes").write_text("".join(NODE.format(number, number) for number in range(1, 5)))
    Path("topology").write_text(TREE)
    fake = tmp_path / "scontrol"
    answers = '--version) echo slurm-wlm 22.05.8;; "show nodes") cat nodes;; *) cat topology;;'
    fake.write_text(f'#!/bin/sh\ncase "$1${{2:+ $2}}" in {answers} esac\n')
    fake.chmod(0o755)
    cat = shutil.which("cat") or ""
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(cat).parent}")
    done = headway(capsys, "cluster", "import", "slurm", "-o", "c.toml")
    assert done.status == 0, done.err
    assert cluster_from("c.toml").gpus == 32
    assert cluster_from("c.toml").tiers == (Tier("switch", 1),)


@pytest.mark.parametrize(
    ("conf", "topology", "message"),
    [
        ("NodeName=a CPUs=x Gres=gpu:1\n", TREE, "slurm.conf, line 1, column 12: must be a whole"),
        ("NodeName=a[1- Gres=gpu:1\n", TREE, "slurm.conf, line 1, column 1: must be a list of"),
        ("NodeName=a\nNodeName=a\n", TREE, "slurm.conf, line 2, column 1: node 'a' is described"),
        ("ClusterName=x\n", TREE, "slurm.conf: describes no nodes."),
        ("NodeName=a Gres=gpu:-1\n", TREE, "slurm.conf, line 1, column 12: 'gpu:-1' is not under"),
        ("NodeName=a\n", TREE, "Slurm knows no node with GPUs."),
        ("include x.conf\n", TREE, "x.conf: No such file or directory."),
        (CONF, "SwitchName=a\n", "topology.conf, line 1, column 1: needs 'Nodes' or 'Switches'."),
    ],
)
def test_a_bad_file_is_one_clear_line_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], conf: str, topology: str, message: str
) -> None:
    Path("slurm.conf").write_text(conf)
    Path("topology.conf").write_text(topology)
    done = headway(capsys, "cluster", "import", "slurm", "--conf", "slurm.conf", "-o", "c.toml")
    assert done.status == 2
    assert message in done.err
    assert not Path("c.toml").exists()


@pytest.mark.parametrize(
    ("name", "gpu", "memory_gb"),
    [
        ("h100", "h100-sxm5", 80),
        ("tesla_v100", "v100-sxm2", 16),
        ("nvidia_a100-sxm4-80gb", "a100-sxm4", 80),
        ("A100_80GB", "a100-sxm4", 80),
    ],
)
def test_names_of_gpus_in_slurm_are_recognized(name: str, gpu: str, memory_gb: int) -> None:
    found = known_gpu(name)
    assert isinstance(found, GpuType)
    assert (found.name, found.memory_bytes) == (gpu, memory_gb * 2**30)


@pytest.mark.parametrize("name", ["", "odd", "a100_3g.20gb", "gtx"])
def test_a_part_of_a_gpu_or_an_unknown_one_is_not(name: str) -> None:
    assert known_gpu(name) is None


def test_included_files_are_read_in_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("parts").mkdir()
    Path("slurm.conf").write_text("ClusterName=lab\nInclude parts/nodes.conf\n")
    Path("parts/nodes.conf").write_text("include more.conf\nNodeName=gpu1 Gres=gpu:h100:8\n")
    Path("parts/more.conf").write_text("NodeName=gpu2 Gres=gpu:h100:8\n")
    done = headway(capsys, "cluster", "import", "slurm", "--conf", "slurm.conf", "-o", "c.toml")
    assert done.status == 0, done.err
    assert cluster_from("c.toml").gpus == 16
    Path("parts/more.conf").write_text("Include more.conf\n")
    done = headway(capsys, "cluster", "import", "slurm", "--conf", "slurm.conf")
    assert done.status == 2
    assert "parts/more.conf, line 1, column 1: includes files more than 10 deep." in done.err


def test_a_topology_in_yaml_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("slurm.conf").write_text(CONF)
    Path("topology.yaml").write_text("- topology: t\n")
    done = headway(capsys, "cluster", "import", "slurm", "--conf", "slurm.conf")
    assert done.status == 2
    assert done.err == (
        "headway: error: topology.yaml: YAML is not read; write the output of `scontrol show "
        "topology` to a file and give that as --topology.\n"
    )


def test_an_oversubscription_without_effect_and_an_unknown_topology_are_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("nodes").write_text(NODE.format(1, 1))
    fake = tmp_path / "scontrol"
    answers = '--version) echo slurm 24.05.1;; "show nodes") cat nodes;; '
    answers += "*) echo 'scontrol: error: no answer' >&2; exit 1;;"
    fake.write_text(f'#!/bin/sh\ncase "$1${{2:+ $2}}" in {answers} esac\n')
    fake.chmod(0o755)
    cat = shutil.which("cat") or ""
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(cat).parent}")
    done = headway(capsys, "cluster", "import", "slurm", "--oversubscription", "2,3")
    assert done.status == 0, done.err
    assert "scontrol: no answer: the network is taken to be flat; --topology describes it\n" in (
        done.err
    )
    assert "--oversubscription has no effect: the network is flat\n" in done.err
