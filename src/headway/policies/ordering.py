"""Sorting for placements."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.jit import routine

Integers = NDArray[np.int64]


@routine
def stable_sort(items: Integers, keys: NDArray[np.integer[Any]]) -> None:
    """Sort items by ascending keys[item], keeping the order of equals (a merge sort)."""
    count = len(items)
    source, target = items.copy(), items.copy()
    width = 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            left, right = low, middle
            for place in range(low, high):
                if left < middle and (right >= high or keys[source[left]] <= keys[source[right]]):
                    target[place] = source[left]
                    left += 1
                else:
                    target[place] = source[right]
                    right += 1
        source, target = target, source
        width *= 2
    items[:] = source
