"""The quantiles that calibration computes without scipy are scipy's."""

from __future__ import annotations

import pytest
from scipy.special import stdtrit  # type: ignore[import-untyped]

from headway.calibrate.network.student import student_t


@pytest.mark.parametrize("confidence", [0.5, 0.68, 0.9, 0.95, 0.99, 0.999])
def test_quantiles_are_those_of_scipy(confidence: float) -> None:
    for degrees in [*range(1, 200), 999, 10_000]:
        expected = float(stdtrit(degrees, (1 + confidence) / 2))
        assert student_t(degrees, confidence) == pytest.approx(expected, rel=1e-11)
