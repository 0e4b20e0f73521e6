"""Verdicts follow from the data: other data, other verdicts."""

from __future__ import annotations

import pytest

from experiments.reproduction.crafted import crafted
from headway.experiments.reproduction import paper
from headway.experiments.reproduction.claims import (
    CLAIMS,
    RULES,
    Verdict,
    best_verdict,
    example_finding,
    example_verdict,
    findings,
    level_verdict,
    order_verdict,
    size_verdict,
)
from headway.experiments.reproduction.contention import Example
from headway.experiments.reproduction.paper import Case, with_memory
from headway.experiments.statistics import Estimate

HOLDS, IN_PART, FAILS = Verdict.HOLDS, Verdict.IN_PART, Verdict.FAILS


@pytest.mark.parametrize(
    ("low", "high", "published", "verdict"),
    [
        (0.75, 0.85, 0.8, HOLDS),
        (0.60, 0.70, 0.8, HOLDS),
        (0.85, 0.95, 0.8, IN_PART),
        (0.70, 1.10, 0.8, IN_PART),
        (0.85, 1.10, 0.8, FAILS),
        (1.05, 1.15, 0.8, FAILS),
        (1.50, 1.70, 1.6, HOLDS),
        (2.00, 2.20, 1.6, HOLDS),
        (1.10, 1.50, 1.6, IN_PART),
        (0.95, 1.70, 1.6, IN_PART),
        (0.95, 1.50, 1.6, FAILS),
        (0.50, 0.60, 1.6, FAILS),
        (-0.3, 1.70, 1.6, IN_PART),
    ],
)
def test_a_claimed_size(low: float, high: float, published: float, verdict: Verdict) -> None:
    assert size_verdict(Estimate((low + high) / 2, low, high), published) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.8, 0.9, HOLDS), (0.8, 1.1, IN_PART), (0.9, 1.2, IN_PART), (1.1, 1.2, FAILS)],
)
def test_a_claimed_order(low: float, high: float, verdict: Verdict) -> None:
    assert order_verdict(Estimate((low + high) / 2, low, high)) == verdict


@pytest.mark.parametrize(
    ("ranges", "verdict"),
    [
        ([(0.8, 0.9), (0.5, 0.6)], HOLDS),
        ([(0.8, 1.1), (0.5, 0.6)], IN_PART),
        ([(0.95, 1.1), (0.5, 0.6)], IN_PART),
        ([(0.8, 1.1), (0.9, 1.1)], IN_PART),
        ([(1.1, 1.2), (0.5, 0.6)], FAILS),
    ],
)
def test_a_claimed_best(ranges: list[tuple[float, float]], verdict: Verdict) -> None:
    ratios = [Estimate((low + high) / 2, low, high) for low, high in ranges]
    assert best_verdict(ratios) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.01, 0.04, HOLDS), (0.01, 0.06, IN_PART), (0.04, 0.08, IN_PART), (0.1, 0.2, FAILS)],
)
def test_a_claimed_level(low: float, high: float, verdict: Verdict) -> None:
    assert level_verdict(Estimate((low + high) / 2, low, high), 0.05) == verdict


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [([2.0, 3.0], HOLDS), ([2.5, 3.0], HOLDS), ([1.5, 2.0], IN_PART), ([0.9, 3.0], FAILS)],
)
def test_the_introductions_example(ratios: list[float], verdict: Verdict) -> None:
    assert example_verdict(ratios, 2.29) == verdict
    found = [Example("vgg16", 1, 100.0, 100.0 * ratio, 0.0, 0.0) for ratio in ratios]
    assert example_finding(found).verdict == verdict


def verdict_of(claim: str, *arguments: dict[Case, float]) -> Verdict:
    evaluation = crafted(*arguments)
    (found,) = [f for f in findings(evaluation, with_memory(16)) if f.claim == claim]
    return found.verdict


ADA, ONE, TWO = paper.LWF_ADA, paper.SRSF_1, paper.SRSF_2


@pytest.mark.parametrize(
    ("claim", "jct_s", "verdict"),
    [
        ("Ada-SRSF: average JCT saved against SRSF(1)", {ADA: 799}, HOLDS),
        ("Ada-SRSF: average JCT saved against SRSF(1)", {ADA: 600}, HOLDS),
        ("Ada-SRSF: average JCT saved against SRSF(1)", {ADA: 950}, IN_PART),
        ("Ada-SRSF: average JCT saved against SRSF(1)", {ADA: 1045}, FAILS),
        ("Ada-SRSF: average JCT saved against SRSF(2)", {ADA: 633}, HOLDS),
        ("Ada-SRSF: average JCT saved against SRSF(2)", {ADA: 800}, IN_PART),
        ("SRSF(1): 95th percentile above Ada-SRSF's", {ADA: 640}, HOLDS),
        ("SRSF(1): 95th percentile above Ada-SRSF's", {ADA: 800}, IN_PART),
        ("SRSF(1): 95th percentile above Ada-SRSF's", {ADA: 1100}, FAILS),
        ("Ada-SRSF: lowest average JCT of the schedulers", {ADA: 900}, HOLDS),
        ("Ada-SRSF: lowest average JCT of the schedulers", {ADA: 900, ONE: 850}, FAILS),
        ("LWF-1: lowest average JCT of the placements", {ADA: 900}, HOLDS),
        ("LWF-1: lowest average JCT of the placements", {paper.FF: 900}, FAILS),
        ("RAND: highest average JCT of the placements", {paper.RAND: 2000}, HOLDS),
        ("RAND: highest average JCT of the placements", {paper.LS: 2000}, FAILS),
        ("FF: lower average JCT than LS", {paper.FF: 900}, HOLDS),
        ("FF: lower average JCT than LS", {paper.LS: 900}, FAILS),
        ("κ = 1: lowest average JCT of all κ", {ADA: 900}, HOLDS),
        ("κ = 1: lowest average JCT of all κ", {paper.KAPPAS["κ = 8"]: 900}, FAILS),
        ("SRSF(1): lower average JCT than SRSF(2)", {TWO: 1100}, HOLDS),
        ("SRSF(1): lower average JCT than SRSF(2)", {TWO: 900}, FAILS),
        ("LWF-1: under 5% of the jobs take 5000 s or more", {ADA: 500}, HOLDS),
        ("LWF-1: under 5% of the jobs take 5000 s or more", {ADA: 9000}, FAILS),
    ],
)
def test_a_verdict_on_completion_times_flips_with_the_data(
    claim: str, jct_s: dict[Case, float], verdict: Verdict
) -> None:
    assert verdict_of(claim, jct_s) == verdict


@pytest.mark.parametrize(
    ("claim", "utilization", "verdict"),
    [
        ("LWF-1: GPU utilization gained over FF", {ADA: 0.32}, HOLDS),
        ("LWF-1: GPU utilization gained over FF", {ADA: 0.25}, IN_PART),
        ("LWF-1: GPU utilization gained over FF", {ADA: 0.15}, FAILS),
        ("Ada-SRSF: GPU utilization gained over SRSF(1)", {ADA: 0.2793}, HOLDS),
        ("Ada-SRSF: GPU utilization gained over SRSF(1)", {ADA: 0.18}, FAILS),
        ("Ada-SRSF: GPUs are busy less than half of the time", {ADA: 0.45}, HOLDS),
        ("Ada-SRSF: GPUs are busy less than half of the time", {ADA: 0.55}, FAILS),
    ],
)
def test_a_verdict_on_utilization_flips_with_the_data(
    claim: str, utilization: dict[Case, float], verdict: Verdict
) -> None:
    assert verdict_of(claim, {}, utilization) == verdict


def test_a_setting_is_judged_by_its_own_runs() -> None:
    other = paper.in_setting(ADA, 32)
    evaluation = crafted({other: 700})
    claim = "Ada-SRSF: average JCT saved against SRSF(1)"
    verdicts = {
        memory: next(
            f.verdict for f in findings(evaluation, with_memory(memory)) if f.claim == claim
        )
        for memory in (16, 32)
    }
    assert verdicts == {16: FAILS, 32: HOLDS}


def test_claims_differ_and_name_their_rules() -> None:
    found = findings(crafted({}), with_memory(16))
    assert len({finding.claim for finding in found}) == len(found) == len(CLAIMS)
    assert {finding.rule for finding in found} | {"example"} == set(RULES)


def test_published_ratios_agree_with_the_published_tables() -> None:
    """The percentages of the paper's text are those of its tables, within their rounding."""
    jct = {case: row.average_jct_s for case, row in paper.PUBLISHED.items()}
    use = {case: row.average_gpu_utilization for case, row in paper.PUBLISHED.items()}
    p95 = {case: row.p95_jct_s for case, row in paper.PUBLISHED.items()}
    by_claim = {f.claim: f.published_ratio for f in findings(crafted({}), with_memory(16))}
    expected = {
        "LWF-1: average JCT saved against RAND": jct[ADA] / jct[paper.RAND],
        "LWF-1: average JCT saved against FF": jct[ADA] / jct[paper.FF],
        "LWF-1: average JCT saved against LS": jct[ADA] / jct[paper.LS],
        "LWF-1: GPU utilization gained over RAND": use[ADA] / use[paper.RAND],
        "LWF-1: GPU utilization gained over FF": use[ADA] / use[paper.FF],
        "LWF-1: GPU utilization gained over LS": use[ADA] / use[paper.LS],
        "Ada-SRSF: average JCT saved against SRSF(1)": jct[ADA] / jct[ONE],
        "Ada-SRSF: average JCT saved against SRSF(2)": jct[ADA] / jct[TWO],
        "Ada-SRSF: GPU utilization gained over SRSF(1)": use[ADA] / use[ONE],
        "Ada-SRSF: GPU utilization gained over SRSF(2)": use[ADA] / use[TWO],
        "SRSF(1): 95th percentile above Ada-SRSF's": p95[ONE] / p95[ADA],
    }
    for claim, ratio in expected.items():
        assert by_claim[claim] == pytest.approx(ratio, abs=0.012), claim
