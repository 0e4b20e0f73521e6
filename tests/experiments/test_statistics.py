"""Intervals are those of the textbooks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headway.experiments.statistics import (
    Estimate,
    mean,
    paired_difference,
    paired_ratio,
    student_t,
)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (3, 3.1824),
        (4, 2.7764),
        (9, 2.2622),
        (10, 2.2281),
        (19, 2.0930),
        (30, 2.0423),
        (120, 1.9799),
        (999, 1.9623),
    ],
)
def test_students_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert student_t(degrees) == pytest.approx(quantile, abs=6e-5)


def test_a_mean_has_students_interval() -> None:
    estimate = mean(np.array([1.0, 2.0, 3.0, 4.0]))
    margin = 3.1824463 * math.sqrt(5 / 3) / 2
    assert estimate.value == 2.5
    assert estimate.margin == pytest.approx(margin)
    assert (estimate.low, estimate.high) == pytest.approx((2.5 - margin, 2.5 + margin))


def test_a_single_figure_has_the_interval_of_its_own_margin() -> None:
    one, other = np.array([120.0]), np.array([100.0])
    assert mean(one, 6.0) == Estimate(120.0, 114.0, 126.0)
    assert paired_difference(one, other, margins=(3.0, 4.0)) == Estimate(20.0, 15.0, 25.0)
    ratio = paired_ratio(one, other, margins=(3.6, 4.0))  # 3% and 4%: 5% of 1.2
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((1.14, 1.2, 1.26))
    for alone in (mean(one), paired_difference(one, other), paired_ratio(one, other)):
        assert not alone.has_interval
        assert math.isnan(alone.margin)


def test_a_ratio_of_several_needs_no_margins_and_no_first_figure_other_than_0() -> None:
    ratio = paired_ratio(np.array([0.0, 2.0, 3.0]), np.array([1.0, 0.0, 4.0]), margins=(9.0, 9.0))
    assert ratio == paired_ratio(np.array([0.0, 2.0, 3.0]), np.array([1.0, 0.0, 4.0]))
    assert ratio.value == 1


def test_variation_shared_by_both_policies_does_not_widen_a_paired_difference() -> None:
    seeds = np.array([100.0, 900.0, 400.0, 2000.0])
    ours, theirs = seeds + np.array([5.0, 6.0, 5.0, 6.0]), seeds
    difference = paired_difference(ours, theirs)
    assert difference.value == 5.5
    assert difference.margin < 1
    assert mean(seeds).margin > 1000


def test_a_ratio_is_that_of_the_means_and_exact_when_seeds_agree() -> None:
    theirs = np.array([100.0, 900.0, 400.0])
    ratio = paired_ratio(0.8 * theirs, theirs)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((0.8, 0.8, 0.8))
    uneven = paired_ratio(np.array([1.0, 2.0, 6.0]), np.array([2.0, 2.0, 2.0]))
    assert uneven.value == 1.5
    assert uneven.low < 1.5 < uneven.high


def test_intervals_have_their_stated_coverage() -> None:
    draw = np.random.default_rng(1)
    tries = 4000
    hits = [0, 0, 0]
    for _ in range(tries):
        seeds = draw.normal(1000, 200, 8)
        ours = 0.9 * seeds + draw.normal(0, 30, 8)
        for place, (estimate, truth) in enumerate(
            (
                (mean(seeds), 1000),
                (paired_difference(ours, seeds), -100),
                (paired_ratio(ours, seeds), 0.9),
            )
        ):
            hits[place] += estimate.low < truth < estimate.high
    assert all(0.935 < count / tries < 0.965 for count in hits)
