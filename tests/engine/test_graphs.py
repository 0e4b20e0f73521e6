"""Runs with jobs whose iterations are graphs keep the invariants, under all policies."""

from __future__ import annotations

from hypothesis import given, settings

from graph_shapes import mixed
from headway.results.timeline.sinks import Timeline
from invariants import check_invariants
from strategies import Case, cases, run_engine


@given(case=cases(general=True))
def test_any_mix_of_graphs_keeps_the_invariants(case: Case) -> None:
    case, timeline = mixed(case), Timeline()
    result = run_engine(case, timeline)
    check_invariants(result, timeline.tasks())
    assert len(timeline.tasks()) == result.summary.simulated_tasks


@settings(max_examples=min(settings().max_examples, 50))
@given(case=cases(general=True))
def test_graphs_alone_keep_the_invariants(case: Case) -> None:
    case, timeline = mixed(case, keep=100), Timeline()
    check_invariants(run_engine(case, timeline), timeline.tasks())
