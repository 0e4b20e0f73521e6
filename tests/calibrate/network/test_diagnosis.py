"""Each remark is made on samples with the fault, and hardly ever on samples without it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from builders import MB
from calibrate.network.drawing import Time, draw_samples, model
from headway.calibrate.network.fit import Fit, fit


def slow_above_8_mb(k: int, size: int) -> float:
    """Return times that grow faster from 8 MB on, as where an algorithm changes."""
    return model()(k, size) + 0.6 * max(0, size - 8 * MB)


def latency_by_k(k: int, size: int) -> float:
    return model()(k, size) + 2_000_000 * (k - 1)


def steep_from_three(k: int, size: int) -> float:
    """Return times of a network that collapses when more than two messages meet."""
    return model()(k, size) * (1.6 if k > 2 else 1)


FAULTS: list[tuple[str, Time, dict[str, Any], str]] = [
    ("eta-near-zero", model(eta=0.0), {}, "beyond the fair share"),
    (
        "eta-near-zero",
        model(eta=0.05),
        {"noise": 0.1, "repeats": 3},
        "More shots would narrow",
    ),
    ("eta-negative", model(eta=-0.2), {}, "The network has eta = 0"),
    ("a-negative", model(a_ns=-200_000), {"sizes": (MB, 4 * MB, 16 * MB)}, "network has a = 0"),
    ("not-linear-in-size", slow_above_8_mb, {}, "at 64 MB"),
    ("latency-grows-with-k", latency_by_k, {}, "ms at k = 4"),
    ("not-linear-in-k", steep_from_three, {}, "at k = 2"),
    ("not-linear-in-k", steep_from_three, {"sizes": (32 * MB, MB)}, "at k = 2"),
    ("noisy", model(), {"noise": 0.2}, "other load on the network"),
    ("many-outliers", model(), {"outliers": 0.2}, "were left out"),
    ("drift", model(), {"drift": 0.3}, "rise by"),
    ("drift", model(), {"drift": -0.2}, "fall by"),
    ("contention-not-measured", model(), {"ks": (1,)}, "no shots with k > 1"),
]


def codes(found: Fit) -> list[str]:
    return [remark.code for remark in found.remarks]


@pytest.mark.parametrize(("code", "time", "how", "words"), FAULTS)
def test_a_fault_gets_its_remark(code: str, time: Time, how: dict[str, Any], words: str) -> None:
    lots, tries = random.Random(1), 20
    made = [
        remark.text
        for _ in range(tries)
        for remark in fit(draw_samples(lots, time, **how)).remarks
        if remark.code == code
    ]
    assert len(made) >= 0.8 * tries
    assert sum(words in text for text in made) >= 0.8 * tries


@pytest.mark.parametrize("noise", [0.002, 0.02, 0.06])
@pytest.mark.parametrize("repeats", [3, 10])
def test_clean_samples_have_no_remarks(noise: float, repeats: int) -> None:
    lots, tries = random.Random(2), 100
    made = Counter[str]()
    fits = 0
    for _ in range(tries):
        found = fit(draw_samples(lots, model(), noise=noise, repeats=repeats))
        made.update(codes(found))
        fits += found.fits
    assert made.total() <= 0.03 * tries, made
    assert fits >= 0.97 * tries


def test_cells_measured_one_after_the_other_are_no_drift() -> None:
    lots = random.Random(3)
    blocks = sorted(draw_samples(lots, model()), key=lambda one: (one.k, one.message_bytes))
    assert codes(fit(blocks)) == []


@pytest.mark.parametrize("time", [slow_above_8_mb, latency_by_k, steep_from_three])
def test_a_network_unlike_the_model_does_not_fit(time: Time) -> None:
    assert not fit(draw_samples(random.Random(4), time)).fits


def test_a_fault_too_small_to_matter_gets_no_remark() -> None:
    def nearly(k: int, size: int) -> float:
        return model()(k, size) + 0.02 * max(0, size - 8 * MB) + 10_000 * (k - 1)

    found = fit(draw_samples(random.Random(5), nearly, noise=0.001, repeats=20))
    assert (codes(found), found.fits) == ([], True)
