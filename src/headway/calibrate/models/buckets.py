"""Groups gradients into buckets, as PyTorch's DistributedDataParallel does initially."""

from __future__ import annotations

from collections.abc import Sequence

FIRST_BUCKET_BYTES = 2**20
"""DDP's first bucket is small, so that communication starts early."""


def bucket_members(sizes_bytes: Sequence[int], cap_bytes: int) -> list[list[int]]:
    """Return the buckets as lists of gradient indices, in the order in which they are sent.

    Gradients are taken from the last parameter to the first. The gradient that fills a bucket
    closes it, so a bucket may exceed its cap.
    """
    buckets: list[list[int]] = []
    members: list[int] = []
    filled, limit = 0, min(FIRST_BUCKET_BYTES, cap_bytes)
    for index in reversed(range(len(sizes_bytes))):
        members.append(index)
        filled += sizes_bytes[index]
        if filled >= limit:
            buckets.append(members)
            members, filled, limit = [], 0, cap_bytes
    return [*buckets, members] if members else buckets
