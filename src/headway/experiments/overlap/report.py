"""The report: its sections in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path

from headway.experiments.overlap import figures, tables
from headway.experiments.overlap.bounds import iterations_alone
from headway.experiments.overlap.cases import MEMORIES
from headway.experiments.overlap.findings import Findings, changed_claims, judge_claims
from headway.experiments.overlap.workloads import BUCKETS, OVERLAPPED, changes
from headway.experiments.reproduction import claims, contention
from headway.experiments.reproduction.claims import Finding
from headway.experiments.reproduction.evaluation import Evaluation
from headway.experiments.reproduction.figures import claims as claims_figure
from headway.experiments.reproduction.output import publish, versions
from headway.experiments.reproduction.tables import verdicts as judged_claims
from headway.experiments.seeds import seeds_text
from headway.figure_style import house_style
from headway.network.contention import NETWORKS
from headway.reports.page import Picture, Section
from headway.reports.tables import Table

_NETWORK = NETWORKS["10gbe"]


def write_report(folder: Path, evaluation: Evaluation) -> Findings:
    """Write the raw results, tables, figures and report; return the findings."""
    found = judge_claims(evaluation)
    with house_style():
        sections = list(_sections(evaluation, found))
    publish(
        folder,
        evaluation,
        "What overlap is worth",
        _summary(found, evaluation.seeds),
        sections,
    )
    return found


def _summary(found: Findings, seeds: Sequence[int]) -> str:
    counts = []
    for memory in MEMORIES:
        kinds = found[memory]
        changed = len(changed_claims(kinds))
        counts.append(
            f"With {memory} a GPU, of {len(kinds['plain'])} claims of the paper "
            f"{claims.counted(kinds['plain'])} without overlap; with overlap "
            f"{claims.counted(kinds['overlapped'])}, and {changed} verdicts differ."
        )
    return (
        "The paper's jobs send their gradients after the backward pass, as one message. Here the "
        "same jobs send them in buckets of 25 MB (the first of 1 MB) while the backward pass still "
        "runs, as PyTorch's DistributedDataParallel does. Simulated by Headway "
        f"{escape(version('headway'))} on the same {len(seeds)} workloads with and without "
        f"overlap. {' '.join(counts)} Figures are means over the workloads with 95% confidence "
        "intervals."
    )


def _sections(evaluation: Evaluation, found: Findings) -> Iterator[Section]:
    made = changes()
    alone = {
        workload: iterations_alone(_NETWORK, made[workload])
        for workload in BUCKETS.values()
        if workload in made
    }
    examples = {
        "plain": contention.introduction_examples(_NETWORK),
        "overlapped": contention.introduction_examples(_NETWORK, made[OVERLAPPED]),
    }
    yield Section(
        "verdicts",
        "Verdicts",
        [
            "The claims and the rules are those of <em>headway reproduce</em>.",
            tables.verdicts(
                "verdicts",
                "The paper's claims, without overlap and with it",
                {name: found[name] for name in MEMORIES},
            ),
            tables.verdicts(
                "verdicts-scheduling",
                "The claims on schedulers with split messages, and in another order of jobs",
                {name: kinds for name, kinds in found.items() if name not in MEMORIES},
            ),
            *(_claims(name, found[name]) for name in MEMORIES),
            Picture(
                "claims",
                claims_figure(found["16 GB"]),
                "Claimed ratios, as published and as found without and with overlap, 16 GB.",
            ),
        ],
    )
    yield Section(
        "gains",
        "What overlap gains",
        [
            tables.gains(evaluation),
            Picture(
                "gains",
                figures.gains(evaluation),
                "Average JCT and makespan with overlap over those without, with 95% intervals. "
                "Left of 1 overlap helps.",
            ),
            tables.others(evaluation),
            tables.by_class(evaluation),
            tables.by_model(evaluation),
            Picture(
                "groups",
                figures.groups(evaluation),
                "Average JCT with overlap over that without, 16 GB, by class of jobs and by model.",
            ),
        ],
    )
    yield Section(
        "bounds",
        "Why",
        [
            tables.iterations(alone[OVERLAPPED]),
            Picture(
                "iterations",
                figures.iterations(alone[OVERLAPPED]),
                "One iteration alone: plain, overlapped, and the bound forward + max(backward, "
                "all-reduce).",
            ),
            tables.limits(evaluation, _NETWORK),
            tables.examples(examples),
        ],
    )
    yield Section(
        "buckets",
        "Buckets",
        [
            tables.buckets(evaluation, alone),
            Picture(
                "buckets",
                figures.buckets(evaluation, alone),
                "By size of a bucket: (a) one iteration alone, (b) average JCT of the workload, "
                "as ratios to plain jobs.",
            ),
            tables.check(evaluation),
            tables.seeds(evaluation),
        ],
    )
    seeds = seeds_text(evaluation.seeds)
    yield Section(
        "made",
        "How this was made",
        [f"<pre>headway reproduce overlap --seeds {seeds}</pre>", versions()],
    )


def _claims(memory: str, kinds: Mapping[str, Sequence[Finding]]) -> Table:
    gb = memory.partition(" ")[0]
    return judged_claims(f"claims-{gb}", f"The paper's claims with {memory}", kinds)
