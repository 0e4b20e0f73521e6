"""Means over seeds with 95% confidence intervals, and paired comparisons on the same seeds.

Results vary more between seeds than between policies, so policies are compared seed by seed: the
interval of a difference or ratio then reflects the policies and not the workloads.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from headway.domain.estimates import CONFIDENCE, Estimate

__all__ = [
    "CONFIDENCE",
    "Estimate",
    "Sample",
    "mean",
    "paired_difference",
    "paired_ratio",
    "student_t",
]

Sample = NDArray[np.float64]
"""One figure per seed, in the order of the seeds."""


@cache
def student_t(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the t with P(|T| < t) = confidence for Student's distribution."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(degrees, (1 + confidence) / 2))


def mean(sample: Sample) -> Estimate:
    """Return the mean: x ± t * s / sqrt(n), with Student's t of n - 1 degrees of freedom."""
    return _around(float(sample.mean()), sample)


def paired_difference(sample: Sample, other: Sample) -> Estimate:
    """Return the mean of `sample - other`, seed by seed."""
    return mean(sample - other)


def paired_ratio(sample: Sample, other: Sample) -> Estimate:
    """Return r = mean(sample) / mean(other), as tables of means show it.

    Its standard error is that of the residuals sample - r * other (the ratio estimator of survey
    sampling), which is small where the two vary together.
    """
    scale = float(other.mean())
    ratio = float(sample.mean()) / scale
    return _around(ratio, (sample - ratio * other) / scale)


def _around(value: float, sample: Sample) -> Estimate:
    count = len(sample)
    spread = float(sample.std(ddof=1)) / math.sqrt(count)
    margin = student_t(count - 1) * spread
    return Estimate(value, value - margin, value + margin)
