"""Fits a, b and eta of T = a + k*b*M + (k-1)*eta*M to samples, with 95% intervals."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
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

    The estimates are as fitted and may be below 0; `network()` returns the network to simulate.
    `eta_ns_per_byte` is None if nothing was measured with k > 1.
    """

    a_ns: Estimate
    b_ns_per_byte: Estimate
    eta_ns_per_byte: Estimate | None
    cells: tuple[CellFit, ...]
    remarks: tuple[Remark, ...]

    def network(self) -> NetworkModel:
        """Return the network; a and eta are 0 where the estimate is negative or missing."""
        return _network(self.a_ns, self.b_ns_per_byte, self.eta_ns_per_byte)

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
    base = regress([Group((1.0, float(cell.message_bytes)), cell.times_ns) for cell in alone])
    a_ns, b_ns_per_byte = base.estimate((1.0, 0.0)), base.estimate((0.0, 1.0))
    if b_ns_per_byte.value <= 0:
        raise InputError(
            "with k = 1 the times do not grow with message_bytes: b would be "
            f"{b_ns_per_byte.value:.3g} ns/byte; measure larger messages, and more shots."
        )
    eta_ns_per_byte = _eta(shared, base) if shared else None
    network = _network(a_ns, b_ns_per_byte, eta_ns_per_byte)
    findings = Findings(tuple(cells), base, a_ns, b_ns_per_byte, eta_ns_per_byte)
    return Fit(
        a_ns,
        b_ns_per_byte,
        eta_ns_per_byte,
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


def _eta(shared: Sequence[Cell], base: Regression) -> Estimate:
    groups = [
        Group(
            ((cell.k - 1.0) * cell.message_bytes,),
            cell.times_ns,
            base.value((1.0, float(cell.k * cell.message_bytes))),
        )
        for cell in shared
    ]
    found = regress(groups)
    # The derivatives of eta by a and b: -sum(w x) / sum(w x^2) and -sum(w x k M) / sum(w x^2).
    through_a = through_b = 0.0
    for cell, group in zip(shared, found.groups, strict=True):
        pull = found.inverse[0][0] * len(cell.kept) * group.row[0] / group.scale**2
        through_a -= pull
        through_b -= pull * cell.k * cell.message_bytes
    return added(found.variance((1.0,)), base.variance((through_a, through_b))).around(
        found.coefficients[0]
    )


def _network(a_ns: Estimate, b_ns_per_byte: Estimate, eta: Estimate | None) -> NetworkModel:
    return NetworkModel(
        max(0, round(a_ns.value)),
        _rounded(b_ns_per_byte.value),
        max(0.0, _rounded(eta.value)) if eta else 0.0,
    )


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
