"""How gradients are gathered into buckets, as PyTorch's DistributedDataParallel does at first."""

from __future__ import annotations

from collections.abc import Sequence

FIRST_BUCKET_BYTES = 2**20
"""DDP's first bucket is small, so that communication begins early."""


def bucket_members(sizes_bytes: Sequence[int], cap_bytes: int) -> list[list[int]]:
    """Return the buckets, each the indices of its gradients, in the order they are sent.

    Gradients are taken from the last parameter to the first. A bucket is closed by the gradient
    that fills it, so that it may be larger than its cap.
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
