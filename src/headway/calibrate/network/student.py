"""Quantiles of Student's distribution, without scipy: ranks have PyTorch and numpy alone."""

from __future__ import annotations

import math
from functools import cache

from headway.domain.estimates import CONFIDENCE


@cache
def student_t(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the t with P(|T| < t) = confidence for Student's distribution."""
    low, high = 0.0, 1e3
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if _inside(middle, degrees) < confidence:
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
