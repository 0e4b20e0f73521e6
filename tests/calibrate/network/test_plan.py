"""The combinations to measure, and their order."""

from __future__ import annotations

from collections import Counter

import pytest

from headway.calibrate.network.plan import Completion, Plan, sizes_from
from headway.domain.errors import InputError

PLAN = Plan(sizes_bytes=(1024, 4096, 16384), concurrent=3, repeats=5, warm_up=2, seed=7)


def test_every_round_has_every_combination_once() -> None:
    rounds = PLAN.rounds()
    assert len(rounds) == 5 + 2
    for made in rounds:
        assert Counter(made) == Counter(PLAN.combinations)
    assert len(PLAN.combinations) == 3 * 3


def test_rounds_differ_in_order_and_a_seed_repeats_them() -> None:
    assert len({tuple(made) for made in PLAN.rounds()}) > 1
    assert PLAN.rounds() == PLAN.rounds()


def test_the_share_done_rises_to_one_with_the_bytes_sent() -> None:
    rounds = PLAN.rounds()
    completion = Completion.of(rounds)
    shares = [completion.count(combination) for made in rounds for combination in made]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_sizes_are_in_powers_of_1024() -> None:
    assert sizes_from("64KB, 1mb,2GB,12B") == (2**16, 2**20, 2**31, 12)


@pytest.mark.parametrize("text", ["", "64", "1.5MB", "-1MB", "MB", "64KB,,1MB", "1 TB"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="such as 64KB,1MB,25MB"):
        sizes_from(text)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sizes_bytes": (1024,)}, "two sizes, the largest at least twice"),
        ({"sizes_bytes": (1024, 1024, 2048)}, "has a duplicate size"),
        (
            {"sizes_bytes": (1024, 1536)},
            "two sizes, the largest at least twice",
        ),
        ({"sizes_bytes": (1024, 1026)}, "multiples of 4"),
        ({"sizes_bytes": (0, 1024)}, "at least 4"),
        ({"sizes_bytes": (1024, 2**33)}, "at most"),
        ({"concurrent": 0}, "at least 1"),
        ({"concurrent": 65}, "at most 64"),
        ({"repeats": 2}, "at least 3"),
        ({"warm_up": -1}, "at least 0"),
        ({"timeout_s": 0}, "at least 1"),
        ({"backend": "smoke"}, "gloo, nccl, mpi"),
    ],
)
def test_invalid_plans_are_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Plan(**change)  # type: ignore[arg-type]
