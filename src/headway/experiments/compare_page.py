"""A comparison of policies as one HTML page."""

from __future__ import annotations

from html import escape

from headway.experiments.compare import METRICS, Comparison
from headway.experiments.statistics import Estimate
from headway.experiments.wording import ratio_with_bounds, with_margin
from headway.figure_style import house_style
from headway.files import open_output
from headway.reports.page import Picture, Section, html_page
from headway.reports.tables import Table
from headway.version import __version__

_TITLES = {
    "average_jct_s": ("average JCT [s]", 1.0, 1),
    "median_jct_s": ("median JCT [s]", 1.0, 1),
    "p95_jct_s": ("95th-percentile JCT [s]", 1.0, 1),
    "makespan_s": ("makespan [s]", 1.0, 1),
    "average_gpu_utilization": ("GPU utilization [%]", 0.01, 1),
    "energy_j": ("energy [kWh]", 3.6e6, 2),
    "energy_delay_js": ("energy × average JCT [kWh × h]", 3.6e6 * 3600, 2),
}
"""The title of each metric, the size of its unit, and how many digits to show."""


def write_comparison_page(found: Comparison, path: str, settings: str) -> None:
    """Write a page about a comparison: a figure, all metrics, and the ratios to the first."""
    sections = [
        Section("figure", "Average JCT", [_picture(found)]),
        Section("metrics", "All metrics", [_means(found)]),
    ]
    if len(found.policies) > 1:
        sections.append(Section("ratios", f"Ratios to {found.policies[0]}", [_ratios(found)]))
    missing = f"<strong>{escape(found.missing)}</strong> " if found.missing else ""
    with house_style():
        page = html_page(
            "Comparison of policies",
            f"{missing}{escape(settings)}; by Headway {escape(__version__)}. "
            f"{found.about_intervals}",
            sections,
        )
    with open_output(path) as stream:
        stream.write(page.encode())


def _picture(found: Comparison) -> Picture:
    caption = "(a) Average completion time. (b) Its ratio to the first policy's; left of 1: faster."
    return Picture("comparison", found.plot(), caption)


def _means(found: Comparison) -> Table:
    header = ("policy", *(_TITLES[metric][0] for metric in METRICS))
    rows = [
        [policy, *(_mean_text(found.mean(policy, metric), metric) for metric in METRICS)]
        for policy in found.policies
    ]
    return Table("metrics", "Means over the workloads", header, rows)


def _mean_text(mean: Estimate, metric: str) -> str:
    _, unit, digits = _TITLES[metric]
    return with_margin(mean, digits, unit)


def _ratios(found: Comparison) -> Table:
    header = ("policy", *(_TITLES[metric][0].partition(" [")[0] for metric in METRICS))
    rows = []
    for policy in found.policies[1:]:
        ratios = [found.ratio(policy, metric) for metric in METRICS]
        rows.append([policy, *map(ratio_with_bounds, ratios)])
    return Table("ratios", "Below 1: lower than the first policy's", header, rows)
