"""Means over seeds with 95% confidence intervals, and paired comparisons on the same seeds.

Results vary more between seeds than between policies, so policies are compared seed by seed: the
interval of a difference or ratio then reflects the policies and not the workloads.

A single seed has no such interval. Its figure may have a margin of its own, if it was sampled;
otherwise the bounds are NaN. With several seeds the errors of sampling are part of the spread.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from headway.domain.estimates import CONFIDENCE, Estimate

__all__ = [
    "CONFIDENCE",
    "OF_SAMPLING_ONLY",
    "Estimate",
    "Sample",
    "mean",
    "paired_difference",
    "paired_ratio",
    "student_t",
]

Sample = NDArray[np.float64]
"""One figure per seed, in the order of the seeds."""

Margins = tuple[float, float]
"""The margins of sampling of two figures of a single seed; 0 if there is none."""

OF_SAMPLING_ONLY = (
    "95% intervals of single runs cover the error of sampling only; another workload may reverse "
    "the order."
)
"""What readers of a sampled run on a single workload should know."""


@cache
def student_t(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the t with P(|T| < t) = confidence for Student's distribution."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(degrees, (1 + confidence) / 2))


def mean(sample: Sample, margin: float = 0.0) -> Estimate:
    """Return the mean: x ± t * s / sqrt(n), with Student's t of n - 1 degrees of freedom.

    `margin`, as `margins` below, is that of sampling; it counts if there is a single seed.
    """
    return _around(float(sample.mean()), sample, margin)


def paired_difference(sample: Sample, other: Sample, *, margins: Margins = (0.0, 0.0)) -> Estimate:
    """Return the mean of `sample - other`, seed by seed."""
    return mean(sample - other, math.hypot(*margins))


def paired_ratio(sample: Sample, other: Sample, *, margins: Margins = (0.0, 0.0)) -> Estimate:
    """Return r = mean(sample) / mean(other), as tables of means show it.

    Its standard error is that of the residuals sample - r * other (the ratio estimator of survey
    sampling), which is small where the two vary together.
    """
    scale = float(other.mean())
    ratio = float(sample.mean()) / scale
    margin = math.hypot(margins[0], ratio * margins[1]) / scale
    return _around(ratio, (sample - ratio * other) / scale, margin)


def _around(value: float, sample: Sample, margin: float) -> Estimate:
    count = len(sample)
    if count == 1:
        margin = margin or math.nan
        return Estimate(value, value - margin, value + margin)
    spread = float(sample.std(ddof=1)) / math.sqrt(count)
    margin = student_t(count - 1) * spread
    return Estimate(value, value - margin, value + margin)
