"""How reports write estimates: shares, ratios, margins and intervals."""

from __future__ import annotations

from collections.abc import Callable

from headway.domain.estimates import Estimate


def share(value: float) -> str:
    """Write 0.123 as 12.3%."""
    return _minus(f"{value:.1%}")


def saved(ratio: float) -> str:
    """Write the ratio 0.8 as 20.0%, what is saved."""
    return share(1 - ratio)


def times(ratio: float) -> str:
    """Write 1.234 as 1.23×."""
    return _minus(f"{ratio:.2f}×")


def with_interval(words: Callable[[float], str], estimate: Estimate) -> str:
    """Write an estimate and its interval, such as `0.90× (0.85× to 0.95×)`, low end first."""
    ends = (estimate.low, estimate.high)
    if words is saved:
        ends = (estimate.high, estimate.low)
    return f"{words(estimate.value)} ({words(ends[0])} to {words(ends[1])})"


def ratio(estimate: Estimate) -> str:
    """Write a ratio and its interval in a narrow column, such as `0.90 (0.85 to 0.95)`."""
    if estimate.value != estimate.value:
        return "none"
    return with_interval(lambda value: _minus(f"{value:.2f}"), estimate)


def ratio_with_bounds(estimate: Estimate) -> str:
    """Write a ratio and, if it has one, its interval, such as `0.904  [0.853, 0.951]`."""
    bounds = f"  [{estimate.low:.3f}, {estimate.high:.3f}]" if estimate.has_interval else ""
    return f"{estimate.value:.3f}{bounds}"


def with_margin(estimate: Estimate, digits: int = 0, unit: float = 1.0, sign: str = "") -> str:
    """Write a figure in some unit and, if it has one, its margin, such as `1,234 ± 56`."""
    if estimate.value != estimate.value:
        return "none"
    margin = f" ± {estimate.margin / unit:,.{digits}f}" if estimate.has_interval else ""
    return f"{estimate.value / unit:{sign},.{digits}f}{margin}"


def percent_with_margin(estimate: Estimate) -> str:
    """Write a share and its margin, such as `12.34 ± 0.56%`."""
    return f"{100 * estimate.value:.2f} ± {100 * estimate.margin:.2f}%"


def signed(value: float) -> str:
    """Write a difference with its sign."""
    return _minus(f"{value:+,.0f}")


def points(estimate: Estimate) -> str:
    """Write a difference of shares in percentage points."""
    return _minus(f"{100 * estimate.value:+.2f} ± {100 * estimate.margin:.2f}")


def _minus(text: str) -> str:
    return text.replace("-", "−")
