"""Durations in words, for people."""

from __future__ import annotations

import math
from itertools import pairwise

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


_LEAST_SHARE = 0.03
"""Before this share is done, the time left would be a guess: the start is slower than the rest."""


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units, such as `2 d 4 h`; below a minute, `12.3 s`."""
    if seconds < 0:
        return f"-{duration_text(-seconds)}"
    if seconds < 59.95:
        return (
            f"{seconds:.1f} s" if seconds >= 0.9995 or not seconds else f"{1000 * seconds:.3g} ms"
        )
    (unit, size), (lower, lower_size) = next(
        pair for pair in pairwise(_UNITS) if round(seconds) >= pair[0][1]
    )
    whole, rest = divmod(round(seconds / lower_size), size // lower_size)
    return f"{whole:,} {unit}" + (f" {rest} {lower}" if rest else "")


def milliseconds_text(time_ns: int) -> str:
    """Return a time as a number of ms, to the microsecond; below half of that, to the ns."""
    return f"{time_ns / 1e6:,.{3 if time_ns >= 500 or not time_ns else 6}f}"


def time_left_text(elapsed_s: float, share: float) -> str:
    """Return `12 s left` for work of which this share is done; at first, nothing."""
    if share < _LEAST_SHARE:
        return ""
    return left_text(elapsed_s * (1 - share) / share)


def left_text(left_s: float) -> str:
    """Return a time left in words, in whole seconds: `12 s left`."""
    whole_s = math.ceil(left_s)
    return f"{whole_s} s left" if whole_s < 60 else f"{duration_text(whole_s)} left"
