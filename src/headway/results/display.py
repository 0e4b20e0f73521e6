"""Results as text and as HTML for notebooks."""

from __future__ import annotations

import textwrap
from html import escape
from typing import TYPE_CHECKING

from headway.durations import duration_text
from headway.results.time_parts import shown_parts_ns
from headway.text_table import TextTable, small_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.results.schema import AnyResult, Summary

_SHOWN_JOBS = 10
_COLUMNS = 80
_INDENT = "\u2003"
_LONG_S = 600
"""From this many seconds on, a time is also given in minutes, hours or days."""


def describe_settings(result: AnyResult) -> list[str]:
    """Return lines that say what was simulated, and how."""
    settings, source = result.settings, result.origin
    buckets = ""
    if settings.bucket_bytes is not None:
        where = " where jobs share the network" if settings.buckets_if_shared else ""
        buckets = f", buckets of {settings.bucket_bytes / 2**20:g} MB{where}"
    count = len(result.gpus)
    jobs = f"placement {settings.placement}, priority {settings.priority},"
    messages = f"admission {settings.admission}{buckets}"
    policies = [f"{jobs} {messages}"]
    if len(policies[0]) > _COLUMNS:
        policies = [jobs, messages]
    lines = [
        f"{count:,} job{'s' * (count != 1)}{'' if source is None else f' from {source}'} "
        f"on {settings.cluster}",
        *policies,
        f"network {settings.network}",
        describe_sharing(result.exclusive_jobs, count),
    ]
    lines = [part for line in lines for part in _wrapped(line)]
    return lines + describe_estimates(result.estimated)


def describe_sharing(exclusive: int, jobs: int) -> str:
    """Return a line that says whether jobs share GPUs, given how many of them do not."""
    sharing = "share GPUs if their memory fits"
    if exclusive == 0:
        return f"jobs {sharing}"
    if exclusive == jobs:
        return "every job has its GPUs to itself"
    some = "1 of" if exclusive == 1 else f"{exclusive:,} of"
    have = "has its GPUs to itself" if exclusive == 1 else "have their GPUs to themselves"
    return f"{some} {jobs:,} jobs {have}; others {sharing}"


def _wrapped(line: str) -> list[str]:
    """Divide a line at spaces where it is too long; names stay whole."""
    if len(line) <= _COLUMNS:
        return [line]
    return textwrap.wrap(line, _COLUMNS, break_long_words=False, break_on_hyphens=False)


def describe_estimates(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return lines that name the models with estimated times on each GPU type, or nothing."""
    by_type: dict[str, list[str]] = {}
    for model, gpu in pairs:
        by_type.setdefault(gpu, []).append(model or "jobs without a model")
    parts = [f"{', '.join(models)} on {gpu}" for gpu, models in sorted(by_type.items())]
    return _wrapped(f"times estimated, not measured: {'; '.join(parts)}") if parts else []


def describe_summary(result: AnyResult) -> list[tuple[str, str, str]]:
    """Return the summary as triples of label, value and, for long times, the value in words."""
    summary = result.summary
    parts_ns = shown_parts_ns(result.parts_ns) if result.has_parts else {}
    parts = [_seconds(f"  {name}", float(part.mean()) / 1e9) for name, part in parts_ns.items()]
    return [
        _seconds("average JCT", summary.average_jct_s, summary.average_jct_margin_s),
        *parts,
        _seconds("median JCT", summary.median_jct_s),
        _seconds("95th percentile JCT", summary.p95_jct_s),
        _seconds("makespan", summary.makespan_s, summary.makespan_margin_s),
        ("average GPU utilization", f"{summary.average_gpu_utilization:.2%}", ""),
        ("GPU energy", f"{small_number(summary.energy_j / 3.6e6)} kWh", ""),
        ("tasks simulated", f"{summary.simulated_tasks:,}", _skipped(summary)),
        ("engine time", f"{summary.wall_s:.2f} s", ""),
    ]


def _skipped(summary: Summary) -> str:
    """Say how many tasks were skipped, exactly or estimated, if any were."""
    skipped = [f"{summary.skipped_tasks:,} skipped exactly"] if summary.skipped_tasks else []
    sampled = [f"{summary.sampled_share:.0%} sampled"] if summary.sampled_share else []
    return ", ".join(skipped + sampled)


def _seconds(label: str, time_s: float, margin_s: float = 0.0) -> tuple[str, str, str]:
    words = duration_text(time_s) if time_s >= _LONG_S else ""
    if margin_s:
        return label, f"{time_s:,.2f} s", f"± {margin_s:,.2f} s (95%)"
    return label, f"{time_s:,.2f} s", words


def describe_accuracy(result: AnyResult) -> list[str]:
    """Return a line if nothing was sampled, or the interval is wider than wanted; or nothing."""
    wanted, summary = result.settings.accuracy, result.summary
    if wanted is None:
        return []
    if not summary.sampled_share:
        return ["Nothing was sampled: this result is exact."]
    if summary.average_jct_margin_s <= wanted * summary.average_jct_s:
        return []
    margin = summary.average_jct_margin_s / summary.average_jct_s
    return [
        f"The interval, ±{100 * margin:.3g}%, is wider than the {100 * wanted:g}% asked for: small "
        "changes decide which job runs where. Only an exact run is certain."
    ]


def result_text(result: AnyResult) -> str:
    """Return settings and summary as plain text."""
    table = [line.text for line in summary_table(result).lines()]
    notes = [f"\n{line}" for line in describe_accuracy(result)]
    return "\n".join([*describe_settings(result), "", *table, *notes])


def summary_table(result: AnyResult) -> TextTable:
    """Return the summary as a table."""
    table = TextTable([""], [""], [""])
    for row in describe_summary(result):
        table.add_row(*row)
    return table


def result_html(result: AnyResult) -> str:
    """Return settings, summary and the first jobs as HTML."""
    lines = "<br>".join(escape(line) for line in describe_settings(result))
    rows = "".join(
        f'<tr><td style="text-align:left">{escape(label).replace("  ", _INDENT)}</td>'
        f"<td>{escape(value)}</td><td>{escape(words)}</td></tr>"
        for label, value, words in describe_summary(result)
    )
    notes = "".join(f"<p>{escape(line)}</p>\n" for line in describe_accuracy(result))
    return (
        f"<div><p>{lines}</p>\n<table>{rows}</table>\n{notes}"
        f"<p>First jobs of {len(result.gpus):,}:</p>\n{_first_jobs(result)}</div>"
    )


def _first_jobs(result: AnyResult) -> str:
    table = result.jobs.head(_SHOWN_JOBS)
    header = (
        "job",
        "model",
        "GPUs",
        "iterations",
        "arrival [s]",
        "waiting [s]",
        "JCT [s]",
        "energy [kJ]",
    )
    head = "".join(f"<th>{escape(title)}</th>" for title in header)
    body = "".join(
        "<tr>"
        f"<td>{escape(job['job_id'])}</td><td>{escape(job['model'])}</td>"
        f"<td>{job['gpu_count']}</td><td>{job['iterations']:,}</td>"
        f"<td>{job['arrival_ns'] / 1e9:,.1f}</td><td>{job['waiting_s']:,.1f}</td>"
        f"<td>{job['jct_s']:,.1f}</td><td>{job['energy_j'] / 1e3:,.1f}</td>"
        "</tr>"
        for job in table.iter_rows(named=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
