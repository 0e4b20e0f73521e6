"""The fit recovers the network that samples were drawn from, with realistic intervals."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from typing import Any

import pytest

from builders import MB
from calibrate.network.drawing import SIZES_BYTES, draw_samples, model
from headway.calibrate.network.cells import cells_of
from headway.calibrate.network.fit import fit
from headway.calibrate.network.samples import Sample
from headway.domain.errors import InputError

DRAWS = 300


def shots_of(*rows: tuple[int, int, int]) -> list[Sample]:
    """Return shots of which only one group is known: k, size, time."""
    return [Sample(shot, k, size, 0, time) for shot, (k, size, time) in enumerate(rows)]


def test_exact_times_give_back_the_network_exactly() -> None:
    found = fit(draw_samples(random.Random(0), model(), noise=0))
    assert found.a_ns.value == pytest.approx(669_000, rel=1e-5)
    assert found.b_ns_per_byte.value == pytest.approx(0.853, rel=1e-6)
    assert found.eta_ns_per_byte is not None
    assert found.eta_ns_per_byte.value == pytest.approx(0.235, rel=1e-5)
    assert found.network.b_ns_per_byte == 0.853
    assert (found.fits, found.outliers, found.remarks) == (True, 0, ())
    assert found.largest_residual < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "how"),
    [
        ((669_000, 0.853, 0.235), {"noise": 0.01}),
        ((669_000, 0.853, 0.235), {"noise": 0.1}),
        ((200_000, 8.4, 0.0), {"noise": 0.05, "repeats": 10}),
        ((5_000_000, 0.1, 0.1), {"noise": 0.03, "repeats": 3}),
        ((0, 41.9, 6.0), {"noise": 0.03, "ks": (1, 2)}),
        ((669_000, 0.853, 0.235), {"sizes": (MB, 64 * MB), "ks": (1, 2), "noise": 0.03}),
        ((669_000, 0.853, 0.235), {"repeats": 1, "ks": (1, 2, 3), "noise": 0.05}),
        ((669_000, 0.853, 0.235), {"noise": 0.01, "cell_noise": 0.03}),
        ((669_000, 0.853, 0.235), {"noise": 0.02, "outliers": 0.03}),
    ],
    ids=str,
)
def test_intervals_have_their_nominal_coverage(
    network: tuple[float, float, float], how: dict[str, Any]
) -> None:
    lots = random.Random(1)
    hits = [0, 0, 0]
    for _ in range(DRAWS):
        found = fit(draw_samples(lots, model(*network), **how))
        estimates = (found.a_ns, found.b_ns_per_byte, found.eta_ns_per_byte)
        for place, (estimate, truth) in enumerate(zip(estimates, network, strict=True)):
            assert estimate is not None
            hits[place] += estimate.low < truth < estimate.high
    assert all(0.90 <= count / DRAWS <= 0.99 for count in hits), hits


def test_small_messages_that_are_noisier_than_large_ones_widen_the_latency() -> None:
    lots, hits = random.Random(2), 0
    for _ in range(DRAWS):
        quiet = draw_samples(lots, model(), ks=(1,), noise=0.005)
        noisy = [
            Sample(one.shot, 1, one.message_bytes, 0, round(one.time_ns * lots.gauss(1, 0.1)))
            if one.message_bytes < MB
            else one
            for one in quiet
        ]
        a_ns = fit(noisy).a_ns
        hits += a_ns.low < 669_000 < a_ns.high
    assert hits / DRAWS >= 0.90


def test_the_uncertainty_of_a_and_b_widens_eta() -> None:
    lots = random.Random(3)
    known = fit(draw_samples(lots, model(), noise=0.02, repeats=8))
    doubtful = fit(
        [
            one
            for one in draw_samples(lots, model(), noise=0.02, repeats=8)
            if one.k > 1 or one.shot < 60
        ]
    )
    assert known.eta_ns_per_byte is not None
    assert doubtful.eta_ns_per_byte is not None
    assert doubtful.b_ns_per_byte.margin > 1.2 * known.b_ns_per_byte.margin
    assert doubtful.eta_ns_per_byte.margin > 1.2 * known.eta_ns_per_byte.margin


def test_slow_shots_are_left_out_and_counted() -> None:
    samples = draw_samples(random.Random(4), model(), outliers=0.05)
    found = fit(samples)
    slow = {one.shot for one in samples if one.time_ns > 2 * model()(one.k, one.message_bytes)}
    assert found.outliers == len(slow) > 3
    assert found.shots + found.outliers == len({one.shot for one in samples})
    assert sum(cell.outliers for cell in found.cells) == found.outliers
    assert {shot.number for cell in cells_of(samples) for shot in cell.outliers} == slow
    assert found.fits


def test_gaussian_noise_has_hardly_any_outliers() -> None:
    lots = random.Random(5)
    drawn = [fit(draw_samples(lots, model(), noise=0.08, repeats=5)) for _ in range(50)]
    outliers, shots = sum(one.outliers for one in drawn), sum(one.shots for one in drawn)
    assert outliers / shots < 0.001


def test_fast_shots_and_cells_of_few_shots_have_no_outliers() -> None:
    exact = [round(model()(1, size)) for size in SIZES_BYTES]
    rows = [(1, size, time) for size, time in zip(SIZES_BYTES, exact, strict=True)]
    fast = shots_of(*rows * 8, (1, SIZES_BYTES[0], 1000))
    few = shots_of(*rows * 3, (1, SIZES_BYTES[0], 10 * exact[0]))
    assert fit(fast).outliers == fit(few).outliers == 0


def test_the_residual_of_a_cell_is_its_median_relative_to_the_prediction() -> None:
    found = fit(draw_samples(random.Random(6), model(), noise=0.05))
    network = found.network
    assert len(found.cells) == 24
    for cell in found.cells:
        assert cell.predicted_ns == network.all_reduce_ns(cell.message_bytes, cell.k)
        assert cell.residual == pytest.approx(cell.median_ns / cell.predicted_ns - 1)
        assert cell.quartiles_ns[0] <= cell.median_ns <= cell.quartiles_ns[1]
    assert found.median_residual <= found.largest_residual


def test_a_network_has_no_negative_latency_and_no_negative_penalty() -> None:
    lots = random.Random(7)
    found = fit(draw_samples(lots, model(-50_000, 1.0, -0.2), sizes=(MB, 4 * MB, 16 * MB)))
    assert found.a_ns.value < 0
    assert found.eta_ns_per_byte is not None
    assert found.eta_ns_per_byte.high < 0
    assert (found.network.a_ns, found.network.eta_ns_per_byte) == (0, 0.0)


def test_what_is_not_below_0_fits_what_was_set_to_0() -> None:
    lots = random.Random(7)
    cheaper = fit(draw_samples(lots, model(0, 1.0, -0.2), ks=(1, 4), noise=0.001))
    # Four messages of M bytes take 4 M - 0.6 M, so b is between 3.4 / 4 and 1.
    assert cheaper.b_ns_per_byte.value == pytest.approx(1.0, rel=0.01)
    assert cheaper.network.eta_ns_per_byte == 0
    assert 0.86 < cheaper.network.b_ns_per_byte < 0.99
    early = fit(draw_samples(lots, model(-200_000, 1.0, 0.0), sizes=(MB, 4 * MB), noise=0.001))
    assert early.b_ns_per_byte.value == pytest.approx(1.0, rel=0.01)
    assert early.network.a_ns == 0
    assert early.network.b_ns_per_byte < 0.95


def test_without_shots_that_share_there_is_no_eta() -> None:
    found = fit(draw_samples(random.Random(8), model(), ks=(1,)))
    assert found.eta_ns_per_byte is None
    assert found.network.eta_ns_per_byte == 0
    assert [remark.code for remark in found.remarks] == ["contention-not-measured"]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([(2, MB, 9)] * 8, "need shots with k = 1 of at least two sizes"),
        ([(1, MB, 9)] * 8, "there is 1048576"),
        ([(1, MB, 9), (1, MB + 1, 9)] * 4, "one at least twice the other"),
        ([(1, MB, 9), (1, 2 * MB, 18)] * 2, "at least 5 shots with k = 1; there are 4"),
        ([(1, MB, 9), (1, 2 * MB, 18)] * 4 + [(2, MB, 9)], "4 shots with k > 1; there are 1"),
        ([(1, MB, 18), (1, 2 * MB, 9)] * 4, "the times do not grow with message_bytes"),
        ([(1, MB, 9)] * 8 + [(1, size, 9) for size in range(1, 4097)], "more than 4,096"),
    ],
)
def test_too_few_samples_are_refused(rows: list[tuple[int, int, int]], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        fit(shots_of(*rows))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 1, 1), (1, 2, 2**61)] * 4,
        [(1, 2**52, 1), (1, 2**53, 2)] * 4,
        [(1, 2**52, 2**60), (1, 2**53, 2**61)] * 4 + [(1024, 2**53, 1)] * 9,
        [(1, 1, 5), (1, 2**53, 6)] * 4 + [(1024, 1, 2**61)] * 9,
    ],
)
def test_absurd_times_are_fitted_or_refused(rows: list[tuple[int, int, int]]) -> None:
    try:
        found = fit(shots_of(*rows))
    except InputError:
        return
    assert math.isfinite(found.a_ns.margin)


def test_the_fit_needs_only_the_standard_library() -> None:
    heavy = ["numpy", "numba", "polars", "matplotlib", "typer", "rich", "torch"]
    code = (
        "import sys, headway.calibrate.network.profile, headway.calibrate.network.figure\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
