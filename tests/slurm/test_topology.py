"""topology.conf: trees, blocks, and errors with line and column."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from headway.domain.errors import InputError
from headway.slurm import topology
from headway.slurm.topology import parse_topology

TREE = """# two leaves below a spine
SwitchName=leaf1 Nodes=gpu[1-2] LinkSpeed=100
switchname=leaf2 nodes=gpu[3-4]
SwitchName=leaf3 Nodes=gpu5
SwitchName=spine1 Switches=leaf[1-2]
SwitchName=spine2 \\
    Switches=leaf3
SwitchName=core Switches=spine[1-2]
"""


def test_a_tree_says_which_switches_are_above_each_node() -> None:
    found = parse_topology(TREE, "topology.conf")
    assert found.tiers == ("switch-1", "switch-2")  # No message passes the uplink of the core.
    assert found.switches["gpu1"] == found.switches["gpu2"] == ("leaf1", "spine1")
    assert found.switches["gpu3"] == ("leaf2", "spine1")
    assert found.switches["gpu5"] == ("leaf3", "spine2")


def test_a_switch_beside_a_deeper_subtree_is_one_of_each_level() -> None:
    text = TREE.replace("SwitchName=spine2 \\\n    Switches=leaf3\n", "").replace(
        "Switches=spine[1-2]", "Switches=spine1,leaf3"
    )
    assert parse_topology(text, "t").switches["gpu5"] == ("leaf3", "leaf3")


def test_what_scontrol_prints_is_read_too() -> None:
    text = (
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gpu[1-2] \n"
        "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=gpu[3-4] \n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=gpu[1-4] Switches=leaf[1-2] \n"
    )
    assert parse_topology(text, "t").switches["gpu4"] == ("leaf2",)


def test_blocks_form_larger_blocks() -> None:
    text = "BlockName=a Nodes=gpu[1-2]\nBlockName=b Nodes=gpu[3-4]\nBlockName=c Nodes=gpu[5-6]\n"
    found = parse_topology(text, "t")
    assert found.tiers == ("block",)
    assert found.switches["gpu3"] == ("b",)
    found = parse_topology(f"BlockSizes=2,4\n{text}", "t")
    assert found.tiers == ("block-1", "block-2")
    assert found.switches["gpu4"] == ("b", "2-blocks-1")
    assert found.switches["gpu5"] == ("c", "2-blocks-2")


def test_the_larger_blocks_that_scontrol_lists_are_tiers() -> None:
    text = (
        "BlockName=b1 BlockIndex=0 Nodes=gpu[1-2] BlockSize=2\n"
        "BlockName=b2 BlockIndex=1 Nodes=gpu[3-4] BlockSize=2\n"
        "BlockName=b3 BlockIndex=2 Nodes=gpu[5-6] BlockSize=2\n"
        "AggregatedBlock=b[1-2] BlockIndex=3 Nodes=gpu[1-4] BlockSize=4\n"
    )
    found = parse_topology(text, "t")
    assert found.tiers == ("block-1", "block-2")
    assert found.switches["gpu4"] == ("b2", "b[1-2]")
    assert found.switches["gpu5"] == ("b3", "b3")


def test_a_single_switch_is_no_tier() -> None:
    found = parse_topology("SwitchName=all Nodes=gpu[1-4]\n", "t")
    assert found.tiers == ()
    assert found.switches["gpu1"] == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "t: describes no switches and no blocks."),
        ("SwitchName=a", "t, line 1, column 1: needs 'Nodes' or 'Switches'."),
        ("SwitchName=a Nodes=x[1-", "t, line 1, column 14: must be a list of hosts"),
        (
            "\nSwitchName=a Nods=x",
            "t, line 2, column 14: unknown key 'nods'. Did you mean 'nodes'?",
        ),
        ("SwitchName=a Switches=b", "t, line 1, column 14: there is no switch 'b'."),
        ("Nodes=x", "t, line 1, column 1: a line must begin with SwitchName=."),
        ("garbage", "t, line 1, column 1: must be Key=Value, not 'garbage'."),
        ("SwitchName=a Nodes=x\nSwitchName=a Nodes=y", "line 2, column 1: switch 'a' is described"),
        ("SwitchName=a Nodes=x\nSwitchName=b Nodes=x", "line 2, column 14: node 'x' is below 'a'"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "is below itself"),
        ("BlockName=a Nodes=x\nBlockSizes=3,4", "line 2, column 1: must be multiples of the first"),
        ("BlockName=a Nodes=x\nSwitchName=b Nodes=y", "line 2, column 1: a line must begin with"),
    ],
)
def test_a_bad_file_is_one_clear_line(text: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        parse_topology(text, "t")
    assert problem in str(error.value)


def test_of_a_long_chain_of_switches_only_paths_above_nodes_are_walked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked = Mock(side_effect=topology._path)
    monkeypatch.setattr(topology, "_path", walked)
    lines = [f"SwitchName=s{number} Switches=s{number + 1}" for number in range(300)]
    parse_topology("\n".join([*lines, "SwitchName=s300 Nodes=n[1-2]"]), "t")
    assert walked.call_count == 1
    with pytest.raises(InputError, match="switch 's0' is below itself"):
        parse_topology("\n".join([*lines, "SwitchName=s300 Switches=s0"]), "t")
