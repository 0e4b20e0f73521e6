"""A run, or a comparison of policies, as one HTML page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from headway.figure_style import house_style
from headway.files import open_output
from headway.reports.page import Picture, Section, html_page
from headway.reports.tables import Table
from headway.results.display import describe_accuracy, describe_settings, describe_summary
from headway.results.plots import contention_by_server_figure, overview_figure
from headway.results.time_parts import parts_ns, shown_parts_ns
from headway.version import __version__

if TYPE_CHECKING:
    from headway.results.schema import Result

_SLOWEST = 20


def write_run_page(result: Result, path: str) -> None:
    """Write a page about a run: figures, summary, and the jobs that took longest."""
    with house_style():
        page = html_page(
            f"Simulation of {result.workload.source or 'a workload'}",
            "<br>".join(map(escape, describe_settings(result)))
            + f"<br>simulated by Headway {escape(__version__)}",
            [_figures(result), _summary(result), _slowest(result)],
        )
    with open_output(path) as stream:
        stream.write(page.encode())


def _figures(result: Result) -> Section:
    content: list[str | Table | Picture] = [
        Picture(
            "overview",
            overview_figure(result),
            "Completion times, GPUs that hold a job, where the time of jobs of each size goes, and "
            "the queue.",
        )
    ]
    if result.settings.cluster.servers > 1:
        content.append(
            Picture(
                "contention",
                contention_by_server_figure(result),
                "The time that jobs lost because they shared GPUs or the network, divided evenly "
                "among the servers of each job.",
            )
        )
    return Section("figures", "Figures", content)


def _summary(result: Result) -> Section:
    rows = [
        (label.replace("  ", "– "), *values)
        for label, *values in describe_summary(result)
        if label != "engine time"
    ]
    return Section(
        "summary",
        "Summary",
        [
            Table("summary", "The run", ("", "", ""), rows),
            *map(escape, describe_accuracy(result)),
            "The average completion time (JCT) is the sum of its parts: waiting in the queue, "
            "computing and sending as if no message met another, own messages, what meeting "
            "messages of the same job adds, and contention, what sharing GPUs and the network with "
            "other jobs added.",
        ],
    )


def _with_margin(time_s: float, margin_s: float) -> str:
    return f"{time_s:,.1f} ± {margin_s:,.1f}" if margin_s else f"{time_s:,.1f}"


def _slowest(result: Result) -> Section:
    labels = list(shown_parts_ns(parts_ns(result)))
    names = [label.replace(" ", "_") for label in labels]
    parts = result.time_parts.select(f"{name}_s" for name in names if name != "waiting")
    jobs = result.jobs.hstack(parts)
    rows = [
        [
            job["job_id"],
            job["model"],
            f"{job['gpu_count']:,}",
            _with_margin(job["jct_s"], job["jct_margin_s"]),
            *(f"{job[f'{name}_s']:,.1f}" for name in names),
        ]
        for job in jobs.sort("jct_s", descending=True).head(_SLOWEST).iter_rows(named=True)
    ]
    header = ("job", "model", "GPUs", "JCT [s]", *(f"{part} [s]" for part in labels))
    caption = f"The {len(rows):,} jobs that took longest, of {len(jobs):,}"
    return Section(
        "jobs",
        "Slowest jobs",
        [
            Table("jobs", caption, header, rows, texts=2),
            "<code>headway explain</code> shows which other jobs one of them waited for.",
        ],
    )
