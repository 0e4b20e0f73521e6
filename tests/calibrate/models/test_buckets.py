"""Gradients in buckets."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headway.calibrate.models.buckets import FIRST_BUCKET_BYTES, bucket_members

MB = 2**20


def test_the_last_parameters_come_first_in_a_small_bucket() -> None:
    sizes = [10 * MB, 10 * MB, 10 * MB, 10 * MB, MB // 2, MB // 2]
    assert bucket_members(sizes, 25 * MB) == [[5, 4], [3, 2, 1], [0]]


def test_a_gradient_larger_than_a_bucket_fills_one_by_itself() -> None:
    assert bucket_members([MB, 400 * MB, 2 * MB], 25 * MB) == [[2], [1], [0]]


def test_a_cap_below_that_of_the_first_bucket_applies_to_it_too() -> None:
    assert bucket_members([100, 100, 100], 200) == [[2, 1], [0]]


def test_a_model_without_gradients_has_no_buckets() -> None:
    assert bucket_members([], 25 * MB) == []


@given(st.lists(st.integers(1, 5 * MB)), st.integers(1, 8 * MB))
def test_every_gradient_is_in_one_bucket_and_only_its_last_one_fills_it(
    sizes: list[int], cap_bytes: int
) -> None:
    buckets = bucket_members(sizes, cap_bytes)
    assert list(itertools.chain(*buckets)) == list(reversed(range(len(sizes))))
    for place, members in enumerate(buckets):
        limit = min(FIRST_BUCKET_BYTES, cap_bytes) if place == 0 else cap_bytes
        assert sum(sizes[index] for index in members[:-1]) < limit
        if place < len(buckets) - 1:
            assert sum(sizes[index] for index in members) >= limit
