"""The accuracy of a sampled simulation, as users write it."""

from __future__ import annotations

import math

from headway.domain.errors import InputError, shown
from headway.domain.limits import number_from


def accuracy_from(given: float | str) -> float:
    """Return a relative error such as 0.01, given as that or as the text `1%` or `0.01`.

    Raises:
        InputError: It is neither, or not more than 0 and less than 1.
    """
    value = math.nan
    try:
        if isinstance(given, str):
            number = given.strip()
            percent = number.endswith("%")
            value = number_from(number.removesuffix("%").strip()) / (100 if percent else 1)
        elif not isinstance(given, bool):
            value = float(given)
    except (TypeError, ValueError, OverflowError):
        pass
    if not 0 < value < 1:
        raise InputError(
            f"must be more than 0 and less than 100%, such as 1% or 0.01, not {shown(given)}.",
            field="accuracy",
        )
    return value
