"""`headway graph import`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import ReadingBar, messages, print_lines, print_table, report_written
from headway.domain.gpus import gpu_type
from headway.durations import milliseconds_text
from headway.files import STANDARD, check_outputs, inputs_read

if TYPE_CHECKING:
    from headway.graphs.imports.imported import Imported

app = typer.Typer(
    help="Import an iteration's graph from the file of another simulator.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OutputOption = Annotated[
    str, typer.Option("--output", "-o", help="The graph's .json file, or - for stdout.")
]


@app.command()
def chakra(
    folder: Annotated[
        str,
        typer.Argument(metavar="FOLDER", help="Folder with a file NAME.RANK.et for each rank."),
    ],
    output: OutputOption = STANDARD,
    name: Annotated[
        str | None, typer.Option(help="NAME of the trace, if the folder has several.")
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="JSON file with the ranks of each process group.  [default: NAME.json in the "
            "folder]",
            show_default=False,
        ),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="Run a trace of one rank on this many ranks.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="GPU type to cost computations without a time on, such as h100."),
    ] = None,
    flops: Annotated[
        float | None,
        typer.Option(metavar="TFLOPS", help="Its peak, instead of the type's fp32 peak."),
    ] = None,
    memory_bandwidth: Annotated[
        float | None,
        typer.Option(metavar="GB/S", help="Its memory bandwidth, instead of the type's."),
    ] = None,
    element_bytes: Annotated[
        int | None,
        typer.Option(
            help="Bytes that sizes in the trace count.  [default: 4 in traces of STG, else 1]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Import a Chakra execution trace, as ASTRA-sim reads it.

    What the trace lacks is guessed; what is dropped, guessed or merged is listed on standard error.
    """
    from headway.graphs.imports.chakra import import_chakra
    from headway.graphs.imports.roofline import roofline

    check_outputs([output], [groups])
    cost = roofline(gpu, flops, memory_bandwidth)
    with ReadingBar(messages()) as bar, inputs_read() as read:
        imported = import_chakra(
            folder,
            name=name,
            groups=groups,
            ranks=ranks,
            element_bytes=element_bytes,
            cost=cost,
            progress=bar,
        )
    check_outputs([output], read)
    _write(imported, output, None if gpu is None else gpu_type(gpu).name)


@app.command()
def simai(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="SimAI's workload text; - is standard input.")
    ],
    output: OutputOption = STANDARD,
    ranks: Annotated[
        int | None, typer.Option(help="Number of GPUs, if the header has no all_gpus.")
    ] = None,
) -> None:
    """Import SimAI's workload text, on all GPUs of its header.

    What is dropped, guessed or merged is listed on standard error.
    """
    from headway.graphs.imports.simai import import_simai

    check_outputs([output], [file])
    _write(import_simai(file, ranks=ranks), output)


def _write(imported: Imported, output: str, measured_on: str | None = None) -> None:
    """Write the graph, and say what it is and what belongs beside it in a workload's row."""
    from headway.reports.graph_text import totals_table
    from headway.workload.graphs import write_graph

    write_graph(imported.graph, output)
    console = messages()
    print_lines(console, *imported.notes)
    if imported.graph.messages:
        console.print()
        print_table(console, totals_table(imported.graph))
        console.print()
    time = milliseconds_text(imported.graph.unit_ns())
    print_lines(console, f"An iteration takes {time} ms if messages take no time.")
    beside = "" if measured_on is None else f", measured_on {measured_on}"
    print_lines(console, f"In a workload: gpus {imported.graph.ranks:,}{beside}")
    report_written(output)
