"""The network of a Slurm cluster: `topology.conf`, or what `scontrol show topology` prints.

A tree has lines `SwitchName=leaf1 Nodes=gpu[1-8]` and `SwitchName=spine Switches=leaf[1-2]`. Blocks
have lines `BlockName=b1 Nodes=gpu[1-16]` and perhaps one `BlockSizes=16,64`: consecutive blocks
form larger ones. scontrol lists those as `AggregatedBlock=b[1-4] Nodes=gpu[1-64] BlockSize=64`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headway.domain.errors import InputError, did_you_mean, shown
from headway.slurm.conf import ConfLine, conf_lines
from headway.slurm.hostlist import expand

_SWITCH_KEYS = ("switchname", "nodes", "switches", "linkspeed", "level")
_AGGREGATED = "aggregatedblock"
_AGGREGATED_KEYS = (_AGGREGATED, "nodes", "blockindex", "blocksize")
_BLOCK_KEYS = ("blockname", "nodes", "blocksizes", "blockindex", "blocksize")


class Topology(msgspec.Struct, frozen=True):
    """The switches above each node, lowest first; `tiers` names the levels."""

    tiers: tuple[str, ...] = ()
    switches: dict[str, tuple[str, ...]] = {}


class _Switch(msgspec.Struct):
    line: ConfLine
    nodes: list[str]
    switches: list[str]
    parent: str = ""


def parse_topology(text: str, source: str) -> Topology:
    """Return the topology that a file describes, tree or blocks.

    A level with a single switch is left out: no message passes its uplink.

    Raises:
        InputError: With file, line and column.
    """
    lines = list(conf_lines(text, source))
    if not lines:
        raise InputError("describes no switches and no blocks.", source=source)
    blocks = any(line.key in ("blockname", "blocksizes", _AGGREGATED) for line in lines)
    paths = _blocks(lines) if blocks else _tree(lines)
    depth = max(len(path) for path in paths.values())
    # A leaf beside deeper subtrees counts as a switch of each level below its parent.
    even = {node: path[:1] * (depth - len(path)) + path for node, path in paths.items()}
    while depth and len({path[depth - 1] for path in even.values()}) == 1:
        depth -= 1
    name = "block" if blocks else "switch"
    tiers = [name if depth == 1 else f"{name}-{level}" for level in range(1, depth + 1)]
    return Topology(tuple(tiers), {node: path[:depth] for node, path in even.items()})


def _tree(lines: Sequence[ConfLine]) -> dict[str, tuple[str, ...]]:
    switches: dict[str, _Switch] = {}
    for line in lines:
        _check_keys(line, "switchname", _SWITCH_KEYS)
        if line.name in switches:
            raise line.error(f"switch {shown(line.name)} is described twice.")
        below = _hosts(line, "switches")
        # scontrol also lists all nodes below a switch of switches.
        found = _Switch(line, [] if below else _hosts(line, "nodes"), below)
        if not found.nodes and not found.switches:
            raise line.error("needs 'Nodes' or 'Switches'.")
        switches[line.name] = found
    for name, switch in switches.items():
        for child in switch.switches:
            if child not in switches:
                known = did_you_mean(child, switches)
                raise switch.line.error(f"there is no switch {shown(child)}.{known}", "switches")
            if switches[child].parent:
                raise switch.line.error(
                    f"switch {shown(child)} is below {shown(switches[child].parent)} already.",
                    "switches",
                )
            switches[child].parent = name
    paths: dict[str, tuple[str, ...]] = {}
    _check_loops(switches)
    for name, switch in switches.items():
        if switch.nodes:
            _add_nodes(paths, switch.line, switch.nodes, _path(name, switches))
    return paths


def _path(name: str, switches: Mapping[str, _Switch]) -> tuple[str, ...]:
    path = [name]
    while parent := switches[path[-1]].parent:
        path.append(parent)
    return tuple(path)


def _check_loops(switches: Mapping[str, _Switch]) -> None:
    rooted: set[str] = set()
    for first in switches:
        path: dict[str, None] = {}
        name = first
        while name and name not in rooted:
            if name in path:
                raise switches[name].line.error(f"switch {shown(name)} is below itself.")
            path[name] = None
            name = switches[name].parent
        rooted.update(path)


def _blocks(lines: Sequence[ConfLine]) -> dict[str, tuple[str, ...]]:
    paths: dict[str, tuple[str, ...]] = {}
    names: list[str] = []
    sizes = [size for line in lines if line.key == "blocksizes" for size in _sizes(line)]
    aggregated = [line for line in lines if line.key == _AGGREGATED]
    for line in lines:
        if line.key in ("blocksizes", _AGGREGATED):
            continue
        _check_keys(line, "blockname", _BLOCK_KEYS)
        if line.name in names:
            raise line.error(f"block {shown(line.name)} is described twice.")
        nodes = _hosts(line, "nodes")
        if not nodes:
            raise line.error("needs 'Nodes'.")
        above = [
            f"{size // sizes[0]}-blocks-{len(names) // (size // sizes[0]) + 1}"
            for size in sizes[1:]
        ]
        names.append(line.name)
        _add_nodes(paths, line, nodes, (line.name, *above))
    if not paths:
        raise lines[0].error("describes no blocks.")
    return _aggregate(paths, aggregated) if aggregated else paths


def _aggregate(
    paths: dict[str, tuple[str, ...]], lines: Sequence[ConfLine]
) -> dict[str, tuple[str, ...]]:
    """Return the paths with the larger blocks that scontrol lists, smallest first."""
    levels: dict[int, dict[str, str]] = {}
    for line in lines:
        _check_keys(line, _AGGREGATED, _AGGREGATED_KEYS)
        size = line.values.get("blocksize", "")
        if not size.isdecimal() or not 0 < int(size) < 10**9:
            raise line.error(f"must be a number, not {shown(size)}.", "blocksize")
        levels.setdefault(int(size), {}).update(dict.fromkeys(_hosts(line, "nodes"), line.name))
    return {
        # A block that is in no larger one counts as one of each size.
        node: (*path, *(levels[size].get(node, path[-1]) for size in sorted(levels)))
        for node, path in paths.items()
    }


def _sizes(line: ConfLine) -> list[int]:
    words = line.name.split(",")
    if not all(word.isdecimal() and 0 < int(word) < 10**9 for word in words):
        raise line.error(f"must be numbers such as 16,64, not {shown(line.name)}.")
    sizes = [int(word) for word in words]
    if sizes != sorted(sizes) or any(size % sizes[0] for size in sizes):
        raise line.error(f"must be multiples of the first, rising, not {shown(line.name)}.")
    return sizes


def _add_nodes(
    paths: dict[str, tuple[str, ...]], line: ConfLine, nodes: Sequence[str], path: tuple[str, ...]
) -> None:
    for node in nodes:
        if node in paths:
            raise line.error(
                f"node {shown(node)} is below {shown(paths[node][0])} already.", "nodes"
            )
        paths[node] = path


def _hosts(line: ConfLine, key: str) -> list[str]:
    if key not in line.values:
        return []
    try:
        return expand(line.values[key])
    except InputError as error:
        raise line.error(error.problem, key) from None


def _check_keys(line: ConfLine, first: str, known: Sequence[str]) -> None:
    if line.key != first:
        name = "SwitchName" if first == "switchname" else "BlockName"
        raise line.error(f"a line must begin with {name}=.")
    for key in line.values:
        if key not in known:
            raise line.error(f"unknown key {shown(key)}.{did_you_mean(key, known)}", key)
