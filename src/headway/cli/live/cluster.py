"""`headway nodes`, `drain` and `policy`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from headway.cli.console import print_lines, print_table, results
from headway.cli.live.client_options import (
    CertificateOption,
    FolderOption,
    ServerOption,
    TokenOption,
    connect,
)
from headway.text_table import TextTable, printable


def nodes_command(
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Show every node: jobs on its slots, messages in flight, and what waits there and why."""
    nodes = connect(folder, server, token_file, certificate).nodes()
    console = results()
    print_table(console, nodes_table(nodes))
    reasons = {one["job_id"]: one["why"] for node in nodes for one in node["waiting"]}
    for job, why in reasons.items():
        print_lines(console, f"job {job}: {why}")


def nodes_table(nodes: list[dict[str, Any]]) -> TextTable:
    """Return a table of nodes: the jobs sending and waiting there, and the jobs on each slot.

    A star marks the job whose turn it is to compute.
    """
    table = TextTable(
        ["node"], ["slots", "free", "MB each"], ["sending", "waiting", "jobs by slot"]
    )
    for node in nodes:
        slots = [
            ",".join(job + "*" * (job == slot["computing"]) for job in slot["jobs"]) or "."
            for slot in node["slots"]
        ]
        table.add_row(
            node["node"] + (" (draining)" if node["draining"] else ""),
            str(len(slots)),
            str(slots.count(".")),
            f"{node['memory_bytes'] // 2**20:,}",
            _named(one["job_id"] for one in node["messages"]),
            _named(one["job_id"] for one in node["waiting"]),
            " ".join(slots),
        )
    return table


def _named(jobs: Iterable[str]) -> str:
    """Return jobs by their ids, which a reader cannot take for a number of jobs."""
    ids = list(jobs)
    return " ".join(["job" if len(ids) == 1 else "jobs", *ids]) if ids else "-"


def drain_command(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")],
    undo: Annotated[bool, typer.Option("--undo", help="Allow new jobs on it again.")] = False,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Place no new jobs on a node; jobs already on it continue."""
    connect(folder, server, token_file, certificate).drain(node, not undo)
    typer.echo(printable(f"node {node} {'accepts jobs again' if undo else 'is draining'}"))


def policy_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The policy to switch to, such as paper.",
            show_default=False,
        ),
    ] = None,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Show the policy of the running scheduler, or switch it.

    `headway policies` lists what there is.
    """
    client = connect(folder, server, token_file, certificate)
    typer.echo(printable(client.policy() if name is None else client.set_policy(name)))
