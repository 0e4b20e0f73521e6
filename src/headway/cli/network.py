"""`headway network`."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.console import print_table, report_written, results
from headway.domain.errors import InputError
from headway.files import STANDARD, check_outputs, open_output
from headway.network.allreduce import ALGORITHMS, Link, network_from_link
from headway.text_table import TextTable


def network_command(
    nodes: Annotated[int, typer.Option(help="Servers that take part in an all-reduce.")] = 16,
    alpha_ns: Annotated[float, typer.Option(help="Latency of a link.")] = 20_000,
    beta_ns_per_byte: Annotated[
        float, typer.Option(help="Time per byte on a link (10 Gbit/s: 0.8).")
    ] = 0.8,
    gamma_ns_per_byte: Annotated[float, typer.Option(help="Time to reduce a byte.")] = 0.0,
    eta_ns_per_byte: Annotated[float, typer.Option(help="Contention penalty.")] = 0.0,
    algorithm: Annotated[
        str | None, typer.Option(help="Write this algorithm's network with --toml.")
    ] = None,
    toml: Annotated[
        str | None, typer.Option(help="Write a [network] table to this file, or - for stdout.")
    ] = None,
) -> None:
    """Show the cost of an all-reduce over a link for each algorithm in the paper's table."""
    if (algorithm is None) != (toml is None):
        raise InputError("--algorithm and --toml must be given together.")
    check_outputs([toml])
    link = Link(alpha_ns, beta_ns_per_byte, gamma_ns_per_byte)
    table = TextTable(["algorithm"], ["a (ns)", "b (ns/byte)", "100 MB alone", "100 MB, k = 2"])
    for name in ALGORITHMS:
        model = network_from_link(name, nodes, link, eta_ns_per_byte)
        alone, shared = (model.all_reduce_ns(100 * 2**20, k) / 1e6 for k in (1, 2))
        table.add_row(
            name,
            f"{model.a_ns:,}",
            f"{model.b_ns_per_byte:.6g}",
            f"{alone:,.2f} ms",
            f"{shared:,.2f} ms",
        )
    if algorithm is not None and toml is not None:
        model = network_from_link(algorithm, nodes, link, eta_ns_per_byte)
        lines = [
            f"# {algorithm}, {nodes} nodes: alpha {alpha_ns:g} ns, beta {beta_ns_per_byte:g} and "
            f"gamma {gamma_ns_per_byte:g} ns/byte",
            "[network]",
            f"a_ns = {model.a_ns}",
            f"b_ns_per_byte = {model.b_ns_per_byte!r}",
            f"eta_ns_per_byte = {model.eta_ns_per_byte!r}",
        ]
        with open_output(toml) as stream:
            stream.write(("\n".join(lines) + "\n").encode())
    print_table(results(to_stderr=toml == STANDARD), table)
    report_written(toml)
