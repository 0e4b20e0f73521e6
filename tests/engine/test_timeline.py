"""Timelines hold every task once, however they are cut into batches."""

from __future__ import annotations

from typing import Any

import pytest

from builders import make_job, make_workload
from headway.domain.records import BACKWARD, COMMUNICATION, FORWARD, Records
from headway.engine.run import simulate
from headway.results.timeline.sinks import Timeline


class Batches:
    """A sink that remembers how many rows came at a time."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def append(self, tasks: Records) -> None:
        self.sizes.append(len(tasks))


WORKLOAD = make_workload(
    make_job(gpus=4, iterations=30),
    make_job(gpus=3, iterations=40, arrival_ns=5),
    make_job(gpus=1, iterations=50),
)


def test_a_timeline_holds_every_task() -> None:
    timeline = Timeline()
    result = simulate(WORKLOAD, "2x2", timeline=timeline)
    tasks = timeline.tasks()
    assert len(tasks) == result.summary.simulated_tasks
    counts = [int((tasks.kind == kind).sum()) for kind in (FORWARD, BACKWARD, COMMUNICATION)]
    assert counts == [120 + 120 + 50, 120 + 120 + 50, 30 + 40]
    assert (tasks.end_ns[1:] >= tasks.end_ns[:-1]).all()


def test_a_small_buffer_is_emptied_in_time(monkeypatch: Any) -> None:
    whole, batches = Timeline(), Batches()
    simulate(WORKLOAD, "2x2", timeline=whole)
    monkeypatch.setattr("headway.engine.run._TIMELINE_ROWS", 1)
    pieces = Timeline()
    simulate(WORKLOAD, "2x2", timeline=pieces)
    simulate(WORKLOAD, "2x2", timeline=batches)
    assert (pieces.tasks() == whole.tasks()).all()
    assert len(batches.sizes) > 10
    assert max(batches.sizes) <= 2 * (4 + 3 + 8)


def test_recording_changes_no_result() -> None:
    plain = simulate(WORKLOAD, "2x2")
    recorded = simulate(WORKLOAD, "2x2", timeline=Timeline())
    assert plain.finish_ns.tolist() == recorded.finish_ns.tolist()


def test_an_unused_timeline_is_empty() -> None:
    assert len(Timeline().tasks()) == 0


@pytest.mark.parametrize("column", ["start_ns", "end_ns", "iteration", "job", "gpu", "kind"])
def test_columns_are_attributes(column: str) -> None:
    timeline = Timeline()
    simulate(WORKLOAD, "2x2", timeline=timeline)
    assert len(getattr(timeline.tasks(), column)) == len(timeline.tasks())
