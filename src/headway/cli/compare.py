"""`headway compare`."""

from __future__ import annotations

import json as jsons
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.console import (
    AccuracyHint,
    RunsBar,
    messages,
    print_lines,
    print_table,
    report_written,
    results,
)
from headway.cli.options import (
    AccuracyOption,
    ClusterOption,
    ExclusiveOption,
    GpuMemoryOption,
    GpuOption,
    NetworkOption,
    ProfilesOption,
    ThreadsOption,
    files_among,
)
from headway.configuration import cluster_from, network_from
from headway.domain.errors import InputError
from headway.experiments.seeds import parse_seeds, seeds_text
from headway.experiments.wording import ratio_with_bounds, with_margin
from headway.files import STANDARD, check_outputs, inputs_read, open_output
from headway.reports.page import check_page_or_picture, is_page
from headway.results.display import describe_sharing
from headway.text_table import TextTable, small_number

if TYPE_CHECKING:
    from headway.domain.workload import Workload
    from headway.experiments.compare import Comparison
    from headway.network.contention import NetworkModel

PAPER = "paper"


def compare_command(
    workloads: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKLOAD",
            help="Workload files (.csv or .parquet), packaged workloads (muri-1), or `paper` for "
            "workloads drawn as in the paper.",
        ),
    ],
    policies: Annotated[
        str,
        typer.Option(
            help="Policies, separated by commas, such as paper,ff+srsf:1. Each is a preset (paper, "
            "headway), PLACEMENT+SCHEDULER or PLACEMENT+PRIORITY+ADMISSION; @25 at the end sends "
            "buckets of 25 MB. All are compared with the first.",
        ),
    ] = "paper,headway",
    seeds: Annotated[
        str | None,
        typer.Option(
            help="With `paper`: the number of workloads (20: seeds 0 to 19), a range (5:24) or a "
            "list (3,7,11).  [default: 20]",
            show_default=False,
        ),
    ] = None,
    cluster: ClusterOption = "16x4",
    gpu_memory_gb: GpuMemoryOption = None,
    gpu: GpuOption = None,
    exclusive: ExclusiveOption = False,
    profiles: ProfilesOption = None,
    network: NetworkOption = "10gbe",
    accuracy: AccuracyOption = None,
    threads: ThreadsOption = None,
    json: Annotated[
        str | None, typer.Option(help="Write every metric to this file, or - for stdout.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Show the comparison: a .html page, or a .svg, .pdf or .png picture.",
        ),
    ] = None,
) -> None:
    """Compare policies on the same workloads, with 95% intervals.

    Results vary more between workloads than between policies, so policies are compared workload by
    workload. If it is ended early, what has finished is shown; --json is written only when all has.
    """
    if output is not None:
        check_page_or_picture(output)
    files = [name for name in workloads if name != PAPER]
    if len(set(files)) < len(files):
        raise InputError("give every workload once.")
    check_outputs(
        [json, output], [*files, *files_among(cluster, network, policies, *(profiles or ()))]
    )
    where = cluster_from(cluster, gpu_memory_gb, gpu, exclusive)
    link = network_from(network)
    with inputs_read() as read:
        jobs, draws = _workloads(workloads, seeds, profiles or ())
    check_outputs([json, output], read)

    from headway.engine.run import can_be_sampled
    from headway.experiments.compare import compare
    from headway.policies.policy_set import PolicySet

    names = [name.strip() for name in policies.split(",")]
    chosen = [PolicySet.parse(name) for name in names if name]
    setting = f"{_described(workloads, draws)} on {where}"
    sharing = describe_sharing(sum(one.exclusive_jobs(where) for one in jobs), sum(map(len, jobs)))
    hint = None
    if accuracy is None and any(
        can_be_sampled(workload, policy) for workload in jobs for policy in chosen
    ):
        hint = AccuracyHint()
    parts: list[Comparison] = []
    try:
        with RunsBar(messages()) as bar:
            found = compare(
                jobs,
                chosen,
                where,
                network=link,
                seeds=draws,
                accuracy=accuracy,
                threads=threads,
                started=bar.start,
                done=bar.step,
                progress=hint,
                ended_early=parts.append,
            )
    except BaseException:
        for part in parts:
            _show(part, [setting, sharing], link, output, to_stderr=json == STANDARD)
        raise
    if json is not None:
        with open_output(json) as stream:
            stream.write(jsons.dumps(found.to_dict(), indent=2).encode() + b"\n")
    _show(found, [setting, sharing], link, output, to_stderr=json == STANDARD)
    report_written(json, output)


def _show(
    found: Comparison,
    settings: list[str],
    network: NetworkModel,
    output: str | None,
    to_stderr: bool,
) -> None:
    """Draw a comparison if there is an output for it, and print it."""
    setting, sharing = settings
    if output is not None:
        _write_figures(found, output, f"{setting}; {sharing}")
        if found.missing:
            report_written(output)
    console = results(to_stderr)
    print_lines(console, setting, f"network {network}", sharing, "")
    if found.missing:
        print_lines(console, found.missing, "", style="bold")
    print_table(console, _means(found))
    if len(found.policies) > 1:
        console.print()
        print_table(console, _against_first(found))
    console.print("\nkWh × h: energy times average JCT. " + found.about_intervals)


def _write_figures(found: Comparison, path: str, settings: str) -> None:
    if is_page(path):
        from headway.experiments.compare_page import write_comparison_page

        write_comparison_page(found, path, settings)
    else:
        from headway.figure_style import house_style, save_figure

        with house_style():
            save_figure(found.plot(), path)


def _workloads(
    names: list[str], seeds: str | None, profiles: Sequence[str]
) -> tuple[list[Workload], list[int]]:
    """Return the workloads, and a seed for each."""
    from headway.workload.sources import workload_from

    if PAPER in names:
        if len(names) > 1:
            raise InputError("give either `paper` or files (a file of that name is ./paper).")
        from headway.experiments.compare import USUAL_SEEDS

        draws = list(parse_seeds(seeds or str(USUAL_SEEDS), fewest=1))
        return [workload_from(PAPER, seed=seed, profiles=profiles) for seed in draws], draws
    if seeds is not None:
        raise InputError("--seeds only applies to `paper`.")
    return [workload_from(name, profiles=profiles) for name in names], list(range(len(names)))


def _described(names: list[str], draws: list[int]) -> str:
    if names == [PAPER]:
        few = f"seed {draws[0]}" if len(draws) == 1 else f"seeds {seeds_text(draws)}"
        return f"The paper's workload, {few},"
    return names[0] if len(names) == 1 else f"{len(names)} workloads"


def _means(found: Comparison) -> TextTable:
    table = TextTable(
        ["mean" if len(found.workloads) > 1 else ""],
        ["average JCT (s)", "median", "95th pct.", "GPU use", "kWh", "kWh × h"],
    )
    for policy in found.policies:
        table.add_row(
            policy,
            with_margin(found.mean(policy), digits=1),
            *(
                f"{found.mean(policy, metric).value:,.1f}"
                for metric in ("median_jct_s", "p95_jct_s")
            ),
            f"{found.mean(policy, 'average_gpu_utilization').value:.1%}",
            small_number(found.mean(policy, "energy_j").value / 3.6e6),
            small_number(found.mean(policy, "energy_delay_js").value / 3.6e6 / 3600),
        )
    return table


def _against_first(found: Comparison) -> TextTable:
    count = len(found.workloads)
    table = TextTable(
        ["average JCT against the first's"], ["ratio", "difference (s)", f"lower, of {count}"]
    )
    for policy in found.policies[1:]:
        ratio, difference = found.ratio(policy), found.difference(policy)
        table.add_row(
            policy,
            ratio_with_bounds(ratio),
            with_margin(difference, digits=1, sign="+"),
            f"{found.wins(policy)}",
        )
    return table
