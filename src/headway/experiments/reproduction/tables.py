"""The tables of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from headway.experiments import wording
from headway.experiments.reproduction import paper
from headway.experiments.reproduction.claims import RULES, Finding
from headway.experiments.reproduction.contention import Example
from headway.experiments.reproduction.evaluation import (
    CLASSES,
    JOB_SIZES,
    METRICS,
    Evaluation,
    Metric,
)
from headway.experiments.reproduction.paper import Case
from headway.experiments.statistics import Estimate, mean, paired_difference
from headway.reports.tables import Table

_TITLES = ("GPU utilization", "average JCT [s]", "median JCT [s]", "95th-percentile JCT [s]")


def published_beside_ours(
    name: str,
    caption: str,
    evaluation: Evaluation,
    cases: Mapping[str, Case],
    memory_gb: int = 16,
) -> Table:
    """Return the paper's table of results, with ours and the ratio below each row."""
    rows = []
    for method, case in cases.items():
        printed = [getattr(paper.PUBLISHED[case], metric) for metric in METRICS]
        ours = _estimates(evaluation, paper.in_setting(case, memory_gb))
        ratios = [estimate.value / figure for estimate, figure in zip(ours, printed, strict=True)]
        rows += [
            [
                method,
                "published",
                f"{printed[0]:.2%}",
                *(f"{figure:,.1f}" for figure in printed[1:]),
            ],
            ["", "ours", *_figures(ours)],
            ["", "ratio", *(f"{ratio:.2f}" for ratio in ratios)],
        ]
    return Table(name, caption, ("method", "", *_TITLES), rows, texts=2)


def ours_alone(name: str, caption: str, evaluation: Evaluation, cases: Mapping[str, Case]) -> Table:
    """Return our figures alone, where the paper prints none."""
    rows = [[method, *_figures(_estimates(evaluation, case))] for method, case in cases.items()]
    return Table(name, caption, ("method", *_TITLES), rows)


def differences(
    name: str, caption: str, evaluation: Evaluation, pairs: Iterable[tuple[str, Case, str, Case]]
) -> Table:
    """Return differences between policies on the same seeds, with their intervals."""
    rows = []
    for method, case, other_method, other in pairs:
        jct, use = (
            paired_difference(evaluation.sample(case, metric), evaluation.sample(other, metric))
            for metric in _COMPARED
        )
        lower = (
            evaluation.sample(case, "average_jct_s") < evaluation.sample(other, "average_jct_s")
        ).sum()
        rows.append(
            [
                f"{method} − {other_method}",
                wording.signed(jct.value),
                f"{wording.signed(jct.low)} to {wording.signed(jct.high)}",
                f"{lower} of {len(evaluation.seeds)}",
                wording.points(use),
            ]
        )
    header = (
        "difference",
        "average JCT [s]",
        "95% interval [s]",
        "seeds with lower JCT",
        "GPU utilization [points]",
    )
    return Table(name, caption, header, rows)


def all_pairs(cases: Mapping[str, Case]) -> list[tuple[str, Case, str, Case]]:
    """Return each pair once, the later name first."""
    return [(b, cases[b], a, cases[a]) for a, b in combinations(cases, 2)]


def against_first(cases: Mapping[str, Case]) -> list[tuple[str, Case, str, Case]]:
    """Return each later one paired with the first."""
    first, *others = cases
    return [(name, cases[name], first, cases[first]) for name in others]


def settings(name: str, caption: str, evaluation: Evaluation, cases: Mapping[str, Case]) -> Table:
    """Return the average JCT of every policy in every setting."""
    rows = []
    for method, case in cases.items():
        row = [method, f"{paper.PUBLISHED[case].average_jct_s:,.1f}"]
        for network in ("10gbe", "no-contention"):
            for memory in paper.MEMORIES_GB:
                # Without contention nothing waits, so all schedulers give the same.
                same = paper.in_setting(case, memory, network)
                asked = network == "10gbe" or case in paper.PLACEMENTS.values()
                row.append(
                    wording.with_margin(mean(evaluation.sample(same, "average_jct_s")))
                    if asked
                    else ""
                )
        rows.append(row)
    header = (
        "policies",
        "published",
        "16 GB",
        "32 GB",
        "16 GB, no contention",
        "32 GB, no contention",
    )
    return Table(name, caption, header, rows)


def spread(name: str, caption: str, evaluation: Evaluation, cases: Mapping[str, Case]) -> Table:
    """Return what the memory of a GPU changes: how jobs queue, and how widely they are placed."""
    rows = []
    for method, case in cases.items():
        for memory in paper.MEMORIES_GB:
            found = evaluation.spread(paper.in_setting(case, memory))
            servers = [f"{count:.2f}" for count in found.servers]
            waits = [f"{found.queued:.1%}", f"{found.wait_s:,.1f}"]
            rows.append([method, f"{memory} GB", *waits, *servers])
    header = [f"servers, {gpus} GPUs" for gpus in JOB_SIZES]
    return Table(name, caption, ("policies", "", "jobs queued", "wait [s]", *header), rows, texts=2)


def classes(name: str, caption: str, evaluation: Evaluation, cases: Mapping[str, Case]) -> Table:
    """Return the average JCT of each class of jobs."""
    shares = evaluation.class_shares(next(iter(cases.values())))
    header = [
        "method",
        *(f"{kind} [s]" for kind in CLASSES),
    ]
    rows = [["share of the jobs", *(f"{share:.1%}" for share in shares)]]
    for method, case in cases.items():
        rows.append(
            [method, *(wording.with_margin(bar) for bar in evaluation.class_average_jct_s(case))]
        )
    return Table(name, caption, header, rows)


def examples(name: str, caption: str, found: Sequence[Example]) -> Table:
    """Return the introduction's example for each model."""
    header = (
        "model",
        "iterations",
        "alone [s]",
        "four at once [s]",
        "ratio",
        "with Ada-SRSF [s]",
        "with SRSF(1) [s]",
    )
    published = [
        "published, model not named",
        "",
        f"{paper.ALONE_S:.0f}",
        f"{paper.TOGETHER_S:.0f}",
        f"{paper.TOGETHER_S / paper.ALONE_S:.2f}",
        "",
        "",
    ]
    rows = [
        [
            example.model,
            f"{example.iterations:,}",
            f"{example.alone_s:.1f}",
            f"{example.together_s:.1f}",
            f"{example.together_s / example.alone_s:.2f}",
            f"{example.together_ada_srsf_s:.1f}",
            f"{example.together_srsf_1_s:.1f}",
        ]
        for example in found
    ]
    return Table(name, caption, header, [published, *rows])


def verdicts(name: str, caption: str, findings: Mapping[str, Sequence[Finding]]) -> Table:
    """Return every claim with our figure and verdict in each setting."""
    main, *others = findings
    elsewhere = [{finding.claim: finding for finding in findings[other]} for other in others]
    rows = []
    for finding in findings[main]:
        row = [finding.claim, finding.rule, finding.published, finding.ours, finding.verdict]
        for found in elsewhere:
            other = found.get(finding.claim)
            row += ["", ""] if other is None else [other.ours, other.verdict]
        rows.append(row)
    header = ["claim", "rule", "published"]
    for setting in findings:
        header += [f"ours, {setting}", "verdict"]
    return Table(name, caption, header, rows, texts=len(header))


def rules(name: str, caption: str) -> Table:
    """Return what each kind of verdict means."""
    return Table(name, caption, ("rule", "meaning"), list(RULES.items()), texts=2)


_COMPARED: tuple[Metric, Metric] = ("average_jct_s", "average_gpu_utilization")


def _estimates(evaluation: Evaluation, case: Case) -> list[Estimate]:
    return [mean(evaluation.sample(case, metric)) for metric in METRICS]


def _figures(estimates: Sequence[Estimate]) -> list[str]:
    utilization, *times = estimates
    return [
        wording.percent_with_margin(utilization),
        *(wording.with_margin(time) for time in times),
    ]
