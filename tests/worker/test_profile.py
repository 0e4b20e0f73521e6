"""The average iteration that rank 0 reports."""

from __future__ import annotations

from headway.gate.frames import MeasuredBucket, Profile
from headway.gate.protocol import MAX_BUCKETS
from headway.worker.profile import IterationAverage


def test_times_and_sizes_are_averaged() -> None:
    average = IterationAverage()
    assert average.add(10, 3, [1, 2], [100, 200])
    assert average.add(20, 4, [3, 2], [100, 202])
    assert average.profile() == Profile(15, 3, (MeasuredBucket(2, 100), MeasuredBucket(2, 201)))


def test_another_number_of_buckets_starts_over() -> None:
    average = IterationAverage()
    average.add(10, 3, [1, 2], [100, 200])
    average.add(30, 5, [7], [300])
    assert average.profile() == Profile(30, 5, (MeasuredBucket(7, 300),))


def test_an_iteration_that_no_frame_can_hold_is_left_out() -> None:
    average = IterationAverage()
    many = MAX_BUCKETS + 1
    assert not average.add(1, 1, [1] * many, [1] * many)
    assert not average.add(1, 1, [], [])
    assert average.add(1, 1, [1] * MAX_BUCKETS, [1] * MAX_BUCKETS)
