"""Weighted least squares with realistic intervals, for noise that grows with the value.

The spread of times is proportional to their length: a message of 64 MB varies by more milliseconds
than one of 64 KB, and both by about the same percentage; but a busy host delays both by the same
milliseconds. So the standard deviation of a time T is modelled as r * sqrt(T^2 + f^2), with the
floor f, and residuals are relative to that root. Weights come from predictions and not from the
times themselves, which would favour shots that happened to be fast.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from headway.calibrate.network.student import student_t
from headway.domain.estimates import Estimate

Row = tuple[float, ...]

ALIKE = 1.5
"""Lack of fit counts as noise up to this ratio of its mean square to that of repeats.

About the upper quartile of the F distribution, the usual threshold of a test that only
decides on pooling (T. A. Bancroft, Analysis and inference for incompletely specified models, 1964).
"""

FEWEST_REPEATS = 5
"""A group of this size has its own spread; smaller groups share one estimate."""

MAX_DEGREES = 1000
"""Beyond this, Student's t equals the normal distribution's to 0.1%."""

_ROUNDS = 5
"""Of reweighting by predictions; with 10% noise the fifth changes only the eighth digit."""


@dataclass(frozen=True, slots=True)
class Group:
    """Measurements of the same thing: value = known + row * coefficients, plus noise."""

    row: Row
    values: Sequence[float]
    known: float = 0.0


@dataclass(frozen=True, slots=True)
class Variance:
    """The variance of an estimate, and its degrees of freedom."""

    value: float
    degrees: float

    def margin(self, confidence: float = 0.95) -> float:
        """Return half the width of the interval."""
        whole = max(1, min(MAX_DEGREES, math.floor(self.degrees + 1e-9)))
        return student_t(whole, confidence) * math.sqrt(self.value)

    def around(self, value: float) -> Estimate:
        """Return the value with its 95% interval."""
        margin = self.margin()
        return Estimate(value, value - margin, value + margin)


def added(*parts: Variance) -> Variance:
    """Return the variance of a sum of independent parts (Satterthwaite's degrees of freedom)."""
    total = sum(part.value for part in parts)
    share = sum(part.value**2 / part.degrees for part in parts)
    return Variance(total, total**2 / share if share > 0 else min(part.degrees for part in parts))


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A group after the regression, with residuals relative to the scale."""

    row: Row
    scale: float
    residuals: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.fsum(self.residuals) / len(self.residuals)

    @property
    def squares(self) -> float:
        """The squares of the residuals about their own mean."""
        mean = self.mean
        return math.fsum((residual - mean) ** 2 for residual in self.residuals)


@dataclass(frozen=True, slots=True)
class Regression:
    """One or two coefficients, and the uncertainty of any combination of them."""

    coefficients: Row
    inverse: tuple[Row, ...]
    groups: tuple[_Fitted, ...]

    def value(self, weights: Row) -> float:
        """Return the weighted sum of the coefficients."""
        return _dot(weights, self.coefficients)

    def estimate(self, weights: Row) -> Estimate:
        """Return the weighted sum of the coefficients, with its 95% interval."""
        return self.variance(weights).around(self.value(weights))

    def variance(self, weights: Row) -> Variance:
        """Return the variance of the weighted sum of the coefficients.

        It is the one of up to four estimates with the widest interval: from all residuals; from the
        repeats within groups; from each group's own spread, if all have enough repeats (small
        messages may be noisier than large ones); and from the lack of fit, if the means of groups
        deviate by more than their repeats explain.
        """
        spread = _dot(weights, _times(self.inverse, weights))
        answers = [Variance(part.value * spread, part.degrees) for part in self._noise()]
        own = self._own_spreads(weights)
        return max([*answers, *own], key=Variance.margin)

    def repeats(self) -> Variance | None:
        """Return the relative variance of a value among its repeats, if there are any."""
        degrees = self._count - len(self.groups)
        if degrees == 0:
            return None
        return Variance(math.fsum(group.squares for group in self.groups) / degrees, degrees)

    @property
    def _count(self) -> int:
        return sum(len(group.residuals) for group in self.groups)

    def _noise(self) -> list[Variance]:
        degrees = self._count - len(self.coefficients)
        unfit = math.fsum(len(group.residuals) * group.mean**2 for group in self.groups)
        within = math.fsum(group.squares for group in self.groups)
        answers = [Variance((unfit + within) / degrees, degrees)]
        repeats, free = self.repeats(), len(self.groups) - len(self.coefficients)
        if repeats is not None:
            answers.append(repeats)
            if free and unfit / free > ALIKE * repeats.value:
                answers.append(Variance(unfit / free, free))
        return answers

    def _own_spreads(self, weights: Row) -> list[Variance]:
        if any(len(group.residuals) < FEWEST_REPEATS for group in self.groups):
            return []
        parts = []
        for group in self.groups:
            lever = _dot(weights, _times(self.inverse, group.row)) / group.scale
            count = len(group.residuals)
            own = group.squares / (count - 1)
            parts.append(Variance(count * lever**2 * own, count - 1))
        return [added(*parts)]


def regress(groups: Sequence[Group]) -> Regression:
    """Fit the coefficients; there must be as many different rows, and at least one more value."""
    middles = [statistics.median(group.values) for group in groups]
    floor = _floor(groups)
    scales = [math.hypot(middle, floor) for middle in middles]
    for _ in range(_ROUNDS):
        inverse, found = _solved(groups, scales)
        predicted = [group.known + _dot(group.row, found) for group in groups]
        # Values where the line is far off must not get all the weight.
        scales = [
            math.hypot(min(max(value, middle / 2), 2 * middle), floor)
            for value, middle in zip(predicted, middles, strict=True)
        ]
    fitted = tuple(
        _Fitted(group.row, scale, tuple((value - line) / scale for value in group.values))
        for group, line, scale in zip(groups, predicted, scales, strict=True)
    )
    return Regression(found, inverse, fitted)


def _floor(groups: Sequence[Group]) -> float:
    """Return f of the noise r * sqrt(T^2 + f^2); 0 if there are too few repeats.

    The groups with longer times give r, and then those with shorter times f, each by a median, so
    that a single group with an odd spread has no effect.
    """
    spreads = sorted(
        (statistics.fmean(group.values), statistics.stdev(group.values))
        for group in groups
        if len(group.values) >= FEWEST_REPEATS
    )
    if len(spreads) < 2:
        return 0.0
    half = len(spreads) // 2
    proportion = statistics.median(spread / time for time, spread in spreads[half:])
    if proportion == 0:
        return 0.0
    beyond = statistics.median(
        (spread / proportion) ** 2 - time**2 for time, spread in spreads[:half]
    )
    return math.sqrt(max(0.0, beyond))


def _solved(groups: Sequence[Group], scales: Sequence[float]) -> tuple[tuple[Row, ...], Row]:
    """Return (X'WX)^-1 and the coefficients, with weights 1 / scale^2."""
    weights = [len(group.values) / scale**2 for group, scale in zip(groups, scales, strict=True)]
    targets = [math.fsum(group.values) / len(group.values) - group.known for group in groups]

    def product(left: Sequence[float], right: Sequence[float]) -> float:
        return math.fsum(w * x * y for w, x, y in zip(weights, left, right, strict=True))

    columns = list(zip(*(group.row for group in groups), strict=True))
    square = product(columns[0], columns[0])
    first = product(columns[0], targets) / square
    if len(columns) == 1:
        return ((1 / square,),), (first,)
    # Orthogonalize the second column, to avoid subtracting nearly equal sums.
    share = product(columns[0], columns[1]) / square
    rest = [y - share * x for x, y in zip(*columns, strict=True)]
    rest_square = product(rest, rest)
    second = product(rest, targets) / rest_square
    off = -share / rest_square
    inverse = ((1 / square - share * off, off), (off, 1 / rest_square))
    return inverse, (first - share * second, second)


def _times(matrix: Sequence[Row], vector: Row) -> Row:
    return tuple(_dot(row, vector) for row in matrix)


def _dot(left: Row, right: Row) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))
