"""The tables of the experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headway.domain.models import MODELS
from headway.experiments import wording
from headway.experiments.overlap.bounds import Iteration, busiest, identical
from headway.experiments.overlap.cases import (
    BY_BUCKET,
    MEMORIES,
    OTHERS,
    POLICIES,
    UNAWARE,
    with_workload,
)
from headway.experiments.overlap.findings import Findings, gain
from headway.experiments.overlap.workloads import (
    BUCKETS,
    CUT,
    NO_COMPUTING,
    NO_MESSAGES,
    ONE_BUCKET,
    OVERLAPPED,
    PAPER,
)
from headway.experiments.reproduction.contention import Example
from headway.experiments.reproduction.evaluation import CLASSES, Evaluation
from headway.experiments.reproduction.paper import Case
from headway.experiments.statistics import mean, paired_ratio
from headway.network.contention import NetworkModel
from headway.reports.tables import Table


def verdicts(name: str, caption: str, found: Findings) -> Table:
    """Return the verdict on every claim in some settings, without overlap and with it."""
    header, columns = ["claim"], []
    for setting, kinds in found.items():
        for kind, findings in kinds.items():
            header.append(f"{setting}, {kind}")
            columns.append({finding.claim: str(finding.verdict) for finding in findings})
    rows = [
        [claim, *(column.get(claim, "") for column in columns)]
        for claim in dict.fromkeys(claim for column in columns for claim in column)
    ]
    return Table(name, caption, header, rows, texts=len(header))


_CHANGES = (
    "overlap lowers the average JCT",
    "average JCT, plain [s]",
    "overlapped [s]",
    "ratio",
    "seeds with lower JCT",
    "ratio of makespans",
    "GPU utilization [points]",
)


def _changes(evaluation: Evaluation, plain: Case) -> list[str]:
    """Return the columns of `_CHANGES` for a case without overlap."""
    found = gain(evaluation, plain)
    averages = [
        wording.with_margin(mean(evaluation.sample(one, "average_jct_s")))
        for one in (plain, with_workload(plain, OVERLAPPED))
    ]
    return [
        found.verdict,
        *averages,
        wording.ratio(found.jct),
        f"{found.seeds_with_lower_jct} of {len(evaluation.seeds)}",
        wording.ratio(found.makespan),
        wording.points(found.utilization),
    ]


def gains(evaluation: Evaluation) -> Table:
    """Return what overlap changes under the paper's policies and `headway`."""
    rows = [
        [memory, name, *_changes(evaluation, replace(case, gpu_memory_gb=gb))]
        for memory, gb in MEMORIES.items()
        for name, case in POLICIES.items()
    ]
    caption = "What overlap changes, on the same seeds"
    return Table("gains", caption, ("memory", "policies", *_CHANGES), rows, texts=3)


def others(evaluation: Evaluation) -> Table:
    """Return what overlap changes under all other policies."""
    rows = [[name, *_changes(evaluation, case)] for name, case in OTHERS.items()]
    caption = "The same under all other policies, 16 GB"
    return Table("others", caption, ("policies", *_CHANGES), rows, texts=2)


def by_group(
    name: str, caption: str, evaluation: Evaluation, groups: Mapping[str, object]
) -> Table:
    """Return the ratio of the average JCTs with and without overlap for each group of jobs.

    `groups` are values of the jobs' column of the table's name.
    """
    rows = []
    for policies, case in POLICIES.items():
        ratios = evaluation.group_ratios(
            with_workload(case, OVERLAPPED), case, name, list(groups.values())
        )
        rows.append([policies, *map(wording.ratio, ratios)])
    return Table(f"by-{name}", caption, ("policies", *groups), rows)


def by_class(evaluation: Evaluation) -> Table:
    """Return the gain by class of jobs."""
    caption = "Average JCT with overlap over that without, by class of jobs, 16 GB"
    return by_group("class", caption, evaluation, {name: at for at, name in enumerate(CLASSES)})


def by_model(evaluation: Evaluation) -> Table:
    """Return the gain by model."""
    caption = "Average JCT with overlap over that without, by model, 16 GB"
    return by_group("model", caption, evaluation, {name: name for name in MODELS})


def iterations(alone: Sequence[Iteration]) -> Table:
    """Return one iteration of each model alone, with its bounds."""
    rows = [
        [
            one.model,
            f"{one.messages}",
            *(
                f"{time_ns / 1e6:.1f}"
                for time_ns in (
                    one.forward_ns,
                    one.backward_ns,
                    one.all_reduce_ns,
                    one.plain_ns,
                    one.length_ns,
                    one.least_ns,
                )
            ),
            wording.saved(one.length_ns / one.plain_ns),
            wording.saved(one.least_ns / one.plain_ns),
        ]
        for one in alone
    ]
    header = (
        "model",
        "buckets",
        "forward [ms]",
        "backward [ms]",
        "all-reduce [ms]",
        "plain [ms]",
        "overlapped [ms]",
        "least [ms]",
        "saved",
        "at most",
    )
    return Table("iterations", "One iteration of a job alone on two servers", header, rows)


def limits(evaluation: Evaluation, network: NetworkModel) -> Table:
    """Return what limits the makespan, and average JCTs with one of the two resources free."""
    rows = []
    for name, case in POLICIES.items():
        row = [name]
        for workload in _BOTH:
            shares = busiest(evaluation, with_workload(case, workload), network)
            row += [wording.share(float(sample.mean())) for sample in (shares.gpu, shares.link)]
        for workload in (NO_MESSAGES, NO_COMPUTING, PAPER, OVERLAPPED):
            sample = evaluation.sample(with_workload(case, workload), "average_jct_s")
            row.append(wording.with_margin(mean(sample)))
        rows.append(row)
    header = (
        "policies",
        "busiest GPU, plain",
        "busiest link, plain",
        "busiest GPU, overlapped",
        "busiest link, overlapped",
        "average JCT, no messages [s]",
        "no computing [s]",
        "both, plain [s]",
        "both, overlapped [s]",
    )
    caption = "Shares of the makespan that cannot be avoided, and each resource without the other"
    return Table("limits", caption, header, rows)


def buckets(evaluation: Evaluation, alone: Mapping[str, Sequence[Iteration]]) -> Table:
    """Return average JCTs by bucket size, as ratios to the plain jobs."""
    rows = []
    for label, workload in (*BUCKETS.items(), ("sent after a cut backward pass", CUT)):
        row = [label, ""]
        if workload in alone:
            row[1] = ", ".join(str(one.messages) for one in alone[workload])
        for case in BY_BUCKET.values():
            sample = evaluation.sample(with_workload(case, workload), "average_jct_s")
            ratio = paired_ratio(sample, evaluation.sample(case, "average_jct_s"))
            row.append(
                wording.with_margin(mean(sample)) if workload == PAPER else wording.ratio(ratio)
            )
        rows.append(row)
    header = ("buckets", f"messages ({', '.join(MODELS)})", *BY_BUCKET)
    caption = "Average JCT of plain jobs [s], and with buckets as a ratio to it"
    return Table("buckets", caption, header, rows, texts=2)


def check(evaluation: Evaluation) -> Table:
    """Return whether one bucket after the backward pass is the paper's job."""
    rows = []
    for name, case in UNAWARE.items():
        same, count = identical(evaluation, case, with_workload(case, ONE_BUCKET))
        rows.append([name, f"{same:,} of {count:,}"])
    caption = "One bucket and the paper's chain: jobs with the same start, finish and GPUs"
    return Table("check", caption, ("policies", "jobs"), rows)


def examples(found: Mapping[str, Sequence[Example]]) -> Table:
    """Return the introduction's example, with and without overlap."""
    rows = []
    for kind, of_models in found.items():
        for one in of_models:
            rows.append(
                [
                    one.model,
                    kind,
                    f"{one.iterations:,}",
                    *(
                        f"{time_s / one.alone_s:.2f}"
                        for time_s in (
                            one.together_s,
                            one.together_ada_srsf_s,
                            one.together_srsf_1_s,
                        )
                    ),
                ]
            )
    header = ("model", "", "iterations", "four at once", "with Ada-SRSF", "with SRSF(1)")
    caption = "The introduction's example: time over that of one job alone (published: 2.29)"
    return Table("introduction", caption, header, rows, texts=2)


def seeds(evaluation: Evaluation) -> Table:
    """Return the average JCT of every policy on every seed, without overlap and with it."""
    columns = [
        [evaluation.sample(with_workload(case, workload), "average_jct_s") for workload in _BOTH]
        for case in POLICIES.values()
    ]
    rows = [
        [str(seed), *(" / ".join(f"{sample[at]:,.1f}" for sample in pair) for pair in columns)]
        for at, seed in enumerate(evaluation.seeds)
    ]
    caption = "Average JCT [s] of each workload, plain / overlapped, 16 GB"
    return Table("seeds", caption, ("seed", *POLICIES), rows)


_BOTH = (PAPER, OVERLAPPED)
