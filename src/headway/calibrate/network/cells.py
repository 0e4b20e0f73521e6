"""Cells: the shots with the same k and size, and which of them are outliers."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.calibrate.network.samples import Sample, Shot, shots

FEWEST_REPEATS = 5
"""With fewer shots in a cell the spread is too uncertain to call one an outlier."""

BOUND = 5.0
"""Standard deviations above the median: 1 in 3 million shots of Gaussian noise."""

SMALLEST_SPREAD = 0.002
"""Relative to the median; without it, equal times would make outliers of all others."""

_GAUSSIAN = 1.4826
"""Standard deviations per median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The shots of one k and size: those kept, and the outliers."""

    k: int
    message_bytes: int
    kept: tuple[Shot, ...]
    outliers: tuple[Shot, ...]

    @property
    def times_ns(self) -> tuple[int, ...]:
        """The times of the kept shots."""
        return tuple(shot.time_ns for shot in self.kept)

    @property
    def median_ns(self) -> float:
        """The median of the kept times."""
        return statistics.median(self.times_ns)

    @property
    def quartiles_ns(self) -> tuple[float, float]:
        """The quartiles of the kept times; a single time is both."""
        times = self.times_ns
        if len(times) == 1:
            return float(times[0]), float(times[0])
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """The relative standard deviation of the kept times, estimated robustly."""
        return _spread(self.times_ns)


def cells_of(samples: Iterable[Sample]) -> list[Cell]:
    """Return the cells in order of k and size, with outliers separated.

    An outlier is more than `BOUND` standard deviations slower than the median of its cell. The
    deviation is estimated from median absolute deviations, which outliers do not affect: the larger
    of the cell's own and the typical one of all cells, because a cell of few shots can look
    more regular than it is. Only slow shots can be outliers: a lost packet or a busy host delays an
    all-reduce, but nothing makes one faster than its network.
    """
    together: dict[tuple[int, int], list[Shot]] = defaultdict(list)
    for shot in shots(samples):
        together[shot.k, shot.message_bytes].append(shot)
    spreads = [
        _spread([shot.time_ns for shot in members])
        for members in together.values()
        if len(members) >= FEWEST_REPEATS
    ]
    typical = max(SMALLEST_SPREAD, statistics.median(spreads)) if spreads else 0.0
    return [
        _cell(k, message_bytes, together[k, message_bytes], typical)
        for k, message_bytes in sorted(together)
    ]


def _cell(k: int, message_bytes: int, members: Sequence[Shot], typical: float) -> Cell:
    if len(members) < FEWEST_REPEATS:
        return Cell(k, message_bytes, tuple(members), ())
    times = [shot.time_ns for shot in members]
    bound_ns = statistics.median(times) * (1 + BOUND * max(typical, _spread(times)))
    kept = tuple(shot for shot in members if shot.time_ns <= bound_ns)
    outliers = tuple(shot for shot in members if shot.time_ns > bound_ns)
    return Cell(k, message_bytes, kept, outliers)


def _spread(times: Sequence[int]) -> float:
    middle = statistics.median(times)
    return _GAUSSIAN * statistics.median(abs(time - middle) for time in times) / middle
