"""Draws samples from a known network, with optional faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from headway.calibrate.network.samples import Sample

SIZES_BYTES = tuple(2**power for power in (16, 18, 20, 22, 24, 26))

Time = Callable[[int, int], float]
"""The time in ns at k and a size."""


def model(a_ns: float = 669_000, b: float = 0.853, eta: float = 0.235) -> Time:
    """Return the times of the contention model."""
    return lambda k, size: a_ns + k * b * size + (k - 1) * eta * size


def draw_samples(
    lots: random.Random,
    time: Time,
    *,
    sizes: Sequence[int] = SIZES_BYTES,
    ks: Sequence[int] = (1, 2, 3, 4),
    repeats: int = 8,
    noise: float = 0.02,
    cell_noise: float = 0.0,
    drift: float = 0.0,
    outliers: float = 0.0,
) -> list[Sample]:
    """Return samples in rounds of all cells, with multiplicative Gaussian noise.

    `cell_noise` is common to all shots of a cell; `drift` is the growth from first to last shot;
    `outliers` the share of shots that take four times as long.
    """
    cells = [(k, size) for k in ks for size in sizes]
    common = {cell: lots.gauss(1, cell_noise) for cell in cells}
    samples: list[Sample] = []
    for round_ in range(repeats):
        for place, cell in enumerate(lots.sample(cells, len(cells))):
            shot = round_ * len(cells) + place
            k, size = cell
            longest = time(k, size) * common[cell] * max(0.05, lots.gauss(1, noise))
            longest *= 1 + drift * shot / (repeats * len(cells))
            longest *= 4 if lots.random() < outliers else 1
            last = lots.randrange(k)
            for group in range(k):
                part = 1.0 if group == last else lots.uniform(0.7, 1)
                samples.append(Sample(shot, k, size, group, max(1, round(longest * part))))
    return samples
