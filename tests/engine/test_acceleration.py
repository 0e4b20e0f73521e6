"""Acceleration changes no result: what repeats, what is solo, and what breaks off either."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings

from builders import DATA
from headway.domain.cluster import Cluster
from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.engine import kernel
from headway.engine.compilation import compiled_kernel
from headway.engine.setup import ACCELERATIONS, Acceleration
from headway.network.contention import NetworkModel
from repetitive_cases import repetitive
from strategies import Case, prepare_state, run_engine, run_oracle, run_state


def run(case: Case, acceleration: str) -> tuple[object, ...]:
    result = run_engine(case, acceleration=acceleration)  # type: ignore[arg-type]
    start_ns, finish_ns = result.start_ns.tolist(), result.finish_ns.tolist()
    summary = replace(result.summary, wall_s=0, skipped_tasks=0)
    return start_ns, finish_ns, list(result.gpus), summary


@given(case=repetitive((1, 3, 12, 30)))
def test_what_repeats_is_as_the_oracle_says(case: Case) -> None:
    expected = run_oracle(case)
    start_ns, finish_ns, gpus, _ = run(case, "full")
    assert (start_ns, finish_ns, gpus) == (expected.start_ns, expected.finish_ns, expected.gpus)


@given(case=repetitive((1, 20, 200, 2_000)))
def test_long_runs_are_the_same_with_and_without_acceleration(case: Case) -> None:
    plain = run(case, "none")
    assert run(case, "fused") == plain
    assert run(case, "solo") == plain
    assert run(case, "full") == plain


@pytest.mark.slow
@pytest.mark.parametrize(("less", "more"), [("none", "fused"), ("fused", "solo"), ("solo", "full")])
def test_random_cases_reach_every_acceleration(less: Acceleration, more: Acceleration) -> None:
    """Each leaves out instants that the one before it has."""

    def reaches(case: Case) -> bool:
        quicker, plain = run_state(case, more).tally[0], run_state(case, less).tally[0]
        return bool(quicker.instants < plain.instants // 2)

    found = find(
        repetitive((20, 200)),
        reaches,
        settings=settings(phases=[Phase.generate], max_examples=2_000),
    )
    assert run(found, less) == run(found, more)


@pytest.mark.slow
def test_random_cases_reach_fair_shares_that_are_skipped_forward() -> None:
    """A set that repeats, and in which a message takes what another leaves, is skipped exactly."""

    def reaches(case: Case) -> bool:
        if case.network.law != "max-min":
            return False
        papers = replace(case, network=replace(case.network, law="busiest"))
        solo, full = run_state(case, "solo"), run_state(case, "full")
        return bool(
            full.tally[0].instants < solo.tally[0].instants // 2
            and full.cluster.jobs.finish_ns.tolist()
            != run_state(papers, "full").cluster.jobs.finish_ns.tolist()
        )

    found = find(
        repetitive((20, 200)),
        reaches,
        settings=settings(phases=[Phase.generate], max_examples=20_000),
    )
    assert run(found, "full") == run(found, "none")


def jobs_of(*rows: tuple[int, int, int, int, int, int]) -> Workload:
    """Make jobs of (arrival, GPUs, iterations, forward, backward, gradient)."""
    return Workload(
        [
            Job(str(index), arrival, gpus, iterations, forward, backward, gradient, 1)
            for index, (arrival, gpus, iterations, forward, backward, gradient) in enumerate(rows)
        ]
    )


def case_of(workload: Workload, cluster: Cluster, **choices: str) -> Case:
    usual: dict[str, Any] = {
        "placement": "lwf:1",
        "priority": "srsf",
        "admission": "srsf:1",
        **choices,
    }
    network = NetworkModel(a_ns=5, b_ns_per_byte=1.0, eta_ns_per_byte=0.5)
    return Case(workload, cluster, network, seed=0, bucket_bytes=None, **usual)


def test_a_job_alone_costs_the_same_however_many_iterations_it_has() -> None:
    """It starts, and it ends."""
    for iterations in (10, 10**6):
        case = case_of(jobs_of((0, 4, iterations, 7, 11, 100)), Cluster(2, 2))
        state = run_state(case, "full")
        assert state.tally[0].instants == 2
        assert state.cluster.jobs[0].finish_ns == iterations * (7 + 11 + 5 + 100)
        assert state.tally[0].messages == iterations
        assert state.tally[0].compute_tasks == 2 * 4 * iterations


def test_two_jobs_in_step_cost_the_same_however_many_iterations_they_have() -> None:
    """Both cross the same two servers; the one waits for the other's all-reduce."""
    instants = []
    for iterations in (10**3, 10**5):
        rows = [(0, 2, iterations, 7, 11, 100), (0, 2, 2 * iterations, 7, 11, 100)]
        case = case_of(jobs_of(*rows), Cluster(2, 2), placement="spread")
        state = run_state(case, "full")
        assert state.cluster.jobs.servers.tolist() == [2, 2]
        instants.append(int(state.tally[0].instants))
        if iterations == 10**3:
            assert run(case, "full") == run(case, "none")
    assert instants[1] <= instants[0] + 100


def test_a_set_may_go_back_to_before_it_was_skipped() -> None:
    """As if another set, which catches up with it, disturbed it: it repeats its last period."""
    rows = [(0, 2, 1_000, 7, 11, 100), (0, 2, 2_000, 7, 11, 100)]
    case = case_of(jobs_of(*rows), Cluster(2, 2), placement="spread")
    state, advance = prepare_state(case, "full"), compiled_kernel()
    while state.tally[0].skipped == 0:
        advance(state, 1)
    since_ns = int(state.cycles[state.skipped[0]].since_ns)
    state.rare.forget_sets_beside(state, 0, since_ns - 1)
    while advance(state, 1_000) == kernel.BUDGET_SPENT:
        pass
    assert state.cluster.jobs.finish_ns.tolist() == run(case, "none")[1]


@pytest.mark.parametrize("arrival", range(100, 160))
def test_a_job_may_break_in_on_another_at_any_phase(arrival: int) -> None:
    """A short job comes upon one that is alone, in each of its tasks and at each of their ends."""
    rows = [(0, 4, 50, 7, 11, 20), (arrival, 2, 3, 5, 5, 20)]
    case = case_of(jobs_of(*rows), Cluster(2, 2, gpu_memory_bytes=2))
    expected = run_oracle(case)
    for acceleration in ACCELERATIONS:
        start_ns, finish_ns, *_ = run(case, acceleration)
        assert (start_ns, finish_ns) == (expected.start_ns, expected.finish_ns)


def test_with_a_policy_that_does_not_promise_to_be_timeless_nothing_is_skipped() -> None:
    """`lattice` starts messages at multiples of a time: it looks at the clock."""
    rows = [(0, 4, 40, 7, 11, 100), (3, 2, 30, 5, 5, 20)]
    case = case_of(
        jobs_of(*rows), Cluster(2, 2, gpu_memory_bytes=2), admission=f"{DATA}/lattice.py:lattice:64"
    )
    full, none = run_state(case, "full"), run_state(case, "none")
    assert full.tally[0].instants == none.tally[0].instants
    assert full.rules[0].fuses == full.rules[0].skips_solo == full.rules[0].skips_sets == 0
    assert run(case, "full") == run(case, "none")


def test_an_unknown_acceleration_is_refused() -> None:
    with pytest.raises(InputError, match="acceleration: must be one of none, fused, solo, full"):
        run(case_of(jobs_of((0, 1, 1, 1, 1, 0)), Cluster()), "warp")
