"""`headway validate`."""

from __future__ import annotations

import json as jsons
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import (
    messages,
    print_lines,
    print_table,
    report_written,
    results,
    working,
)
from headway.cli.options import files_among
from headway.files import STANDARD, check_outputs, open_output
from headway.text_table import TextTable

if TYPE_CHECKING:
    from headway.experiments.validation.outcome import Errors, Prediction

_WORST = 10
_LONGEST_NAME = 12


def validate_command(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="CSV files of measured iterations.  [default: those of vTrain and of Megatron-LM "
            "on A100s and of Hugging Face's models on an H200, which come with Headway]",
            show_default=False,
        ),
    ] = None,
    gpu: Annotated[
        str,
        typer.Option(
            help="Type of GPU, or a file of `headway calibrate gpu`, of rows that name none."
        ),
    ] = "a100",
    network: Annotated[
        str | None,
        typer.Option(
            help="The network between servers, as for `simulate`.  [default: the usual one of the "
            "GPU, for a100 vTrain's 4 x 200 Gbit/s InfiniBand]",
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        str | None, typer.Option(help="Write the predictions to this file, or - for stdout.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Draw them: a .svg, .pdf or .png picture."
        ),
    ] = None,
) -> None:
    """Compare predicted iterations of large models with measured ones.

    Columns of FILE: gpus, global_batch, micro_batch, hidden, heads, layers, sequence, tensor,
    data, pipeline and iteration_ms. Rows without a measured iteration_ms are predicted all the
    same. Optional, for the model (by default a GPT): ffn, gated, kv_heads, head_size, vocabulary,
    tied, precision, experts, experts_per_token, shared_ffn, dense_layers, dense_ffn; for the plan:
    recompute, sequence_parallel, interleave, zero, expert, overlap, attention (fused or unfused,
    the default), gpus_per_server (8), gpu (a100, h200, …). Other columns are ignored.
    """
    from headway.configuration import network_from
    from headway.experiments.validation.rows import all_shipped_files, read_measured
    from headway.figure_style import check_picture
    from headway.llm.clusters import usual_network
    from headway.llm.gpu_file import gpu_from

    if output is not None:
        check_picture(output)
    check_outputs([json, output], [*(files or ()), *files_among(network, gpu)])
    paths = files or [str(path) for path in all_shipped_files()]
    kind = gpu_from(gpu)
    link = None if network is None else network_from(network)
    remarks: list[str] = []
    rows = [
        row
        for path in paths
        for row in read_measured(path, gpu_bytes=kind.memory_bytes, report=remarks.append)
    ]
    print_lines(messages(), *remarks)

    from headway.experiments.validation.outcome import (
        by_file,
        by_model,
        by_plan,
        errors_by,
        gpus_of,
        measured,
        predict,
        worst,
    )

    with working(f"Predicting {len(rows):,} iteration{'s' * (len(rows) != 1)}"):
        found = predict(rows, kind, link)
    compared = measured(found)
    kinds = list(gpus_of(rows, kind).values())
    names = " and ".join(dict.fromkeys(one.name for one in kinds))
    title = f"{len(rows):,} iteration{'s' * (len(rows) != 1)} on {names}"
    if json is not None:
        content = {"rows": [_row(one) for one in found]}
        with open_output(json) as stream:
            stream.write(jsons.dumps(content, indent=2).encode() + b"\n")
    if output is not None and compared:
        from headway.experiments.validation.figure import validation_figure
        from headway.figure_style import save_figure

        save_figure(validation_figure(compared, f"{title}: predicted and measured"), output)
    console = results(to_stderr=json == STANDARD)
    print_lines(console, title)
    for one in kinds:
        estimate = " (an estimate)" if one.estimate else ""
        between = link or network_from(usual_network(one.name))
        print_lines(console, *textwrap.wrap(f"{one.name}{estimate}: network {between}", 80))
    console.print()
    if not compared:
        print_table(console, _rows_table(found, "prediction"))
        report_written(json)
        if output is not None:
            problem = f"{output}: not drawn, since no row has a measured time"
            print_lines(messages(), problem, soft_wrap=True)
        return
    if len(compared) < len(found):
        print_lines(console, f"{len(found) - len(compared):,} without a measured time", "")
    for label, group in (("file", by_file), ("model", by_model), ("plan", by_plan)):
        print_table(console, _table(label, errors_by(compared, group)))
        console.print()
    print_table(console, _rows_table(worst(compared, _WORST), "worst"))
    report_written(json, output)


def _row(one: Prediction) -> dict[str, float | int | str | None]:
    time_ns = one.row.case.time_ns
    return {
        "file": one.row.source,
        "line": one.row.line,
        "measured_ms": None if time_ns is None else time_ns / 1e6,
        "predicted_ms": one.predicted_ns / 1e6,
    }


def _table(label: str, groups: Sequence[Errors]) -> TextTable:
    table = TextTable([label], ["rows", "mean error", "median", "95th pct.", "bias", "tau"])
    for one in groups:
        table.add_row(
            one.name,
            f"{one.rows}",
            f"{one.mean:.1%}",
            f"{one.median:.1%}",
            f"{one.p95:.1%}",
            f"{one.bias:+.1%}",
            "" if one.tau is None else f"{one.tau:.2f}",
        )
    return table


def _rows_table(predictions: Sequence[Prediction], label: str) -> TextTable:
    table = TextTable([label], ["measured (s)", "predicted", "error"], ["line"])
    for one in predictions:
        row, compared = one.row, one.row.case.time_ns is not None
        table.add_row(
            f"{row.model_name} {row.degrees} mb{row.plan.micro_batch}",
            f"{row.time_ns / 1e9:,.3f}" if compared else "",
            f"{one.predicted_ns / 1e9:,.3f}",
            f"{one.error:+.1%}" if compared else "",
            f"{_short(row.source)}:{row.line}",
        )
    return table


def _short(path: str) -> str:
    """Return the end of a file's name without its suffix."""
    name = path.rsplit("/", 1)[-1].removesuffix(".csv")
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"
