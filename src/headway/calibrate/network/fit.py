"""Fits a, b and eta of T = a + k*b*M + (k-1)*eta*M to samples, with 95% intervals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headway.calibrate.network.cells import Cell, cells_of
from headway.calibrate.network.diagnosis import Findings, Remark, remarks
from headway.calibrate.network.regression import Group, Regression, added, regress
from headway.calibrate.network.samples import Sample
from headway.domain.errors import InputError
from headway.domain.estimates import Estimate
from headway.network.contention import NetworkModel

SPARE_SHOTS = 3
"""Shots needed beyond the number of coefficients, to give an interval."""

MAX_CELLS = 4096
"""Different combinations of k and size, all of which are written to the network's file."""

TYPICAL_RESIDUAL = 0.05
LARGEST_RESIDUAL = 0.15


@dataclass(frozen=True, slots=True)
class CellFit:
    """A cell compared with the fit: its shots without outliers, and the prediction."""

    k: int
    message_bytes: int
    shots: int
    outliers: int
    median_ns: float
    quartiles_ns: tuple[float, float]
    predicted_ns: int

    @property
    def residual(self) -> float:
        """The deviation of the median from the prediction, relative to the prediction."""
        return self.median_ns / self.predicted_ns - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """The fitted contention model, and how well it describes the measurement.

    The estimates are as fitted and may be below 0; `network` is the one to simulate, in which such
    an a or eta is 0, and the others are fitted again without it. `eta_ns_per_byte` is None if
    nothing was measured with k > 1.
    """

    a_ns: Estimate
    b_ns_per_byte: Estimate
    eta_ns_per_byte: Estimate | None
    network: NetworkModel
    cells: tuple[CellFit, ...]
    remarks: tuple[Remark, ...]

    @property
    def shots(self) -> int:
        """The number of shots in the fit, without outliers."""
        return sum(cell.shots for cell in self.cells)

    @property
    def outliers(self) -> int:
        """The number of shots left out."""
        return sum(cell.outliers for cell in self.cells)

    @property
    def median_residual(self) -> float:
        """The median over the cells of |measured / predicted - 1|."""
        return statistics.median(abs(cell.residual) for cell in self.cells)

    @property
    def largest_residual(self) -> float:
        """The largest over the cells of |measured / predicted - 1|."""
        return max(abs(cell.residual) for cell in self.cells)

    @property
    def fits(self) -> bool:
        """Whether the model describes this network.

        It does if half of the cells are within 5% of the prediction and all are within 15%: a
        simulation is then off by a few percent at most, less than the difference between policies.
        """
        return (
            self.median_residual <= TYPICAL_RESIDUAL and self.largest_residual <= LARGEST_RESIDUAL
        )


def fit(samples: Iterable[Sample]) -> Fit:
    """Fit a and b to the shots with k = 1, then eta to those with k > 1.

    With a and b given, eta = sum(w x y) / sum(w x^2) over the shots with x = (k-1)*M,
    y = T - a - k*b*M and w = 1 / prediction^2. Its interval includes the uncertainty of a and b.
    """
    cells = cells_of(samples)
    if len(cells) > MAX_CELLS:
        raise InputError(f"more than {MAX_CELLS:,} combinations of k and message_bytes.")
    alone = [cell for cell in cells if cell.k == 1]
    shared = [cell for cell in cells if cell.k > 1]
    _check_enough(alone, shared)
    base = _regress(alone, lambda k, size: (1.0, k * size))
    a_ns, b_ns_per_byte = base.estimate((1.0, 0.0)), base.estimate((0.0, 1.0))
    if b_ns_per_byte.value <= 0:
        raise InputError(
            "with k = 1 the times do not grow with message_bytes: b would be "
            f"{b_ns_per_byte.value:.3g} ns/byte; measure larger messages, and more shots."
        )
    eta_ns_per_byte = _eta(shared, base) if shared else None
    network = _network(alone, shared)
    findings = Findings(tuple(cells), base, a_ns, b_ns_per_byte, eta_ns_per_byte)
    return Fit(
        a_ns,
        b_ns_per_byte,
        eta_ns_per_byte,
        network,
        tuple(_beside(cell, network) for cell in cells),
        tuple(remarks(findings)),
    )


def _check_enough(alone: Sequence[Cell], shared: Sequence[Cell]) -> None:
    sizes = [cell.message_bytes for cell in alone]
    if not sizes or max(sizes) < 2 * min(sizes):
        raise InputError(
            "a and b need shots with k = 1 of at least two sizes, one at least twice the other; "
            f"there {'is' if len(sizes) == 1 else 'are'} {', '.join(map(str, sizes[:8])) or 'none'}"
            f"{'…' * (len(sizes) > 8)}."
        )
    for members, name, coefficients in ((alone, "k = 1", 2), (shared, "k > 1", 1)):
        count, needed = sum(len(cell.kept) for cell in members), coefficients + SPARE_SHOTS
        if members and count < needed:
            raise InputError(
                f"an interval needs at least {needed} shots with {name}; there are {count}."
            )


def _regress(cells: Sequence[Cell], row: Callable[[int, float], tuple[float, ...]]) -> Regression:
    """Fit times as a combination of what depends on k and the size."""
    return regress([Group(row(cell.k, float(cell.message_bytes)), cell.times_ns) for cell in cells])


def _penalties(shared: Sequence[Cell], a_ns: float, b_ns_per_byte: float) -> Regression:
    """Fit eta, given a and b."""
    return regress(
        [
            Group(
                ((cell.k - 1.0) * cell.message_bytes,),
                cell.times_ns,
                a_ns + cell.k * cell.message_bytes * b_ns_per_byte,
            )
            for cell in shared
        ]
    )


def _eta(shared: Sequence[Cell], base: Regression) -> Estimate:
    found = _penalties(shared, *base.coefficients)
    # The derivatives of eta by a and b: -sum(w x) / sum(w x^2) and -sum(w x k M) / sum(w x^2).
    through_a = through_b = 0.0
    for cell, group in zip(shared, found.groups, strict=True):
        pull = found.inverse[0][0] * len(cell.kept) * group.row[0] / group.scale**2
        through_a -= pull
        through_b -= pull * cell.k * cell.message_bytes
    return added(found.variance((1.0,)), base.variance((through_a, through_b))).around(
        found.coefficients[0]
    )


def _network(alone: Sequence[Cell], shared: Sequence[Cell]) -> NetworkModel:
    """Fit a network without negative values: what comes out below 0 is 0, and the rest fits that.

    If a penalty does, messages that share the network say as much of b as those alone.
    """
    a_ns, b_ns_per_byte = _line(alone)
    eta_ns_per_byte = 0.0
    if shared:
        (eta_ns_per_byte,) = _penalties(shared, a_ns, b_ns_per_byte).coefficients
    if eta_ns_per_byte < 0:
        a_ns, b_ns_per_byte = _line([*alone, *shared], latency=a_ns > 0)
        eta_ns_per_byte = 0.0
    return NetworkModel(round(a_ns), _rounded(b_ns_per_byte), _rounded(eta_ns_per_byte))


def _line(cells: Sequence[Cell], latency: bool = True) -> tuple[float, float]:
    """Return a and b of T = a + k*b*M; without `latency`, or if it comes out below 0, a is 0."""
    if latency:
        a_ns, b_ns_per_byte = _regress(cells, lambda k, size: (1.0, k * size)).coefficients
        if a_ns >= 0:
            return a_ns, b_ns_per_byte
    return 0.0, _regress(cells, lambda k, size: (k * size,)).coefficients[0]


def _rounded(value: float) -> float:
    """Round to six digits, more than any measurement has."""
    return float(f"{value:.6g}")


def _beside(cell: Cell, network: NetworkModel) -> CellFit:
    return CellFit(
        cell.k,
        cell.message_bytes,
        len(cell.kept),
        len(cell.outliers),
        cell.median_ns,
        cell.quartiles_ns,
        network.all_reduce_ns(cell.message_bytes, cell.k),
    )
