"""`headway nodes`, `drain` and `policy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.console import figures_table, results
from headway.cli.live.finding import (
    CertificateOption,
    FolderOption,
    ServerOption,
    TokenOption,
    client_of,
)

if TYPE_CHECKING:
    from rich.table import Table


def nodes_command(
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Show every node: who holds its slots, the messages on it, and who waits there and why."""
    nodes = client_of(folder, server, token_file, certificate).nodes()
    results(uncut=True).print(nodes_table(nodes))
    reasons = {one["job_id"]: one["why"] for node in nodes for one in node["waiting"]}
    for job, why in reasons.items():
        typer.echo(f"job {job}: {why}")


def nodes_table(nodes: list[dict[str, Any]]) -> Table:
    """Return a table of nodes: whose all-reduces they send and whose wait, and who holds each slot.

    A star marks the job whose turn it is to compute.
    """
    table = figures_table("node", "slots", "free", "MB each", "sending", "waiting")
    table.add_column("held by", no_wrap=True)
    for node in nodes:
        held = [
            ",".join(job + "*" * (job == slot["computing"]) for job in slot["jobs"]) or "."
            for slot in node["slots"]
        ]
        messages = " ".join(f"{one['job_id']}" for one in node["messages"])
        waiting = " ".join(one["job_id"] for one in node["waiting"])
        table.add_row(
            node["node"] + (" (drains)" if node["draining"] else ""),
            str(len(held)),
            str(held.count(".")),
            f"{node['memory_bytes'] // 2**20:,}",
            messages or "-",
            waiting or "-",
            " ".join(held),
        )
    return table


def drain_command(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")],
    undo: Annotated[bool, typer.Option("--undo", help="Give it jobs again.")] = False,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Give a node no new jobs; those on it go on."""
    client_of(folder, server, token_file, certificate).drain(node, not undo)
    typer.echo(f"node {node} gets {'jobs again' if undo else 'no new jobs'}")


def policy_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The policy that is to decide from now on, such as paper.",
            show_default=False,
        ),
    ] = None,
    folder: FolderOption = None,
    server: ServerOption = None,
    token_file: TokenOption = None,
    certificate: CertificateOption = None,
) -> None:
    """Show the policy that decides, or choose another."""
    client = client_of(folder, server, token_file, certificate)
    typer.echo(client.policy() if name is None else client.choose_policy(name))
