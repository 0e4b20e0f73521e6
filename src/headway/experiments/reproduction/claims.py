"""The paper's claims, and the rules that decide whether they hold in our data.

Every rule judges figures with 95% confidence intervals over the same seeds: a claim "holds", "does
not hold", or "holds in part" where the data show less than was claimed or are inconclusive. The
rules are fixed here and printed in the report; every verdict is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headway.experiments.reproduction import paper
from headway.experiments.reproduction.contention import Example
from headway.experiments.reproduction.evaluation import Evaluation, Metric
from headway.experiments.reproduction.paper import Case
from headway.experiments.statistics import Estimate, mean, paired_ratio

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


Judge = Callable[[Evaluation, int], Finding]
"""Judges a claim on GPUs with the given memory in GB."""


def size_claim(claim: str, ours: Case, other: Case, metric: Metric, published: float) -> Judge:
    """Return the judge of a claimed ratio of two means."""

    def judge(evaluation: Evaluation, memory_gb: int) -> Finding:
        ratio = _ratio(evaluation, ours, other, metric, memory_gb)
        words = _percent if published < 1 else _times
        return Finding(
            claim,
            words(published),
            f"{words(ratio.value)} ({_range(words, ratio)})",
            "size",
            size_verdict(ratio, published),
            ratio,
            published,
        )

    return judge


def order_claim(claim: str, lower: Case, higher: Case, metric: Metric) -> Judge:
    """Return the judge of a claimed order of two means."""

    def judge(evaluation: Evaluation, memory_gb: int) -> Finding:
        ratio = _ratio(evaluation, lower, higher, metric, memory_gb)
        published = getattr(paper.PUBLISHED[lower], metric) / getattr(
            paper.PUBLISHED[higher], metric
        )
        return Finding(
            claim,
            _times(published),
            f"{_times(ratio.value)} ({_range(_times, ratio)})",
            "order",
            order_verdict(ratio),
            ratio,
            published,
        )

    return judge


def best_claim(claim: str, best: Case, others: Mapping[str, Case], worst: bool = False) -> Judge:
    """Return the judge of a claimed lowest (or highest) average completion time."""

    def judge(evaluation: Evaluation, memory_gb: int) -> Finding:
        rivals = {name: case for name, case in others.items() if case != best}
        ratios = {
            name: _ratio(evaluation, *((case, best) if worst else (best, case)), _JCT, memory_gb)
            for name, case in rivals.items()
        }
        rival = max(ratios, key=lambda name: ratios[name].value)
        shown = _ratio(evaluation, best, rivals[rival], _JCT, memory_gb)
        return Finding(
            claim,
            "highest" if worst else "lowest",
            f"{_times(shown.value)} that of {rival} ({_range(_times, shown)})",
            "best",
            best_verdict(list(ratios.values())),
        )

    return judge


def level_claim(
    claim: str, published: str, sample: Callable[[Evaluation, int], Estimate], most: float
) -> Judge:
    """Return the judge of a share that is claimed to be below a level."""

    def judge(evaluation: Evaluation, memory_gb: int) -> Finding:
        figure = sample(evaluation, memory_gb)
        return Finding(
            claim,
            published,
            f"{_share(figure.value)} ({_share(figure.low)} to {_share(figure.high)})",
            "level",
            level_verdict(figure, most),
        )

    return judge


_JCT: Metric = "average_jct_s"
_USE: Metric = "average_gpu_utilization"
_P95: Metric = "p95_jct_s"


def _late(evaluation: Evaluation, memory_gb: int) -> Estimate:
    case = paper.in_setting(paper.LWF_ADA, memory_gb)
    return mean(1 - evaluation.share_below(case, 5000))


def _use_of_ada(evaluation: Evaluation, memory_gb: int) -> Estimate:
    return mean(evaluation.sample(paper.in_setting(paper.LWF_ADA, memory_gb), _USE))


_P, _S = paper.PLACEMENTS, paper.SCHEDULERS
_LWF = _ADA = paper.LWF_ADA
_KAPPA = best_claim("κ = 1: lowest average JCT of all κ", _LWF, paper.KAPPAS)

CLAIMS: tuple[Judge, ...] = (
    best_claim("LWF-1: lowest average JCT of the placements", _LWF, _P),
    best_claim("RAND: highest average JCT of the placements", paper.RAND, _P, worst=True),
    order_claim("FF: lower average JCT than LS", paper.FF, paper.LS, _JCT),
    size_claim("LWF-1: average JCT saved against RAND", _LWF, paper.RAND, _JCT, 1 - 0.619),
    size_claim("LWF-1: average JCT saved against FF", _LWF, paper.FF, _JCT, 1 - 0.428),
    size_claim("LWF-1: average JCT saved against LS", _LWF, paper.LS, _JCT, 1 - 0.519),
    size_claim("LWF-1: GPU utilization gained over RAND", _LWF, paper.RAND, _USE, 2.19),
    size_claim("LWF-1: GPU utilization gained over FF", _LWF, paper.FF, _USE, 1.59),
    size_claim("LWF-1: GPU utilization gained over LS", _LWF, paper.LS, _USE, 1.7),
    level_claim("LWF-1: under 5% of the jobs take 5000 s or more", "< 5%", _late, 0.05),
    _KAPPA,
    order_claim("SRSF(1): lower average JCT than SRSF(2)", paper.SRSF_1, paper.SRSF_2, _JCT),
    order_claim("SRSF(1): lower average JCT than SRSF(3)", paper.SRSF_1, paper.SRSF_3, _JCT),
    best_claim("Ada-SRSF: lowest average JCT of the schedulers", _ADA, _S),
    size_claim("Ada-SRSF: average JCT saved against SRSF(1)", _ADA, paper.SRSF_1, _JCT, 1 - 0.201),
    size_claim("Ada-SRSF: average JCT saved against SRSF(2)", _ADA, paper.SRSF_2, _JCT, 1 - 0.367),
    size_claim("Ada-SRSF: GPU utilization gained over SRSF(1)", _ADA, paper.SRSF_1, _USE, 1.396),
    size_claim("Ada-SRSF: GPU utilization gained over SRSF(2)", _ADA, paper.SRSF_2, _USE, 1.649),
    size_claim("SRSF(1): 95th percentile above Ada-SRSF's", paper.SRSF_1, _ADA, _P95, 1.56),
    level_claim("Ada-SRSF: GPUs are busy less than half of the time", "< 50%", _use_of_ada, 0.5),
)


def findings(evaluation: Evaluation, memory_gb: int) -> list[Finding]:
    """Judge every claim for which the setting has runs; only 16 GB has runs of other κ."""
    judges = CLAIMS if memory_gb == 16 else [judge for judge in CLAIMS if judge is not _KAPPA]
    return [judge(evaluation, memory_gb) for judge in judges]


def example_finding(examples: Sequence[Example]) -> Finding:
    """Judge the introduction's claim that four jobs at once are far slower than one alone."""
    ratios = [example.together_s / example.alone_s for example in examples]
    published = paper.TOGETHER_S / paper.ALONE_S
    return Finding(
        "Four jobs at once take much longer than one alone",
        _times(published),
        f"{_times(min(ratios))} to {_times(max(ratios))}, by model",
        "example",
        example_verdict(ratios, published),
    )


def _ratio(
    evaluation: Evaluation, upper: Case, lower: Case, metric: Metric, memory_gb: int
) -> Estimate:
    samples = [
        evaluation.sample(paper.in_setting(case, memory_gb), metric) for case in (upper, lower)
    ]
    return paired_ratio(*samples)


def _share(value: float) -> str:
    return f"{value:.1%}".replace("-", "−")


def _percent(ratio: float) -> str:
    return _share(1 - ratio)


def _times(ratio: float) -> str:
    return f"{ratio:.2f}×".replace("-", "−")


def _range(words: Callable[[float], str], ratio: Estimate) -> str:
    ends = (ratio.high, ratio.low) if words is _percent else (ratio.low, ratio.high)
    return f"{words(ends[0])} to {words(ends[1])}"
