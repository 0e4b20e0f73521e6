"""The nodes that a `slurm.conf` describes."""

from __future__ import annotations

from collections.abc import Iterable

from headway.domain.errors import InputError, shown
from headway.slurm.conf import ConfLine
from headway.slurm.hostlist import expand
from headway.slurm.nodes import MEBIBYTE, SlurmNode, gpus_in

_DEFAULT = "DEFAULT"


def nodes_in_conf(lines: Iterable[ConfLine], source: str) -> list[SlurmNode]:
    """Return the nodes of the `NodeName` lines; those of DEFAULT apply to the lines after them."""
    defaults: dict[str, str] = {}
    nodes: dict[str, SlurmNode] = {}
    for line in lines:
        if line.key != "nodename":
            continue
        if line.name.upper() == _DEFAULT:
            defaults |= line.values
            continue
        for node in _nodes(line, defaults | line.values):
            if node.name in nodes:
                raise line.error(f"node {shown(node.name)} is described twice.")
            nodes[node.name] = node
    if not nodes:
        raise InputError("describes no nodes.", source=source)
    return list(nodes.values())


def _nodes(line: ConfLine, values: dict[str, str]) -> list[SlurmNode]:
    try:
        names = expand(line.name)
    except InputError as error:
        raise line.error(error.problem) from None
    cpus, memory_mb = _number(line, values, "cpus"), _number(line, values, "realmemory")
    try:
        gpus, gpu = gpus_in(values.get("gres", ""))
    except InputError as error:
        raise line.error(error.problem, "gres") from None
    return [SlurmNode(name, name, cpus, memory_mb * MEBIBYTE, gpus, gpu) for name in names]


def _number(line: ConfLine, values: dict[str, str], key: str) -> int:
    text = values.get(key, "1")
    if not text.isascii() or not text.isdecimal() or len(text) > 12:
        raise line.error(f"must be a whole number, not {shown(text)}.", key)
    return int(text)
