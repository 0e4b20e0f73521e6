"""The steps of a shot, with a stand-in for torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from headway.calibrate.network import rank
from headway.calibrate.network.plan import Combination, Plan


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that steps of shots are added to."""
    found: list[str] = []

    @contextmanager
    def message() -> Iterator[None]:
        found.append("message begins")
        yield
        found.append("message ends")

    monkeypatch.setattr(rank, "message_on_network", message)
    return found


def process(steps: list[str], local_rank: int) -> rank._Rank:
    """Return a process of two on each of two nodes."""
    dist = SimpleNamespace(
        get_rank=lambda: local_rank,
        get_world_size=lambda: 4,
        new_group=lambda *_, **__: "group",
        barrier=lambda _: steps.append("barrier"),
        all_reduce=lambda *_, **__: steps.append("all-reduce"),
    )
    torch: Any = SimpleNamespace(distributed=dist, zeros=lambda count, device: [0.0] * count)
    plan = Plan(sizes_bytes=(1024, 2048), concurrent=2)
    return rank._Rank(torch, plan, SimpleNamespace(type="cpu"), local_rank, 2)


def test_a_message_counts_until_all_of_its_shot_have_ended(steps: list[str]) -> None:
    """A testbed's penalty is then that of k messages up to the last one's end."""
    assert process(steps, 0)._shoot(Combination(1, 1024)) > 0
    assert steps == ["message begins", "barrier", "all-reduce", "barrier", "message ends"]


def test_a_process_without_a_message_waits_for_the_others(steps: list[str]) -> None:
    assert process(steps, 1)._shoot(Combination(1, 1024)) == 0
    assert steps == ["barrier", "barrier"]
