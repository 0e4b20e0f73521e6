"""The average iteration of a job: what its graph in the simulator is made from."""

from __future__ import annotations

from collections.abc import Sequence

from headway.gate.frames import MeasuredBucket, Profile
from headway.gate.protocol import MAX_BUCKETS


class IterationAverage:
    """Adds up iterations with the same number of buckets; another number starts over.

    Averages, not medians: times the number of iterations they give the time that was spent.
    """

    def __init__(self) -> None:
        self._iterations = 0
        self._forward_ns = self._optimizer_ns = 0
        self._backward_ns: list[int] = []  # by bucket
        self._bytes: list[int] = []

    def add(
        self,
        forward_ns: int,
        optimizer_ns: int,
        backward_parts_ns: Sequence[int],
        bucket_bytes: Sequence[int],
    ) -> bool:
        """Add an iteration; return whether it can be reported: it has not too many buckets.

        Args:
            forward_ns: The time of the forward pass.
            optimizer_ns: From the end of the last all-reduce before it to the forward pass.
            backward_parts_ns: The parts of the backward pass, each of which ends with a bucket.
            bucket_bytes: The size of each bucket.
        """
        if not 0 < len(bucket_bytes) <= MAX_BUCKETS:
            return False
        if len(bucket_bytes) != len(self._bytes):
            self._iterations = self._forward_ns = self._optimizer_ns = 0
            self._backward_ns, self._bytes = [0] * len(bucket_bytes), [0] * len(bucket_bytes)
        self._iterations += 1
        self._forward_ns += forward_ns
        self._optimizer_ns += optimizer_ns
        for bucket, (part_ns, size) in enumerate(zip(backward_parts_ns, bucket_bytes, strict=True)):
            self._backward_ns[bucket] += part_ns
            self._bytes[bucket] += size
        return True

    def profile(self) -> Profile:
        """Return the average of the iterations, at least one."""
        count = self._iterations
        return Profile(
            self._forward_ns // count,
            self._optimizer_ns // count,
            tuple(
                MeasuredBucket(sum_ns // count, sum_bytes // count)
                for sum_ns, sum_bytes in zip(self._backward_ns, self._bytes, strict=True)
            ),
        )
