"""Remarks on how measured times deviate from the model, and what to do about it.

A remark on the data needs a deviation that is significant, with a chance of less than 1 in 1000 to
be noise (Student's t), and large enough to matter.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.calibrate.network.cells import FEWEST_REPEATS, Cell
from headway.calibrate.network.regression import Group, Regression, Variance, added, regress
from headway.domain.estimates import Estimate
from headway.domain.models import MEBIBYTE
from headway.network.contention import cost_ns_per_byte

SURE = 0.999
"""Confidence that a remark needs."""

MATERIAL = 0.05
"""Smaller relative deviations of a time or a cost are not worth a remark."""

SMALL_ETA = 0.02
"""An eta below this share of b makes no difference to a schedule."""

NOISY = 0.10
VERY_NOISY = 0.25
MANY_OUTLIERS = 0.10


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark on a fit: a short code, and a sentence with figures."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Findings:
    """The basis of remarks: the cells, the regression of those with k = 1, the estimates."""

    cells: tuple[Cell, ...]
    base: Regression
    a_ns: Estimate
    b_ns_per_byte: Estimate
    eta_ns_per_byte: Estimate | None


def remarks(found: Findings) -> list[Remark]:
    """Return the remarks, most consequential first."""
    lines = _lines_by_k(found.cells)
    return [
        *_not_linear_in_size(found),
        *_latency_grows_with_k(found, lines),
        *_not_linear_in_k(found, lines),
        *_negative_latency(found),
        *_contention(found),
        *_noisy(found.cells),
        *_drift(found.cells),
    ]


def _contention(found: Findings) -> Iterator[Remark]:
    eta, b = found.eta_ns_per_byte, found.b_ns_per_byte.value
    if eta is None:
        yield Remark(
            "contention-not-measured",
            "Contention was not measured: there are no shots with k > 1. The network has eta = 0.",
        )
        return
    share = f"{eta.value / b:.1%} of b ({eta.low / b:.1%} to {eta.high / b:.1%})"
    clipped = " The network has eta = 0, and b from all shots." if eta.value < 0 else ""
    if eta.low <= 0 <= eta.high or abs(eta.value) < SMALL_ETA * b:
        small = max(abs(eta.low), abs(eta.high)) <= MATERIAL * b
        known = "Sharing costs little or nothing" if small else "It is unclear what sharing costs"
        advice = "" if small else " More shots would narrow this down."
        yield Remark(
            "eta-near-zero", f"{known} beyond the fair share: eta is {share}.{advice}{clipped}"
        )
    elif eta.value < 0:
        yield Remark(
            "eta-negative",
            f"Messages that share the network end sooner than fair shares predict: eta is {share}. "
            f"One message alone may not fill the link.{clipped}",
        )


def _negative_latency(found: Findings) -> Iterator[Remark]:
    a = found.a_ns
    if a.value < 0:
        yield Remark(
            "a-negative",
            f"The latency comes out below 0: a is {a.value / 1e6:.3g} ms ({a.low / 1e6:.3g} to "
            f"{a.high / 1e6:.3g} ms). The network has a = 0; measure smaller messages.",
        )


def _lines_by_k(cells: Sequence[Cell]) -> dict[int, Regression]:
    """Return a line a_k + c_k * M for each k with at least two sizes, one twice the other."""
    lines = {}
    for k in sorted({cell.k for cell in cells}):
        members = [cell for cell in cells if cell.k == k]
        sizes = [cell.message_bytes for cell in members]
        enough = sum(len(cell.kept) for cell in members) > 2
        if enough and max(sizes) >= 2 * min(sizes):
            lines[k] = regress(
                [Group((1.0, float(cell.message_bytes)), cell.times_ns) for cell in members]
            )
    return lines


def _latency_grows_with_k(found: Findings, lines: dict[int, Regression]) -> Iterator[Remark]:
    grown = []
    for k, line in lines.items():
        more = line.coefficients[0] - found.a_ns.value
        smallest = min(cell.median_ns for cell in found.cells if cell.k == k)
        variance = added(line.variance((1.0, 0.0)), found.base.variance((1.0, 0.0)))
        if k > 1 and more > MATERIAL * smallest and more > variance.margin(SURE):
            grown.append(f"{line.coefficients[0] / 1e6:.3g} ms at k = {k}")
    if grown:
        yield Remark(
            "latency-grows-with-k",
            f"The latency grows with the number of messages: {found.a_ns.value / 1e6:.3g} ms "
            f"alone, {_listed(grown)}; the model has one a for all k and underestimates small "
            "messages that contend.",
        )


def _not_linear_in_size(found: Findings) -> Iterator[Remark]:
    repeats, alone = found.base.repeats(), [cell for cell in found.cells if cell.k == 1]
    if repeats is None or len(alone) < 3:
        return
    off = []
    for cell, group in zip(alone, found.base.groups, strict=True):
        own = group.squares / max(1, len(cell.kept) - 1)
        noise = Variance(max(repeats.value, own) / len(cell.kept), repeats.degrees)
        line_ns = found.base.value((1.0, float(cell.message_bytes)))
        share = group.mean * group.scale / line_ns if line_ns > 0 else math.inf
        if abs(share) > MATERIAL and abs(group.mean) > noise.margin(SURE):
            off.append(f"{share:+.0%} at {_size(cell.message_bytes)}")
    if off:
        yield Remark(
            "not-linear-in-size",
            f"With k = 1 the times are not a + b*M: {_listed(off)} off the line. Fit only the "
            "sizes of your workload, or look for a change of algorithm between sizes.",
        )


def _not_linear_in_k(found: Findings, lines: dict[int, Regression]) -> Iterator[Remark]:
    eta, b = found.eta_ns_per_byte, found.b_ns_per_byte
    costs = {
        k: _cost(k, found, lines.get(k))
        for k in sorted({cell.k for cell in found.cells if cell.k > 1})
    }
    if eta is None or len(costs) < 2:
        return
    off = []
    for k, cost in costs.items():
        expected = cost_ns_per_byte(k, b.value, eta.value)
        if cost is None or expected <= 0:
            continue
        # eta is fitted to these costs; ignoring that can only suppress the remark.
        variance = added(cost[1], found.base.variance((0.0, float(k))))
        error = cost[0] - expected
        if abs(error) > max(MATERIAL * expected, variance.margin(SURE)):
            off.append(f"{error / expected:+.0%} at k = {k}")
    if off:
        yield Remark(
            "not-linear-in-k",
            f"A byte does not cost k*b + (k-1)*eta: {_listed(off)} off. Measure only the k that "
            "schedules will reach.",
        )


def _cost(k: int, found: Findings, line: Regression | None) -> tuple[float, Variance] | None:
    """Return the cost of a byte at k: from the line at k, or given a if there is none."""
    if line is not None:
        return line.coefficients[1], line.variance((0.0, 1.0))
    members = [cell for cell in found.cells if cell.k == k]
    if sum(len(cell.kept) for cell in members) < 2:
        return None
    a_ns = found.a_ns.value
    given = regress([Group((float(cell.message_bytes),), cell.times_ns, a_ns) for cell in members])
    return given.coefficients[0], given.variance((1.0,))


def _noisy(cells: Sequence[Cell]) -> Iterator[Remark]:
    repeated = [cell for cell in cells if len(cell.kept) >= FEWEST_REPEATS]
    if repeated:
        typical = statistics.median(cell.spread for cell in repeated)
        worst = max(repeated, key=lambda cell: cell.spread)
        if typical > NOISY or worst.spread > VERY_NOISY:
            yield Remark(
                "noisy",
                f"Repeated shots vary by {typical:.0%}, and by "
                f"{worst.spread:.0%} with k = {worst.k} and {_size(worst.message_bytes)}: look for "
                "other load on the network or the hosts, and measure more shots.",
            )
    outliers, kept = (
        sum(len(cell.outliers) for cell in cells),
        sum(len(cell.kept) for cell in cells),
    )
    if outliers > MANY_OUTLIERS * (outliers + kept):
        yield Remark(
            "many-outliers",
            f"{outliers} of {outliers + kept} shots were left out as outliers; jobs will see such "
            "delays too, but the fitted network does not include them.",
        )


def _drift(cells: Sequence[Cell]) -> Iterator[Remark]:
    """Compare shots only within their cell, so that the order of cells does not matter."""
    pairs, spans, used = [], [], 0
    for cell in cells:
        if len(cell.kept) < 3:
            continue
        mean = statistics.fmean(cell.times_ns)
        middle = statistics.fmean(shot.number for shot in cell.kept)
        pairs += [(shot.number - middle, shot.time_ns / mean - 1) for shot in cell.kept]
        spans.append(cell.kept[-1].number - cell.kept[0].number)
        used += 1
    degrees = len(pairs) - used - 1
    if degrees < 3:
        return
    square = math.fsum(x * x for x, _ in pairs)
    slope = math.fsum(x * y for x, y in pairs) / square
    noise = math.fsum((y - slope * x) ** 2 for x, y in pairs) / degrees
    change = slope * statistics.fmean(spans)
    sure = abs(slope) > Variance(noise / square, degrees).margin(SURE)
    if sure and abs(change) > MATERIAL:
        yield Remark(
            "drift",
            f"Times {'rise' if change > 0 else 'fall'} by {abs(change):.0%} from the first to the "
            "last shot of a cell: something changed during the measurement; repeat it when the "
            "cluster is warm and quiet.",
        )


def _listed(parts: Sequence[str], most: int = 6) -> str:
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def _size(message_bytes: int) -> str:
    return f"{message_bytes / MEBIBYTE:.3g} MB"
