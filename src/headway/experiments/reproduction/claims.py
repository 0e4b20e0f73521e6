"""The paper's claims, and the rules that decide whether they hold in our data.

Every rule judges figures with 95% confidence intervals over the same seeds: a claim "holds", "does
not hold", or "holds in part" where the data show less than was claimed or are inconclusive. The
rules are fixed here and printed in the report; every verdict is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headway.experiments import wording
from headway.experiments.reproduction import paper
from headway.experiments.reproduction.contention import Example
from headway.experiments.reproduction.evaluation import Evaluation, Metric
from headway.experiments.reproduction.paper import Case, Setting
from headway.experiments.statistics import Estimate, Sample, mean, paired_ratio

RULES = {
    "size": "A saving or gain of a given size. Figure: the ratio of the two means. Holds: its "
    "interval lies on the claimed side of 1, and reaches the published ratio or lies past it. Does "
    "not hold: it does neither. In part: one of the two, so that the effect is weaker than "
    "published, or cannot be told from none.",
    "order": "One below another. Figure: the ratio of the two means. Holds: its interval lies "
    "below 1. Does not hold: above 1. In part: 1 is inside.",
    "best": "The best (or worst) of several. Figure: the ratio of its mean to that of its closest "
    "rival. Holds: it beats every other, by the rule above. Does not hold: another beats it. In "
    "part: otherwise.",
    "level": "A figure below a level. Holds: its interval lies below. Does not hold: above. In "
    "part: the level is inside.",
    "example": "The introduction's example, whose model the paper does not name. Figure: the time "
    "of four jobs at once over that of one alone, for each of the paper's models. Holds: all are "
    "slower, and one at least as much as published. Does not hold: one is not slower. In part: "
    "otherwise.",
}
"""What each kind of verdict means."""


class Verdict(StrEnum):
    """Whether a claim holds in our data."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"


def size_verdict(ratio: Estimate, published: float) -> Verdict:
    """Judge a claimed ratio, below 1 for a saving or above 1 for a gain, by the rule "size"."""
    if published < 1:
        shown, reached = ratio.high < 1, ratio.low <= published
    else:
        shown, reached = ratio.low > 1, ratio.high >= published
    if shown and reached:
        return Verdict.HOLDS
    return Verdict.IN_PART if shown or reached else Verdict.FAILS


def order_verdict(ratio: Estimate) -> Verdict:
    """Judge a ratio that is claimed to be below 1, by the rule "order"."""
    return level_verdict(ratio, 1.0)


def best_verdict(ratios: Sequence[Estimate]) -> Verdict:
    """Judge the ratios of the claimed best to each other one, by the rule "best"."""
    verdicts = {order_verdict(ratio) for ratio in ratios}
    if verdicts == {Verdict.HOLDS}:
        return Verdict.HOLDS
    return Verdict.FAILS if Verdict.FAILS in verdicts else Verdict.IN_PART


def level_verdict(figure: Estimate, most: float) -> Verdict:
    """Judge a figure that is claimed to be below a level, by the rule "level"."""
    if figure.high < most:
        return Verdict.HOLDS
    return Verdict.FAILS if figure.low > most else Verdict.IN_PART


def example_verdict(ratios: Sequence[float], published: float) -> Verdict:
    """Judge how much slower four jobs at once are, by the rule "example"."""
    if min(ratios) <= 1:
        return Verdict.FAILS
    return Verdict.HOLDS if max(ratios) >= published else Verdict.IN_PART


@dataclass(frozen=True, slots=True)
class Finding:
    """What our data say about a claim."""

    claim: str
    published: str
    ours: str
    rule: str
    verdict: Verdict
    ratio: Estimate | None = None
    published_ratio: float | None = None


def counted(findings: Sequence[Finding]) -> str:
    """Return how many claims hold, as a text."""
    words = {Verdict.HOLDS: "hold", Verdict.IN_PART: "hold in part", Verdict.FAILS: "do not hold"}
    verdicts = [finding.verdict for finding in findings]
    return ", ".join(f"{verdicts.count(verdict)} {word}" for verdict, word in words.items())


@dataclass(frozen=True, slots=True)
class Claim:
    """How a claim is judged in a setting, and the cases that it is about."""

    cases: tuple[Case, ...]
    judge: Callable[[Evaluation, Setting], Finding]


def size_claim(claim: str, ours: Case, other: Case, metric: Metric, published: float) -> Claim:
    """Return a claimed ratio of two means."""

    def judge(evaluation: Evaluation, setting: Setting) -> Finding:
        ratio = _ratio(evaluation, ours, other, metric, setting)
        words = wording.saved if published < 1 else wording.times
        return Finding(
            claim,
            words(published),
            wording.with_interval(words, ratio),
            "size",
            size_verdict(ratio, published),
            ratio,
            published,
        )

    return Claim((ours, other), judge)


def order_claim(claim: str, lower: Case, higher: Case, metric: Metric) -> Claim:
    """Return a claimed order of two means."""

    def judge(evaluation: Evaluation, setting: Setting) -> Finding:
        ratio = _ratio(evaluation, lower, higher, metric, setting)
        published = getattr(paper.PUBLISHED[lower], metric) / getattr(
            paper.PUBLISHED[higher], metric
        )
        return Finding(
            claim,
            wording.times(published),
            wording.with_interval(wording.times, ratio),
            "order",
            order_verdict(ratio),
            ratio,
            published,
        )

    return Claim((lower, higher), judge)


def best_claim(claim: str, best: Case, others: Mapping[str, Case], worst: bool = False) -> Claim:
    """Return a claimed lowest (or highest) average completion time."""

    def judge(evaluation: Evaluation, setting: Setting) -> Finding:
        rivals = {name: case for name, case in others.items() if case != best}
        ratios = {
            name: _ratio(evaluation, *((case, best) if worst else (best, case)), _JCT, setting)
            for name, case in rivals.items()
        }
        rival = max(ratios, key=lambda name: ratios[name].value)
        shown = _ratio(evaluation, best, rivals[rival], _JCT, setting)
        return Finding(
            claim,
            "highest" if worst else "lowest",
            f"{wording.times(shown.value)} that of {rival} "
            f"({wording.times(shown.low)} to {wording.times(shown.high)})",
            "best",
            best_verdict(list(ratios.values())),
        )

    return Claim((best, *others.values()), judge)


def level_claim(
    claim: str,
    published: str,
    case: Case,
    sample: Callable[[Evaluation, Case], Sample],
    most: float,
) -> Claim:
    """Return a claim that a share, a figure of one case, is below a level."""

    def judge(evaluation: Evaluation, setting: Setting) -> Finding:
        figure = mean(sample(evaluation, setting(case)))
        return Finding(
            claim,
            published,
            wording.with_interval(wording.share, figure),
            "level",
            level_verdict(figure, most),
        )

    return Claim((case,), judge)


_JCT: Metric = "average_jct_s"
_USE: Metric = "average_gpu_utilization"
_P95: Metric = "p95_jct_s"


def _late(evaluation: Evaluation, case: Case) -> Sample:
    return 1 - evaluation.share_below(case, 5000)


def _use(evaluation: Evaluation, case: Case) -> Sample:
    return evaluation.sample(case, _USE)


_P, _S = paper.PLACEMENTS, paper.SCHEDULERS
_LWF = _ADA = paper.LWF_ADA

CLAIMS: tuple[Claim, ...] = (
    best_claim("LWF-1: lowest average JCT of the placements", _LWF, _P),
    best_claim("RAND: highest average JCT of the placements", paper.RAND, _P, worst=True),
    order_claim("FF: lower average JCT than LS", paper.FF, paper.LS, _JCT),
    size_claim("LWF-1: average JCT saved against RAND", _LWF, paper.RAND, _JCT, 1 - 0.619),
    size_claim("LWF-1: average JCT saved against FF", _LWF, paper.FF, _JCT, 1 - 0.428),
    size_claim("LWF-1: average JCT saved against LS", _LWF, paper.LS, _JCT, 1 - 0.519),
    size_claim("LWF-1: GPU utilization gained over RAND", _LWF, paper.RAND, _USE, 2.19),
    size_claim("LWF-1: GPU utilization gained over FF", _LWF, paper.FF, _USE, 1.59),
    size_claim("LWF-1: GPU utilization gained over LS", _LWF, paper.LS, _USE, 1.7),
    level_claim("LWF-1: under 5% of the jobs take 5000 s or more", "< 5%", _ADA, _late, 0.05),
    best_claim("κ = 1: lowest average JCT of all κ", _LWF, paper.KAPPAS),
    order_claim("SRSF(1): lower average JCT than SRSF(2)", paper.SRSF_1, paper.SRSF_2, _JCT),
    order_claim("SRSF(1): lower average JCT than SRSF(3)", paper.SRSF_1, paper.SRSF_3, _JCT),
    best_claim("Ada-SRSF: lowest average JCT of the schedulers", _ADA, _S),
    size_claim("Ada-SRSF: average JCT saved against SRSF(1)", _ADA, paper.SRSF_1, _JCT, 1 - 0.201),
    size_claim("Ada-SRSF: average JCT saved against SRSF(2)", _ADA, paper.SRSF_2, _JCT, 1 - 0.367),
    size_claim("Ada-SRSF: GPU utilization gained over SRSF(1)", _ADA, paper.SRSF_1, _USE, 1.396),
    size_claim("Ada-SRSF: GPU utilization gained over SRSF(2)", _ADA, paper.SRSF_2, _USE, 1.649),
    size_claim("SRSF(1): 95th percentile above Ada-SRSF's", paper.SRSF_1, _ADA, _P95, 1.56),
    level_claim("Ada-SRSF: GPUs are busy less than half of the time", "< 50%", _ADA, _use, 0.5),
)


def findings(evaluation: Evaluation, setting: Setting) -> list[Finding]:
    """Judge every claim for which the setting has all runs."""
    return [
        claim.judge(evaluation, setting)
        for claim in CLAIMS
        if all(evaluation.has(setting(case)) for case in claim.cases)
    ]


def example_finding(examples: Sequence[Example]) -> Finding:
    """Judge the introduction's claim that four jobs at once are far slower than one alone."""
    ratios = [example.together_s / example.alone_s for example in examples]
    published = paper.TOGETHER_S / paper.ALONE_S
    return Finding(
        "Four jobs at once take much longer than one alone",
        wording.times(published),
        f"{wording.times(min(ratios))} to {wording.times(max(ratios))}, by model",
        "example",
        example_verdict(ratios, published),
    )


def _ratio(
    evaluation: Evaluation, upper: Case, lower: Case, metric: Metric, setting: Setting
) -> Estimate:
    return paired_ratio(*(evaluation.sample(setting(case), metric) for case in (upper, lower)))
