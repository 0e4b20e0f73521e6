"""The verdicts: the paper's claims with and without overlap, and whether overlap helps at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.experiments.overlap.cases import SETTINGS, with_workload
from headway.experiments.overlap.workloads import OVERLAPPED
from headway.experiments.reproduction import claims
from headway.experiments.reproduction.claims import Finding, Verdict, order_verdict
from headway.experiments.reproduction.evaluation import Evaluation
from headway.experiments.reproduction.paper import Case
from headway.experiments.statistics import Estimate, Sample, paired_difference, paired_ratio

Findings = Mapping[str, Mapping[str, Sequence[Finding]]]
"""By setting, then by `plain` and `overlapped`."""


def judge_claims(evaluation: Evaluation) -> Findings:
    """Judge the paper's claims in every setting, without overlap and with it."""
    return {
        name: {kind: claims.findings(evaluation, setting) for kind, setting in settings.items()}
        for name, settings in SETTINGS.items()
    }


def changed_claims(found: Mapping[str, Sequence[Finding]]) -> list[tuple[Finding, Finding]]:
    """Return the claims whose verdict overlap changes, without and with it."""
    pairs = zip(found["plain"], found["overlapped"], strict=True)
    return [(plain, other) for plain, other in pairs if plain.verdict != other.verdict]


@dataclass(frozen=True, slots=True)
class Gain:
    """What overlap changes under one policy; ratios are overlapped over plain."""

    jct: Estimate
    makespan: Estimate
    utilization: Estimate
    """The difference of shares."""
    seeds_with_lower_jct: int

    @property
    def verdict(self) -> Verdict:
        """Whether overlap lowers the average JCT, by the rule "order"."""
        return order_verdict(self.jct)


def gain(evaluation: Evaluation, case: Case, workload: str = OVERLAPPED) -> Gain:
    """Return what another workload than the case's own changes."""
    other = with_workload(case, workload)

    def samples(metric: str) -> tuple[Sample, Sample]:
        return evaluation.sample(other, metric), evaluation.sample(case, metric)

    jct, plain_jct = samples("average_jct_s")
    return Gain(
        paired_ratio(jct, plain_jct),
        paired_ratio(*samples("makespan_s")),
        paired_difference(*samples("average_gpu_utilization")),
        int((jct < plain_jct).sum()),
    )
