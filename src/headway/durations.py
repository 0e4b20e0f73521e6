"""Durations in words, for people."""

from __future__ import annotations

from itertools import pairwise

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


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
