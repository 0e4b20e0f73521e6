"""Bounds that keep every sum of the engine inside int64, and the checks that enforce them."""

from __future__ import annotations

import math
import re

from headway.domain.errors import InputError, shown

HORIZON_NS = 2**62
"""The last instant of a simulation: 146 years."""

LONGEST_NS = 2**61
"""The longest duration: 73 years. HORIZON_NS plus this still fits an int64."""

MAX_BYTES = 2**53
"""The largest message or memory, 8 PiB: up to here float64 represents every whole number."""

MAX_GPUS = 2**24
MAX_JOBS = 10**7
MAX_ITERATIONS = 10**12
MAX_PRIORITY = 10**6

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE
)


def whole_from(text: str) -> int:
    """Return the whole number that a text is, written in the digits 0 to 9.

    Raises:
        ValueError: It is none.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def number_from(text: str) -> float:
    """Return the number that a text is, written in the digits 0 to 9; NaN and inf are numbers.

    Raises:
        ValueError: It is none.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def whole(value: int, field: str, least: int, most: int, unit: str = "") -> int:
    """Return `value` if it is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"must be a whole number, not {shown(value)}.", field=field)
    if not least <= value <= most:
        bound = f"at least {least:,}" if value < least else f"at most {most:,}"
        raise InputError(f"must be {bound}{unit}, not {shown(value)}.", field=field)
    return value


def text(value: str, field: str) -> str:
    """Return `value` if it is text that files can hold; JSON may have half a surrogate pair."""
    if not isinstance(value, str):
        raise InputError(f"must be a string, not {shown(value)}.", field=field)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"is no Unicode text: {shown(value)}.", field=field) from None
    return value


def scaled(
    value: float,
    factor: float,
    field: str,
    least: int,
    most: int,
    unit: str,
    given: str | None = None,
) -> int:
    """Convert a number from the user's unit to the engine's, rounding once with `round`.

    `least` and `most` are in the engine's unit; `given` is the number as the user wrote it.
    """
    wrote = shown(value if given is None else given)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"must be a number, not {wrote}.", field=field)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"must be a finite number of {unit}, not {wrote}.", field=field)
    if abs(value) > 2 * most / factor:
        converted = most + 1 if value > 0 else least - 1
    else:
        converted = round(value * factor)
    if converted < least:
        bound = f"at least {least / factor:.6f}" if least else "0 or more"
        raise InputError(f"must be {bound} {unit}, not {wrote}.", field=field)
    if converted > most:
        raise InputError(f"must be at most {most / factor:,.0f} {unit}, not {wrote}.", field=field)
    return converted
