"""`headway graph show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import print_lines, print_table, report_written, results, working
from headway.cli.options import NetworkOption, files_among
from headway.durations import milliseconds_text
from headway.files import STANDARD, check_outputs
from headway.text_table import TextTable

if TYPE_CHECKING:
    from headway.reports.iteration import Iteration


def show_command(
    graph: Annotated[
        str, typer.Argument(metavar="GRAPH", help="A graph's .json file; - is standard input.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PICTURE",
            help="Draw the iteration to this .svg, .pdf or .png file, or on a .html page.",
        ),
    ] = None,
    network: NetworkOption = "10gbe",
    gpus_per_server: Annotated[int, typer.Option(help="Ranks on each server, in their order.")] = 1,
) -> None:
    """Show what a graph sends, how long one iteration takes alone, and its critical path."""
    from headway.reports.page import check_page_or_picture

    check_outputs([output], [graph, *files_among(network)])
    if output is not None:
        check_page_or_picture(output)

    from headway.reports.graph_text import totals_table
    from headway.reports.iteration import path_table, run_alone
    from headway.workload.graphs import read_graph

    with working(f"Simulating {graph}"):
        found = read_graph(graph)
        iteration = run_alone(found, network, gpus_per_server)
    name = "standard input" if graph == STANDARD else graph
    tasks, messages = found.expanded.tasks, found.message_count
    if output is not None:
        from headway.reports.iteration_picture import write_iteration

        with working(f"Drawing {output}"):
            title = (
                f"{Path(name).name}: one iteration alone on {network}, "
                f"{milliseconds_text(iteration.length_ns)} ms"
            )
            write_iteration(iteration, title, output)
    console = results()
    print_lines(
        console,
        f"{name}: {_counted(found.ranks, 'rank')}, {_counted(tasks, 'task')}, "
        f"{_counted(messages, 'message')}",
    )
    console.print()
    if messages:
        print_table(console, totals_table(found))
        console.print()
    print_table(console, _summary(iteration, network))
    console.print()
    print_table(console, path_table(iteration))
    report_written(output)


def _summary(iteration: Iteration, network: str) -> TextTable:
    """Return the length of an iteration, and what its critical path consists of."""
    servers = _counted(iteration.servers, "server")
    gpus = _counted(iteration.gpus_per_server, "GPU")
    each = " each" if iteration.servers > 1 else ""
    table = TextTable(["one iteration"], ["ms"], [""])
    table.add_row("if messages took no time", milliseconds_text(iteration.graph.unit_ns()), "")
    table.add_row(
        "alone",
        milliseconds_text(iteration.length_ns),
        f"on {network}, {servers} with {gpus}{each}",
    )
    for part, time_ns in iteration.path_parts_ns.items():
        table.add_row(f"  {part}", milliseconds_text(time_ns), "of the critical path")
    return table


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
