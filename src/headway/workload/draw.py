"""Random draws that are the same on every Python, and the division of jobs by share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

MAX_JOBS = 10**7
LONGEST_SPAN_S = 10**9

Item = TypeVar("Item")


class Draw:
    """Integers and shuffles from `random()` alone, the one method that is stable across Pythons."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        """Return an integer from low to high, inclusive."""
        return low + int(self._random.random() * (high - low + 1))

    def shuffle(self, items: list[Item]) -> None:
        """Shuffle the items in place (Fisher-Yates)."""
        for end in range(len(items) - 1, 0, -1):
            other = self.integer(0, end)
            items[end], items[other] = items[other], items[end]


def counts_by_share(jobs: int, shares: Sequence[float]) -> list[int]:
    """Split jobs by share, by the largest-remainder method."""
    total = sum(shares)
    exact = [jobs * share / total for share in shares]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for index in by_remainder[: jobs - sum(counts)]:
        counts[index] += 1
    return counts
