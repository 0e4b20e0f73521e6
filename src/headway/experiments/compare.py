"""Compare policies on the same workloads.

import headway
found = headway.compare("paper", ["lwf:1+ada-srsf", "lwf:1+srsf:1"], seeds=range(5))
print(found.ratio("lwf:1+srsf:1"))
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.configuration import cluster_from, network_from
from headway.domain.accuracy import accuracy_from
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.workload import Workload
from headway.engine.compilation import compile_ahead
from headway.engine.parallel import Checkpoint, run_in_threads, thread_count
from headway.engine.progress import Progress
from headway.engine.run import simulate
from headway.engine.setup import check_inputs
from headway.experiments import statistics
from headway.experiments.statistics import Estimate, Sample
from headway.experiments.wording import ratio_with_bounds, with_margin
from headway.figure_style import COLOURS, INK, label_lines, label_width
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.results.schema import Summary, margin_of
from headway.text_table import TextTable
from headway.workload.sources import is_recipe, workload_from

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WorkloadLike = Workload | str | os.PathLike[str]
"""A workload, its file or its name."""

USUAL_SEEDS = 20
"""How many workloads `paper` stands for."""

METRICS = (
    "average_jct_s",
    "median_jct_s",
    "p95_jct_s",
    "makespan_s",
    "average_gpu_utilization",
    "energy_j",
    "energy_delay_js",
)
"""The figures to compare; the last is the energy-delay product, energy times average JCT."""

_OF_SAMPLING = ("average_jct_margin_s", "makespan_margin_s", "sampled_share")

_HEADER = ("policy", "average JCT (s)", "GPU use", "ratio to the first")

_WIDTH_INCHES = 7.2
"""The text width of a two-column paper."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """The summaries of every policy on every workload, and their comparison with the first policy.

    Policies go by the names that the caller gave. With a single workload, the bounds of intervals
    are those of sampling, or NaN.
    """

    policies: tuple[str, ...]
    workloads: tuple[str, ...]
    summaries: Mapping[str, tuple[Summary, ...]]
    """By policy, in the order of the workloads."""
    missing: str = ""
    """A sentence on the runs that are missing, if the comparison was ended early."""

    def sample(self, policy: str, metric: str = "average_jct_s") -> Sample:
        """Return one of METRICS, workload by workload."""
        if policy not in self.summaries:
            raise InputError(
                f"no policy {shown(policy)} was compared.{did_you_mean(policy, self.policies)}"
            )
        if metric not in METRICS:
            raise InputError(f"unknown metric {shown(metric)}.{did_you_mean(metric, METRICS)}")
        return np.array([_value(summary, metric) for summary in self.summaries[policy]])

    def mean(self, policy: str, metric: str = "average_jct_s") -> Estimate:
        """Return the mean over the workloads."""
        return statistics.mean(self.sample(policy, metric), self._margin(policy, metric))

    def ratio(self, policy: str, metric: str = "average_jct_s") -> Estimate:
        """Return the policy's mean over the first policy's."""
        sample, first = self.sample(policy, metric), self.sample(self.policies[0], metric)
        return statistics.paired_ratio(sample, first, margins=self._margins(policy, metric))

    def difference(self, policy: str, metric: str = "average_jct_s") -> Estimate:
        """Return the mean of the policy's figures minus the first policy's."""
        sample, first = self.sample(policy, metric), self.sample(self.policies[0], metric)
        return statistics.paired_difference(sample, first, margins=self._margins(policy, metric))

    def wins(self, policy: str, metric: str = "average_jct_s") -> int:
        """Return the number of workloads on which the policy beats the first (a lower figure)."""
        return int((self.sample(policy, metric) < self.sample(self.policies[0], metric)).sum())

    @property
    def about_intervals(self) -> str:
        """A sentence that says where the intervals come from, or why there are none."""
        if len(self.workloads) > 1:
            return "Intervals are at 95%."
        if any(self.mean(policy).has_interval for policy in self.policies):
            return statistics.OF_SAMPLING_ONLY
        return "A single workload has no intervals; another workload may reverse the order."

    def _margin(self, policy: str, metric: str) -> float:
        """Return the margin of sampling on the first workload, 0 where it is none or unknown."""
        return margin_of(asdict(self.summaries[policy][0]), metric)

    def _margins(self, policy: str, metric: str) -> tuple[float, float]:
        """Return the margins of a policy and the first one; none of the first with itself."""
        first = self.policies[0]
        if policy == first:
            return 0.0, 0.0
        return self._margin(policy, metric), self._margin(first, metric)

    def plot(self) -> Figure:
        """Draw the average JCT of each policy, and its ratio to the first policy's."""
        return draw(self)

    def __repr__(self) -> str:
        count = len(self.workloads)
        part = "Incomplete comparison" if self.missing else "Comparison"
        return f"<{part} of {', '.join(self.policies)} on {count:,} workload{'s' * (count != 1)}>"

    def __str__(self) -> str:
        lines = [line.text for line in self._table().lines()]
        return "\n".join([self.missing, *lines] if self.missing else lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._rows()
        )
        head = "".join(f"<th>{escape(title)}</th>" for title in _HEADER)
        note = f"<p>{escape(self.missing)}</p>" if self.missing else ""
        return f"{note}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _table(self) -> TextTable:
        table = TextTable(_HEADER[:1], _HEADER[1:])
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the main figures of each policy as text."""
        for policy in self.policies:
            mean, ratio = self.mean(policy), self.ratio(policy)
            is_first = policy == self.policies[0]
            yield (
                policy,
                with_margin(mean, digits=1),
                f"{self.mean(policy, 'average_gpu_utilization').value:.1%}",
                f"{ratio.value:.3f}" if is_first else ratio_with_bounds(ratio),
            )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, as `--json` writes it."""
        policies = []
        for policy in self.policies:
            entry: dict[str, Any] = {"policy": policy}
            entry |= {metric: _plain(self.mean(policy, metric)) for metric in METRICS}
            if policy != self.policies[0]:
                entry["against_first"] = {
                    metric: {
                        "ratio": _plain(self.ratio(policy, metric)),
                        "difference": _plain(self.difference(policy, metric)),
                        "wins": self.wins(policy, metric),
                    }
                    for metric in METRICS
                }
            entry["runs"] = [
                {name: _value(summary, name) for name in (*METRICS, *_OF_SAMPLING)}
                for summary in self.summaries[policy]
            ]
            policies.append(entry)
        return {
            "workloads": list(self.workloads),
            "confidence": statistics.CONFIDENCE,
            "policies": policies,
        }


def compare(
    workloads: WorkloadLike | Sequence[WorkloadLike],
    policies: Sequence[PolicySet | str],
    cluster: Cluster | str = "16x4",
    *,
    network: NetworkModel | str = "10gbe",
    seeds: Sequence[int] | None = None,
    accuracy: float | str | None = None,
    threads: int | None = None,
    started: Callable[[int, int], None] | None = None,
    done: Callable[[], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    ended_early: Callable[[Comparison], None] | None = None,
) -> Comparison:
    """Simulate every policy on every workload, on all cores, and compare them with the first.

    Args:
        workloads: The workloads that every policy runs, or one of them: a workload, the path of a
            file, the name of a packaged workload (`muri-1`), or `paper` for one drawn as in the
            paper for each of the seeds.
        policies: Sets of policies, or their texts, such as `headway` or `lwf:1+ada-srsf@25`, as
            `PolicySet.parse` reads them.
        cluster: A cluster, a shape such as `16x4` with 16 GB a GPU, or the path of a TOML file.
        network: The network between servers, its name, or the path of a TOML file.
        seeds: One per workload, for policies that draw random numbers (`rand`); by default 0, 1,
            2, …; with `paper` as many as wanted, by default 20.
        accuracy: None is exact; otherwise as for `simulate`, such as 0.01 or `1%`.
        threads: Threads in all; by default the number of cores. Each does one run at a time; if
            there are fewer runs than threads, each sampled run gets several.
        started: Called before the first run with 0 and the number of runs.
        done: Called after each run.
        progress: Called now and then during long runs, from the threads that they are in.
        ended_early: Called with what has finished, if anything has, when an error or an interrupt
            ends the comparison; it then propagates.

    Raises:
        InputError: An argument is invalid, or a job can never run.
        PolicyError: A policy does not compile, or leaves jobs waiting forever.
    """
    chosen = [PolicySet.parse(policy) if isinstance(policy, str) else policy for policy in policies]
    if len(chosen) < 2:
        raise InputError("a comparison needs at least two policies.", field="policies")
    if len({policy.name for policy in chosen}) < len(chosen):
        raise InputError("must differ from each other.", field="policies")
    jobs, draws = _drawn(workloads, seeds)
    where = cluster_from(cluster) if isinstance(cluster, str) else cluster
    link = network_from(network) if isinstance(network, str) else network
    wanted = None if accuracy is None else accuracy_from(accuracy)
    workers = thread_count(threads)
    found: dict[tuple[str, int], Summary] = {}

    def work(task: tuple[PolicySet, int], checkpoint: Checkpoint) -> tuple[str, int, Summary]:
        policy, index = task

        def report(now: Progress) -> None:
            checkpoint(now)
            if progress is not None:
                progress(now)

        result = simulate(
            jobs[index],
            where,
            network=link,
            policy=policy,
            seed=draws[index],
            accuracy=wanted,
            threads=max(1, workers // len(tasks)),
            progress=report,
        )
        return policy.name, index, result.summary

    def keep(result: tuple[str, int, Summary]) -> None:
        name, index, summary = result
        found[name, index] = summary
        if done is not None:
            done()

    indexes = range(len(jobs))
    tasks = [(policy, index) for index in indexes for policy in chosen]
    for workload, draw in zip(jobs, draws, strict=True):
        check_inputs(workload, where, link, draw)
    compile_ahead(
        (policy.choices for policy in chosen), any(workload.has_graphs for workload in jobs)
    )
    if started is not None:
        started(0, len(tasks))
    names = [policy.name for policy in chosen]
    sources = [workload.source or f"workload {index}" for index, workload in enumerate(jobs)]
    try:
        run_in_threads(tasks, work, workers, keep)
    except BaseException:
        if ended_early is not None and found:
            ended_early(_comparison(found, names, sources))
        raise
    return _comparison(found, names, sources)


def _comparison(
    found: Mapping[tuple[str, int], Summary], names: Sequence[str], sources: Sequence[str]
) -> Comparison:
    """Return the comparison of finished runs, by policy and workload.

    Where runs are missing, it has the policies and workloads of which all runs have finished: those
    with which it has the most runs.
    """
    finished = {name: {index for who, index in found if who == name} for name in names}
    ranked = sorted(names, key=lambda name: -len(finished[name]))
    grids = [
        (ranked[:count], set.intersection(*(finished[name] for name in ranked[:count])))
        for count in range(1, len(names) + 1)
    ]
    kept, indexes = max(grids, key=lambda grid: (len(grid[0]) * len(grid[1]), len(grid[0])))
    policies, chosen = [name for name in names if name in kept], sorted(indexes)
    missing = ""
    total = len(names) * len(sources)
    if len(found) < total:
        left_out = [name for name in names if name not in kept]
        missing = f"Incomplete: {len(found):,} of {total:,} runs have finished."
        if left_out:
            missing += f" Left out: {', '.join(left_out)}."
        if len(chosen) < len(sources):
            missing += f" Compared on {len(chosen):,} of {len(sources):,} workloads."
    return Comparison(
        policies=tuple(policies),
        workloads=tuple(sources[index] for index in chosen),
        summaries={name: tuple(found[name, index] for index in chosen) for name in policies},
        missing=missing,
    )


def _drawn(
    workloads: WorkloadLike | Sequence[WorkloadLike], seeds: Sequence[int] | None
) -> tuple[list[Workload], Sequence[int]]:
    """Return the workloads, and a seed for each."""
    if isinstance(workloads, (Workload, str, os.PathLike)):
        if not isinstance(workloads, Workload) and is_recipe(workloads):
            draws = range(USUAL_SEEDS) if seeds is None else seeds
            return [workload_from(workloads, seed=seed) for seed in draws], draws
        workloads = [workloads]
    if not workloads:
        raise InputError("a comparison needs at least one workload.", field="workloads")
    draws = range(len(workloads)) if seeds is None else seeds
    if len(draws) != len(workloads):
        raise InputError("must be as many as there are workloads.", field="seeds")
    pairs = zip(workloads, draws, strict=True)
    return [workload_from(workload, seed=seed) for workload, seed in pairs], draws


def _value(summary: Summary, metric: str) -> float:
    if metric == "energy_delay_js":
        return summary.energy_j * summary.average_jct_s
    return float(asdict(summary)[metric])


def _plain(estimate: Estimate) -> dict[str, float | None]:
    """Return an estimate for JSON, which has no NaN."""
    values = asdict(estimate)
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def draw(found: Comparison) -> Figure:
    """Draw the average JCT of each policy, and its ratio to the first policy's."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    names, labels = found.policies, label_lines(found.policies)
    height = 0.85 + sum(0.16 + 0.14 * len(label.split("\n")) for label in labels)
    figure = Figure(figsize=(_WIDTH_INCHES, height))
    figure.subplots_adjust(bottom=0.48 / height, top=1 - 0.24 / height)
    average, ratios = figure.subplots(1, 2, sharey=True)
    rows = [-index for index in range(len(names))]
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(names))]
    means = [found.mean(name) for name in names]
    average.barh(
        rows,
        [bar.value for bar in means],
        0.66,
        xerr=[bar.margin for bar in means],
        color=colours,
        error_kw={"elinewidth": 1, "capsize": 3, "ecolor": INK},
    )
    average.grid(visible=False, axis="y")
    average.set(
        xlabel="Average JCT [s]",
        title="(a) incomplete" if found.missing else "(a)",
        ylim=(0.6 - len(names), 0.6),
    )
    average.xaxis.set_major_locator(MaxNLocator(4))
    average.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    average.set_yticks(rows, labels)
    for label in average.get_yticklabels():
        label.set_parse_math(False)
    ratios.axvline(1, color=INK, linewidth=0.9)
    for name, row, colour in zip(names[1:], rows[1:], colours[1:], strict=True):
        ratio = found.ratio(name)
        if ratio.has_interval:
            ratios.plot([ratio.low, ratio.high], [row] * 2, color=colour)
        ratios.plot(ratio.value, row, "o", markersize=4.5, color=colour)
    ratios.set(xlabel="Ratio to the first", title="(b) below 1: faster")
    ratios.tick_params(axis="y", length=0, labelleft=False)
    ratios.grid(visible=False, axis="y")
    left = min(0.4, 0.03 + 0.0098 * label_width(labels))
    figure.subplots_adjust(left=left, right=0.98, wspace=0.08)
    return figure
