"""Where the nodes and switches of a Slurm cluster are read from: files, or Slurm's programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headway.domain.errors import InputError
from headway.files import open_input
from headway.slurm import programs
from headway.slurm.conf import ConfLine, conf_lines
from headway.slurm.nodes import SlurmNode, parse_nodes
from headway.slurm.slurm_conf import nodes_in_conf
from headway.slurm.topology import Topology, parse_topology

LARGEST_FILE_BYTES = 2**26
MAX_INCLUDES = 10
"""How deep a `slurm.conf` may include other files."""


def read_nodes(nodes: str | None, conf: str | None) -> list[SlurmNode]:
    """Return the nodes in the output of `scontrol`, or in a `slurm.conf`, or ask Slurm."""
    if nodes is not None and conf is not None:
        raise InputError("--nodes and --conf exclude each other.")
    if conf is not None:
        return nodes_in_conf(_included_lines(conf, MAX_INCLUDES), conf)
    if nodes is None:
        return programs.nodes(programs.version())
    try:
        found = parse_nodes(_text(nodes))
    except InputError as error:
        raise error.at(nodes) from None
    if not found:
        raise InputError("there are no nodes; it must be from `scontrol show nodes`.", source=nodes)
    return found


def read_topology(
    topology: str | None, nodes: str | None, conf: str | None
) -> tuple[Topology, list[str]]:
    """Return the topology in a file, beside a `slurm.conf`, or as Slurm says; it may be flat.

    Notes say why it is flat, if Slurm did not say that it is.
    """
    if topology is None and conf is not None:
        beside = [Path(conf).with_name(f"topology.{suffix}") for suffix in ("yaml", "conf")]
        topology = next((str(path) for path in beside if path.exists()), None)
    if topology is not None:
        if Path(topology).suffix in (".yaml", ".yml"):
            raise InputError(
                "YAML is not read; write the output of `scontrol show topology` to a file and give "
                "that as --topology.",
                source=topology,
            )
        return parse_topology(_text(topology), topology), []
    if nodes is not None or conf is not None:
        return Topology(), []
    try:
        text = programs.run("scontrol", "show", "topology")
    except programs.SlurmError as error:
        problem = str(error).rstrip(".")
        return Topology(), [f"{problem}: the network is taken to be flat; --topology describes it"]
    if "Name=" not in text:
        return Topology(), []
    return parse_topology(text, "scontrol show topology"), []


def _included_lines(path: str, depth: int) -> Iterator[ConfLine]:
    """Yield the lines of a file, with those of the files that it includes in their place."""
    for line in conf_lines(_text(path), path):
        if line.key != "include":
            yield line
        elif depth == 0:
            raise line.error(f"includes files more than {MAX_INCLUDES} deep.")
        else:
            yield from _included_lines(str(Path(path).parent / line.name), depth - 1)


def _text(path: str) -> str:
    with open_input(path) as stream:
        data = stream.read(LARGEST_FILE_BYTES + 1)
    if len(data) > LARGEST_FILE_BYTES:
        raise InputError(f"larger than {LARGEST_FILE_BYTES:,} bytes.", source=path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("not UTF-8 text.", source=path, line=line) from None
