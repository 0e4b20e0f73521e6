"""Means over seeds, with 95% confidence intervals, and comparisons of policies on the same seeds.

Seeds vary more than policies do, so policies are compared seed by seed: the interval of a
difference or a ratio then holds what the policies do, and not what the workloads do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95

Sample = NDArray[np.float64]
"""One figure per seed, in the order of the seeds."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95% confidence interval."""

    value: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def mean(sample: Sample) -> Estimate:
    """Return the mean: x ± t * s / sqrt(n), with Student's t of n - 1 degrees of freedom."""
    return _around(float(sample.mean()), sample)


def paired_difference(sample: Sample, other: Sample) -> Estimate:
    """Return the mean of `sample - other`, seed by seed."""
    return mean(sample - other)


def paired_ratio(sample: Sample, other: Sample) -> Estimate:
    """Return r = mean(sample) / mean(other), as tables of means show it.

    Its standard error is that of the residuals sample - r * other (the ratio estimator of survey
    sampling), which is small where the two rise and fall together.
    """
    scale = float(other.mean())
    ratio = float(sample.mean()) / scale
    return _around(ratio, (sample - ratio * other) / scale)


def _around(value: float, sample: Sample) -> Estimate:
    count = len(sample)
    spread = float(sample.std(ddof=1)) / math.sqrt(count)
    margin = student_t(count - 1) * spread
    return Estimate(value, value - margin, value + margin)


@cache
def student_t(degrees: int) -> float:
    """Return the t with P(|T| < t) = 0.95 for Student's distribution."""
    low, high = 0.0, 1e3
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if _inside(middle, degrees) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _inside(t: float, degrees: int) -> float:
    """Return P(|T| < t), by its finite series in cos(theta) for whole degrees of freedom.

    With theta = atan(t / sqrt(degrees)); Abramowitz and Stegun, Handbook of Mathematical Functions,
    26.7.3 and 26.7.4.
    """
    theta = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term = total = math.cos(theta) if odd else 1.0
    for i in range(2 + odd, degrees, 2):
        term *= math.cos(theta) ** 2 * (i - 1) / i
        total += term
    if not odd:
        return math.sin(theta) * total
    series = math.sin(theta) * total if degrees > 1 else 0.0
    return 2 / math.pi * (theta + series)
