"""Runs with jobs whose iterations are graphs keep the invariants, under all policies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from builders import built_in
from headway.domain.records import COMMUNICATION, COMPUTE, Records
from headway.engine.run import simulate
from headway.results.timeline.sinks import Timeline
from invariants import check_invariants
from results.recording import MIX, TWO_BY_TWO
from strategies import Case, cases, run_engine


@settings(max_examples=min(settings().max_examples, 100))
@given(case=cases(general=True, graphs=True))
def test_any_mix_of_graphs_keeps_the_invariants(case: Case) -> None:
    timeline = Timeline()
    result = run_engine(case, timeline)
    check_invariants(result, timeline.tasks())
    assert len(timeline.tasks()) == result.summary.simulated_tasks


@pytest.mark.parametrize("bucket_mb", [0, 3])
@pytest.mark.parametrize("admission", built_in("admission"))
def test_usual_graphs_keep_the_invariants(admission: str, bucket_mb: int) -> None:
    timeline = Timeline()
    policy = f"ls+srsf+{admission}@{bucket_mb}"
    check_invariants(simulate(MIX, TWO_BY_TWO, policy=policy, timeline=timeline), timeline.tasks())


def removed(tasks: Records, row: int) -> Records:
    return np.delete(tasks, row).view(np.recarray)


def repeated(tasks: Records, row: int) -> Records:
    return np.append(tasks, tasks[row]).view(np.recarray)


def changed(name: str, change: int) -> Callable[[Records, int], Records]:
    def change_row(tasks: Records, row: int) -> Records:
        found = tasks.copy()
        found[name][row] += change
        return found

    return change_row


FAULTS = {
    "a task is missing": (COMPUTE, removed),
    "a task runs twice": (COMPUTE, repeated),
    "a task is too short": (COMPUTE, changed("end_ns", -1)),
    "a task starts too early": (COMPUTE, changed("start_ns", -1)),
    "a task is on another GPU": (COMPUTE, changed("gpu", 1)),
    "a task is another one": (COMPUTE, changed("node", 1)),
    "a message is missing": (COMMUNICATION, removed),
    "a message is sent twice": (COMMUNICATION, repeated),
    "a message starts before it is ready": (COMMUNICATION, changed("start_ns", -10_000_000)),
    "a message is ready too late": (COMMUNICATION, changed("ready_ns", 1)),
    "a message ends too early": (COMMUNICATION, changed("end_ns", -100_000)),
    "a message is another one": (COMMUNICATION, changed("node", 1)),
    "a task is of another iteration": (COMPUTE, changed("iteration", 1)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_invariants_notice_when(name: str) -> None:
    kind, spoil = FAULTS[name]
    timeline = Timeline()
    result = simulate(MIX, TWO_BY_TWO, timeline=timeline)
    tasks = timeline.tasks()
    rows = np.flatnonzero((tasks.kind == kind) & (tasks.node >= 0))
    with pytest.raises(AssertionError):
        check_invariants(result, spoil(tasks, int(rows[len(rows) // 2])))
