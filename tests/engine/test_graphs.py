"""Jobs with graphs: engine and oracle agree on every task and message, to the nanosecond."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from agreement import check
from headway.engine.setup import Acceleration
from repetitive_cases import repetitive
from strategies import (
    ADMISSIONS,
    PLACEMENTS,
    PRIORITIES,
    Case,
    cases,
    run_engine,
    run_oracle,
    run_state,
)


@pytest.mark.parametrize("placement", PLACEMENTS)
@settings(max_examples=min(settings().max_examples, 100))
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_under_every_placement(
    placement: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases(graphs=True)), placement=placement))


@settings(max_examples=2 * settings().max_examples)
@given(case=cases(general=True, graphs=True))
def test_the_engine_agrees_with_the_oracle_on_general_clusters(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("priority", PRIORITIES)
@settings(max_examples=min(settings().max_examples, 100))
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_under_every_priority(
    priority: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases(graphs=True)), priority=priority))


@pytest.mark.parametrize("admission", ADMISSIONS)
@settings(max_examples=min(settings().max_examples, 100))
@given(data=st.data())
def test_the_engine_agrees_with_the_oracle_under_every_admission(
    admission: str, data: st.DataObject
) -> None:
    check(replace(data.draw(cases(general=True, graphs=True)), admission=admission))


def outcome(case: Case, acceleration: Acceleration) -> tuple[object, ...]:
    result = run_engine(case, acceleration=acceleration)
    start_ns, finish_ns = result.start_ns.tolist(), result.finish_ns.tolist()
    return (
        start_ns,
        finish_ns,
        list(result.gpus),
        replace(result.summary, wall_s=0, skipped_tasks=0),
    )


@given(case=repetitive((1, 3, 12), graphs=True))
def test_what_repeats_is_as_the_oracle_says(case: Case) -> None:
    expected = run_oracle(case)
    start_ns, finish_ns, gpus, _ = outcome(case, "full")
    assert (start_ns, finish_ns, gpus) == (expected.start_ns, expected.finish_ns, expected.gpus)


@given(case=repetitive((1, 20, 200, 2_000), graphs=True))
def test_long_runs_are_the_same_with_and_without_acceleration(case: Case) -> None:
    plain = outcome(case, "none")
    assert outcome(case, "solo") == plain
    assert outcome(case, "full") == plain


@pytest.mark.slow
def test_random_cases_reach_graphs_that_are_skipped_forward() -> None:
    def reaches(case: Case) -> bool:
        if all(job.graph is None for job in case.workload):
            return False
        full, plain = run_state(case, "full").tally[0], run_state(case, "none").tally[0]
        return bool(full.instants < plain.instants // 2)

    found = find(
        repetitive((200,), graphs=True),
        reaches,
        settings=settings(phases=[Phase.generate], max_examples=2_000),
    )
    assert outcome(found, "full") == outcome(found, "none")
