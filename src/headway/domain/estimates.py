"""Figures with confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95% confidence interval, whose bounds are NaN if it has none."""

    value: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        """Whether the bounds are known."""
        return not math.isnan(self.low)

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2
