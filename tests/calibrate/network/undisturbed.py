"""Measurements on a machine that does other things too."""

from __future__ import annotations

from collections.abc import Callable

MEASUREMENTS = 3


def undisturbed(is_right: Callable[[], bool]) -> None:
    """Measure until the result is right: other tests may disturb one measurement, hardly three."""
    assert any(is_right() for _ in range(MEASUREMENTS)), f"wrong {MEASUREMENTS} times"
