"""Means and maxima over equal periods, for many rows of periods at once, in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.results.usage import Integers

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Periods:
    """Rows of equal periods: row r divides the time from start to end into `count[r]`."""

    start_ns: Integers
    end_ns: Integers
    count: Integers

    @classmethod
    def alike(cls, rows: int, start_ns: int, end_ns: int, count: int) -> Periods:
        """Return rows that all divide the same time."""
        return cls(*(np.full(rows, value, np.int64) for value in (start_ns, end_ns, count)))

    @property
    def first(self) -> Integers:
        """The index of each row's first period among all, and at the end their number."""
        return np.concatenate([[0], np.cumsum(self.count)]).astype(np.int64)

    def mean(self, row: Integers, start_ns: Integers, end_ns: Integers) -> Floats:
        """Return how many spans are open in each period, on average."""
        mean: Floats = np.diff(self._elapsed(row, start_ns) - self._elapsed(row, end_ns))
        # Between two rows there is no period.
        return np.maximum(0.0, np.delete(mean, self.first[1:-1] + np.arange(len(self.count) - 1)))

    def most(self, row: Integers, start_ns: Integers, end_ns: Integers) -> Integers:
        """Return how many spans are open in each period, at most."""
        time_ns, rows = np.concatenate([end_ns, start_ns]), np.concatenate([row, row])
        change = np.repeat([-1, 1], len(row))
        # Ends come first: a span that begins when another ends does not overlap it. A span that
        # ends with a period is not open in the next.
        ended = np.ceil(self._position(row, end_ns)).astype(np.int64) - 1
        last = self.first[row] + np.maximum(0, ended)
        order = np.lexsort((change, time_ns, rows))
        level = np.cumsum(change[order])
        period = np.concatenate([last, self._period(row, start_ns)])[order]
        most = np.zeros(int(self.count.sum()), np.int64)
        np.maximum.at(most, period, level)
        # A level holds on into periods in which it does not change.
        changed = np.full(len(most), -1, np.int64)
        changed[period] = np.arange(len(level))
        before = np.concatenate([[-1], np.maximum.accumulate(changed)[:-1]])
        held = np.where(before >= 0, level[before], 0) if len(level) else np.zeros_like(most)
        return np.maximum(most, held)

    def count_before(self, row: Integers, time_ns: Integers) -> Integers:
        """Return how many instants of its row come before the end of each period."""
        position = self._period(row, time_ns)
        total = np.cumsum(np.bincount(position, minlength=int(self.count.sum())))
        before = np.concatenate([[0], total])[self.first[:-1]]
        found: Integers = (total - np.repeat(before, self.count)).astype(np.int64)
        return found

    def _position(self, row: Integers, time_ns: Integers) -> Floats:
        """Return where instants lie in their row, in periods."""
        length = self.end_ns[row] - self.start_ns[row]
        share = (time_ns - self.start_ns[row]) / np.maximum(1, length)
        position: Floats = np.clip(share, 0.0, 1.0) * self.count[row]
        return position

    def _period(self, row: Integers, time_ns: Integers) -> Integers:
        """Return the index of the period of each instant."""
        inside = np.minimum(self._position(row, time_ns), self.count[row] - 1)
        return self.first[row] + inside.astype(np.int64)

    def _elapsed(self, row: Integers, since_ns: Integers) -> Floats:
        """Return the time, in periods, since all instants of a row, at each edge of the row."""
        position = self._position(row, since_ns)
        edges = int(self.count.sum()) + len(self.count)
        first = self.first[:-1] + np.arange(len(self.count))
        # An instant counts from the next edge on.
        at = first[row] + np.minimum(np.ceil(position).astype(np.int64), self.count[row])
        number = np.cumsum(np.bincount(at, minlength=edges))
        total = np.cumsum(np.bincount(at, position, minlength=edges))
        sizes = self.count + 1
        edge = np.arange(edges) - np.repeat(first, sizes)
        before = np.concatenate([[0], number])[first], np.concatenate([[0.0], total])[first]
        number, total = number - np.repeat(before[0], sizes), total - np.repeat(before[1], sizes)
        elapsed: Floats = number * edge - total
        return elapsed
