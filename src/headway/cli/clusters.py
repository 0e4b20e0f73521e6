"""`headway cluster`: cluster files from a few numbers, and from files of real clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import messages, print_lines, report_written
from headway.files import STANDARD, check_outputs, inputs_read, open_output

if TYPE_CHECKING:
    from headway.domain.cluster import Cluster
    from headway.domain.gpus import GpuType

app = typer.Typer(
    help="Write cluster files: a Clos fabric, or the topology of a real cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
import_app = typer.Typer(
    help="Convert the topology of a real cluster to a cluster file.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(import_app, name="import")

OutputOption = Annotated[str, typer.Option("--output", "-o", help="A .toml file, or - for stdout.")]
GpusOption = Annotated[int, typer.Option(help="GPUs of each server.")]
RailsOption = Annotated[
    int, typer.Option(help="Links of each server, which its GPUs share in equal blocks.")
]
GpuOption = Annotated[str, typer.Option(help="The type of GPU: v100, a100, h100, …")]
GpuMemoryOption = Annotated[
    float | None,
    typer.Option(
        help="Memory of a GPU (1 GB = 1024 MB).  [default: that of the type]", show_default=False
    ),
]
OversubscriptionOption = Annotated[
    str,
    typer.Option(
        metavar="R[,R]",
        help="Capacity below the switches of a tier over that of their uplinks: one for all tiers, "
        "or one for each, lowest first.",
    ),
]


@app.command("clos")
def clos_command(
    pods: Annotated[int, typer.Option(help="Pods of the fabric.")],
    leaves_per_pod: Annotated[int, typer.Option(help="Leaf switches of each pod.")] = 8,
    servers_per_leaf: Annotated[int, typer.Option(help="Servers under each leaf switch.")] = 16,
    gpus_per_server: GpusOption = 8,
    rails: RailsOption = 1,
    oversubscription: OversubscriptionOption = "1",
    gpu: GpuOption = "v100",
    gpu_memory_gb: GpuMemoryOption = None,
    output: OutputOption = STANDARD,
) -> None:
    """Describe a Clos fabric: pods of leaf switches."""
    from headway.configuration.clos import clos_cluster, oversubscription_from

    check_outputs([output])
    cluster = clos_cluster(
        pods,
        leaves_per_pod,
        servers_per_leaf,
        gpus_per_server,
        _gpu_type(gpu, gpu_memory_gb),
        rails,
        oversubscription_from(oversubscription),
    )
    _write(cluster, ["A Clos fabric: pods of leaf switches."], output)


@import_app.command("lingjun")
def lingjun_command(
    file: Annotated[str, typer.Argument(help="The file topo.csv, or - for standard input.")],
    gpus_per_server: GpusOption = 8,
    rails: RailsOption = 1,
    oversubscription: OversubscriptionOption = "1",
    gpu: GpuOption = "v100",
    gpu_memory_gb: GpuMemoryOption = None,
    output: OutputOption = STANDARD,
) -> None:
    """Convert Alibaba's published hosts and switches (Lingjun, 2023).

    The file says which host is under which switch. Options give what it does not say: GPUs, rails
    and oversubscription.
    """
    from headway.configuration.clos import oversubscription_from
    from headway.configuration.lingjun import read_lingjun

    check_outputs([output], [file])
    cluster = read_lingjun(
        file,
        gpus_per_server,
        _gpu_type(gpu, gpu_memory_gb),
        rails,
        oversubscription_from(oversubscription),
    )
    about = [
        "Hosts and switches of the Alibaba Lingjun dataset of 2023 (Apache-2.0; Cao et al., Crux,",
        "SIGCOMM 2024). GPUs, rails and oversubscription are not in it.",
    ]
    _write(cluster, about, output)


@import_app.command("slurm")
def slurm_command(
    nodes: Annotated[
        str | None,
        typer.Option(
            help="A file with the output of `scontrol show nodes`, as JSON or --oneliner.  "
            "[default: ask Slurm]",
            show_default=False,
        ),
    ] = None,
    conf: Annotated[
        str | None,
        typer.Option(
            help="A slurm.conf to take the nodes from instead; a topology.conf beside it is used "
            "too.",
            show_default=False,
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            help="A topology.conf, tree or block.  [default: ask Slurm]", show_default=False
        ),
    ] = None,
    rails: RailsOption = 1,
    oversubscription: OversubscriptionOption = "1",
    gpu: Annotated[
        str, typer.Option(help="The type of GPUs whose type Slurm does not say: v100, a100, …")
    ] = "v100",
    gpu_memory_gb: GpuMemoryOption = None,
    output: OutputOption = STANDARD,
) -> None:
    """Convert the nodes and switches of a Slurm cluster.

    Slurm does not say how many links a node has, nor what the uplinks of switches carry: --rails
    and --oversubscription do.
    """
    from headway.configuration.clos import factors_for, oversubscription_from
    from headway.slurm.clusters import cluster_of
    from headway.slurm.sources import read_nodes, read_topology

    check_outputs([output], [nodes, conf, topology])
    with inputs_read() as read:
        found = read_nodes(nodes, conf)
        fabric, about_fabric = read_topology(topology, nodes, conf)
    check_outputs([output], read)
    factors = oversubscription_from(oversubscription)
    if not fabric.tiers and factors != [1]:
        about_fabric.append("--oversubscription has no effect: the network is flat")
        factors = [1]
    cluster, notes = cluster_of(
        found, fabric, _gpu_type(gpu, gpu_memory_gb), rails, factors_for(fabric.tiers, factors)
    )
    for note in (*about_fabric, *notes):
        print_lines(messages(), note)
    _write(cluster, ["Nodes and switches of a Slurm cluster."], output)


def _gpu_type(name: str, memory_gb: float | None) -> GpuType:
    from dataclasses import replace

    from headway.domain.cluster import gigabytes
    from headway.domain.gpus import gpu_type

    kind = gpu_type(name)
    if memory_gb is None:
        return kind
    return replace(kind, memory_bytes=gigabytes(memory_gb, "gpu_memory_gb"))


def _write(cluster: Cluster, about: list[str], output: str) -> None:
    from headway.configuration.cluster_text import cluster_text

    text = cluster_text(cluster, about)
    with open_output(output) as stream:
        stream.write(text.encode())
    tiers = [
        f"{len(uplinks):,} {tier.name}"
        for tier, uplinks in zip(cluster.all_tiers, cluster.uplinks, strict=False)
    ]
    switches = f"; switches: {', '.join(tiers)}" if tiers else ""
    servers = f"{cluster.servers:,} server{'s' * (cluster.servers > 1)}"
    gpus = f"{cluster.gpus:,} GPU{'s' * (cluster.gpus > 1)}"
    print_lines(messages(), f"{servers} with {gpus}{switches}", soft_wrap=True)
    report_written(output)
