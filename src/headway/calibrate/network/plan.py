"""What to measure, in which order, and how long that will take."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headway.domain.errors import InputError, shown
from headway.domain.limits import whole

BACKENDS = ("gloo", "nccl", "mpi")
SIZES = "64KB,256KB,1MB,4MB,8MB,16MB,32MB,64MB"
"""Denser at the large sizes, where bandwidth dominates."""

ELEMENT_BYTES = 4
"""All-reduces are of float32."""

MAX_CONCURRENT = 64
_LARGEST_BYTES = 2**32
_SHOT_BYTES = 2**18
"""The cost of starting a shot, as bytes; only the estimate of the time left uses it."""


def sizes_from(text: str) -> tuple[int, ...]:
    """Parse sizes such as `64KB,1MB,25MB` (1 KB = 1024 bytes)."""
    return tuple(_size(part.strip()) for part in text.split(","))


def _size(text: str) -> int:
    units = {"GB": 2**30, "MB": 2**20, "KB": 2**10, "B": 1}
    for unit, factor in units.items():
        number = text.upper().removesuffix(unit)
        if text.upper().endswith(unit) and re.fullmatch(r"[0-9]{1,12}\s*", number):
            return int(number) * factor
    raise InputError(f"must be sizes such as 64KB,1MB,25MB, not {shown(text)}.", field="--sizes")


@dataclass(frozen=True, slots=True)
class Combination:
    """A case to measure several times: k groups that each send a message of one size."""

    k: int
    message_bytes: int

    @property
    def weight(self) -> int:
        """The relative duration of a shot: proportional to the bytes on the network."""
        return self.k * self.message_bytes + _SHOT_BYTES


@dataclass(frozen=True, slots=True)
class Plan:
    """All-reduces of every size by 1 to `concurrent` groups at once, each `repeats` times."""

    sizes_bytes: tuple[int, ...] = sizes_from(SIZES)
    concurrent: int = 4
    repeats: int = 10
    warm_up: int = 2
    backend: str = "gloo"
    seed: int = 0
    timeout_s: int = 60

    def __post_init__(self) -> None:
        for size in self.sizes_bytes:
            whole(size, "--sizes", ELEMENT_BYTES, _LARGEST_BYTES, " bytes")
            if size % ELEMENT_BYTES:
                raise InputError(
                    f"must be multiples of {ELEMENT_BYTES} bytes, not {shown(size)}.",
                    field="--sizes",
                )
        if len(set(self.sizes_bytes)) < len(self.sizes_bytes):
            raise InputError("has a duplicate size.", field="--sizes")
        if max(self.sizes_bytes) < 2 * min(self.sizes_bytes):
            raise InputError(
                "must be at least two sizes, the largest at least twice the smallest.",
                field="--sizes",
            )
        whole(self.concurrent, "--concurrent", 1, MAX_CONCURRENT)
        whole(self.repeats, "--repeats", 3, 10_000)
        whole(self.warm_up, "--warm-up", 0, 10_000)
        whole(self.timeout_s, "--timeout", 1, 86_400)
        if self.backend not in BACKENDS:
            raise InputError(
                f"must be {', '.join(BACKENDS)}, not {shown(self.backend)}.", field="--backend"
            )

    @property
    def combinations(self) -> list[Combination]:
        """All combinations of k and size."""
        return [
            Combination(k, size)
            for k in range(1, self.concurrent + 1)
            for size in sorted(self.sizes_bytes)
        ]

    def rounds(self) -> list[list[Combination]]:
        """Return the shots: every round has each combination once, in a random order.

        A slow minute of the network then affects all combinations alike, and none always follows
        the same other one. The first `warm_up` rounds are discarded.
        """
        generator = random.Random(self.seed)
        return [
            generator.sample(self.combinations, len(self.combinations))
            for _ in range(self.warm_up + self.repeats)
        ]


@dataclass(slots=True)
class Completion:
    """The share of a measurement that is done, by the weight of its shots."""

    total: int
    done: int = 0

    @classmethod
    def of(cls, rounds: Sequence[Sequence[Combination]]) -> Completion:
        """Return the completion of a measurement that is about to start."""
        return cls(
            sum(combination.weight for combinations in rounds for combination in combinations)
        )

    def count(self, combination: Combination) -> float:
        """Count a shot as done; return the share done so far."""
        self.done += combination.weight
        return self.done / self.total
