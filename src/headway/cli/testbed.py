"""`headway testbed`: up, status, exec, down."""

from __future__ import annotations

import os
import shutil
from typing import Annotated

import typer

from headway import testbed as testbeds
from headway.cli.console import print_table, results
from headway.domain.errors import InputError, shown
from headway.testbed import Status, Testbed
from headway.testbed.system import check_prerequisites
from headway.text_table import TextTable, printable

app = typer.Typer(
    help="Emulate hosts on this machine, with links of a chosen rate. Needs root.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DEFAULT = Testbed()

NameOption = Annotated[str, typer.Option(help="Name of the testbed: 1 to 16 of a-z, 0-9 and -.")]


@app.command()
def up(
    hosts: Annotated[int, typer.Option(help="Number of hosts: 2 to 64.")] = DEFAULT.hosts,
    rate_mbit: Annotated[
        int, typer.Option(help="Rate of each host's link in each direction: 1 to 10000 Mbit/s.")
    ] = DEFAULT.rate_mbit,
    eta: Annotated[
        float, typer.Option(help="Contention penalty, as a fraction of the cost of a byte.")
    ] = DEFAULT.eta,
    name: NameOption = DEFAULT.name,
) -> None:
    """Create a testbed, unless it is up already with the same settings."""
    check_prerequisites()
    testbed = Testbed(name, hosts, rate_mbit, eta)
    made = testbeds.up(testbed)
    typer.echo(f"testbed {name} is up{'' if made else ' already'}: {testbed}")


@app.command()
def status(
    name: Annotated[
        str | None, typer.Option(help="Name of the testbed.  [default: all]", show_default=False)
    ] = None,
) -> None:
    """Show hosts, addresses, rates, processes and problems."""
    found = testbeds.statuses() if name is None else [testbeds.status(name)]
    if not found:
        typer.echo("no testbed is up")
    for index, one in enumerate(found):
        if index:
            typer.echo()
        _show(one)


def _show(status: Status) -> None:
    testbed = status.testbed
    health = "healthy" if status.healthy else "not healthy (run up again to repair it)"
    typer.echo(f"testbed {testbed.name}: {testbed}, {health}")
    for problem in status.problems:
        typer.echo(printable(f"  {problem}"))
    table = TextTable(["host", "address"], ["sends Mbit/s", "receives Mbit/s", "processes"])
    for host in status.hosts:
        rates = (
            "-" if rate is None else f"{rate:,.6g}"
            for rate in (host.sends_mbit, host.receives_mbit)
        )
        table.add_row(str(host.host), host.address, *rates, str(len(host.pids)))
    print_table(results(), table)


@app.command(
    "exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
def execute(
    host: Annotated[int, typer.Argument(help="The host's number, from 1.")],
    command: Annotated[list[str], typer.Argument(help="Command to run, with its arguments.")],
    name: NameOption = DEFAULT.name,
) -> None:
    """Run a command in a host, with its exit code."""
    testbed = testbeds.find(name)
    if testbed is None:
        raise InputError(f"there is no testbed {shown(name)}: create it with headway testbed up.")
    environment = os.environ | testbed.environment(host)
    if shutil.which(command[0]) is None:
        raise InputError(f"command {shown(command[0])} not found.")
    words = testbeds.command(testbed, host, command)
    os.execvpe(words[0], words, environment)


@app.command()
def down(
    name: Annotated[
        str | None,
        typer.Option(help="Name of the testbed.  [default: default]", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all testbeds.")] = False,
) -> None:
    """End all processes in a testbed and remove it."""
    if everything and name is not None:
        raise InputError("--all and --name cannot be combined.")
    chosen = testbeds.names() if everything else [name or DEFAULT.name]
    if not chosen:
        typer.echo("no testbed is up")
    for one in chosen:
        removed = testbeds.down(one)
        typer.echo(f"testbed {one} is down{'' if removed else ' already'}")
