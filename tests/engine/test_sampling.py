"""Sampled simulation: intervals hold the exact result, and what cannot be sampled is exact."""

from __future__ import annotations

import gc
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import paper_with
from headway.domain.accuracy import accuracy_from
from headway.domain.cluster import Cluster
from headway.domain.compute_times import compute_times
from headway.domain.errors import InputError, PolicyError
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.engine import kernel, run
from headway.engine.compilation import compiled_kernel
from headway.engine.progress import Progress
from headway.engine.run import simulate
from headway.engine.sampling import FIRST_HALF, SECOND_HALF
from headway.engine.state import State
from headway.network.contention import NetworkModel
from headway.policies.policy_set import PolicySet
from headway.reports.run_page import write_run_page
from headway.results.intervals import margins, median_run
from headway.results.schema import Result
from headway.results.store import read_result, write_json, write_parquet
from headway.results.timeline.sinks import Timeline
from headway.workload.generate import Recipe, generate_workload
from headway.workload.parallel import ParallelJobs
from invariants import check_room
from repetitive_cases import repetitive
from strategies import Case, run_engine
from waiting import PATIENCE_S

MODELS = ("vgg16", "resnet50", "inception-v3", "lstm-ptb")

CROWDED = Recipe(
    jobs=24, span_s=60, mix={1: 4, 2: 6, 4: 8, 8: 6}, iterations=(3_000, 9_000), models=MODELS
)
"""Jobs that share GPUs and servers, on 4x4 GPUs, and do not repeat."""


sampling_pays, will_not_pay = run._sampling_pays, run._will_not_pay


@pytest.fixture(scope="module", autouse=True)
def _sample_always() -> Iterator[None]:
    """Sample workloads that would be simulated exactly, because that takes as little time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_FEW_TASKS", 0)
        patch.setattr(run, "_sampling_pays", lambda _: True)
        patch.setattr(run, "_will_not_pay", lambda _: False)
        yield


@pytest.fixture(scope="module")
def crowded() -> Workload:
    return generate_workload(CROWDED, seed=3)


@pytest.fixture(scope="module")
def exact(crowded: Workload) -> Result:
    return simulate(crowded, "4x4")


@pytest.fixture(scope="module")
def sampled(crowded: Workload) -> Result:
    return simulate(crowded, "4x4", accuracy="1%")


def outcome(result: Result) -> tuple[object, ...]:
    times = result.start_ns.tolist(), result.finish_ns.tolist(), result.jct_margin_s.tolist()
    return *times, result.gpus, replace(result.summary, wall_s=0, skipped_tasks=0)


def test_an_exact_run_has_no_margins(exact: Result) -> None:
    summary = exact.summary
    assert (summary.sampled_share, summary.average_jct_margin_s, summary.makespan_margin_s) == (
        *(0.0, 0.0, 0.0),
    )
    assert not exact.jct_margin_s.any()


def test_a_crowded_workload_is_sampled_within_its_margins(exact: Result, sampled: Result) -> None:
    summary, true = sampled.summary, exact.summary
    assert 0.1 < summary.sampled_share < 1
    assert 0 < summary.skipped_tasks < (1 - summary.sampled_share) * summary.simulated_tasks
    assert summary.simulated_tasks == true.simulated_tasks
    assert (sampled.gpu_busy_ns.sum(), sampled.settings.accuracy) == (exact.gpu_busy_ns.sum(), 0.01)
    assert abs(summary.average_jct_s - true.average_jct_s) <= summary.average_jct_margin_s
    assert abs(summary.makespan_s - true.makespan_s) <= summary.makespan_margin_s
    held = np.abs(sampled.jct_s - exact.jct_s) <= sampled.jct_margin_s
    assert held.mean() >= 0.9


def test_a_sampled_run_is_one_that_could_have_been(sampled: Result) -> None:
    """Memory is never exceeded, and no job is faster than it is alone."""
    check_room(sampled)
    assert (sampled.start_ns >= sampled.arrival_ns).all()
    for job, start_ns, finish_ns in zip(
        sampled.workload, sampled.start_ns, sampled.finish_ns, strict=True
    ):
        assert finish_ns - start_ns >= 0.97 * job.iterations * (job.forward_ns + job.backward_ns)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_bits_with_any_number_of_threads(
    crowded: Workload,
    exact: Result,
    sampled: Result,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert outcome(simulate(crowded, "4x4", accuracy=0.01, threads=threads)) == outcome(sampled)
    monkeypatch.setattr(run, "_sampling_pays", lambda _: False)
    assert outcome(simulate(crowded, "4x4", accuracy=0.01, threads=threads)) == outcome(exact)


def test_threads_are_as_many_as_wanted(crowded: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: set[int] = set()
    monkeypatch.setattr(run, "_SLICE_S", 0.0)

    def count(_: Progress) -> None:
        alive.add(sum(thread.name.startswith("run-") for thread in threading.enumerate()))

    for threads in (1, 2):
        alive.clear()
        simulate(crowded, "4x4", accuracy="1%", threads=threads, progress=count)
        assert max(alive) == threads


def test_better_accuracy_samples_less(crowded: Workload, sampled: Result) -> None:
    better = simulate(crowded, "4x4", accuracy="0.01%")
    assert better.summary.sampled_share < sampled.summary.sampled_share


def with_graphs(workload: Workload) -> Workload:
    """Return two of three jobs with overlapped gradients or sharded parameters."""
    make = ParallelJobs()
    ways = zip(workload, itertools.cycle(("ddp", "fsdp:3", "")), strict=False)
    return Workload([make.job(job, way) if way else job for job, way in ways])


def test_a_window_that_is_too_uncertain_becomes_twice_as_long(crowded: Workload) -> None:
    policy = PolicySet.parse("paper")
    one = run._Run(crowded, Cluster(servers=4), NetworkModel(), policy, 0, "full", 0.001, None)
    state = one.state(compute_times(crowded, one.cluster), 0, run._WINDOWS[0])
    advance, cycles = compiled_kernel(), state.cycles
    before, longer = cycles.copy(), 0
    while advance(state, 1) == kernel.BUDGET_SPENT:
        goes_on = (cycles.phase == SECOND_HALF) & (before.phase == SECOND_HALF)
        for now, then in zip(cycles[goes_on], before[goes_on], strict=True):
            if now.target != then.target:
                assert now.target == 2 * now.seen
                assert now.seen >= then.target
                longer += 1
        before = cycles.copy()
    assert longer > 10


@pytest.fixture
def few() -> Workload:
    """Two jobs of one GPU each, and one of both GPUs, which has fewest iterations left."""
    forward_ns, backward_ns = 31_500_000, 47_300_000
    jobs = [("one", 6, 1, 70_000), ("other", 12, 1, 50_000), ("both", 19, 2, 20_000)]
    return Workload(
        [
            Job(name, arrival_s * 10**9, gpus, iterations, forward_ns, backward_ns, 10**8, 10**9)
            for name, arrival_s, gpus, iterations in jobs
        ]
    )


@pytest.mark.parametrize("window", run._WINDOWS)
def test_a_few_jobs_that_come_to_repeat_are_skipped_exactly(
    few: Workload, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_WINDOWS", (window,))
    found = simulate(few, "1x2", policy="lwf:1+srsf:1", accuracy=0.01)
    exact = simulate(few, "1x2", policy="lwf:1+srsf:1")
    assert found.summary.sampled_share == 0
    assert found.finish_ns.tolist() == exact.finish_ns.tolist()
    assert found.summary.skipped_tasks > 300_000


@pytest.mark.parametrize("window", run._WINDOWS)
def test_a_window_after_a_repetition_is_as_long_as_any_other(few: Workload, window: int) -> None:
    """Settling takes longer, and a repetition ends it."""
    policy = PolicySet.parse("lwf:1+srsf:1")
    one = run._Run(
        few, Cluster(servers=1, gpus_per_server=2), NetworkModel(), policy, 0, "full", 0.01, None
    )
    state = one.state(compute_times(few, one.cluster), 0, window)
    advance, cycles = compiled_kernel(), state.cycles
    phases = set()
    while advance(state, 1) == kernel.BUDGET_SPENT:
        phases.update(cycles.phase.tolist())
        windows = cycles.target / np.maximum(1, window * cycles.active)
        assert (windows[cycles.phase == FIRST_HALF] <= 4).all()
    assert FIRST_HALF in phases


def test_jobs_with_graphs_are_sampled_within_their_margins() -> None:
    workload = with_graphs(generate_workload(CROWDED, seed=4))
    exact, found = simulate(workload, "4x4"), simulate(workload, "4x4", accuracy="1%")
    summary, true = found.summary, exact.summary
    assert 0.1 < summary.sampled_share < 1
    assert summary.simulated_tasks == true.simulated_tasks
    assert found.gpu_busy_ns.sum() == exact.gpu_busy_ns.sum()
    assert abs(summary.average_jct_s - true.average_jct_s) <= summary.average_jct_margin_s
    assert abs(summary.makespan_s - true.makespan_s) <= summary.makespan_margin_s
    assert (np.abs(found.jct_s - exact.jct_s) <= found.jct_margin_s).mean() >= 0.9


@given(case=st.one_of(repetitive((1, 20, 200, 2_000)), repetitive((1, 20, 200), graphs=True)))
def test_an_accuracy_that_nothing_reaches_gives_the_exact_bits(case: Case) -> None:
    expected = outcome(run_engine(case))
    assert outcome(run_engine(case, accuracy=1e-15)) == expected


@given(case=st.one_of(repetitive((20, 200, 2_000)), repetitive((20, 200, 2_000), graphs=True)))
def test_sampling_ends_and_loses_no_iteration(case: Case) -> None:
    """Also with graphs, tiny tasks, all kinds of order, contention and GPU."""
    expected, found = run_engine(case), run_engine(case, accuracy=0.1)
    # How many messages are cut if they share a port depends on when jobs are there.
    if found.gpus == expected.gpus and not case.policies.buckets_if_shared:
        assert found.summary.simulated_tasks == expected.summary.simulated_tasks
    assert (found.jct_margin_s >= 0).all()
    assert (found.finish_ns > found.start_ns).all()
    if found.summary.sampled_share == 0:
        assert outcome(found) == outcome(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "graphs", "least"),
    [("paper", False, 10), ("ff+fifo+ada-dual", False, 7), ("paper", True, 7)],
)
def test_most_random_workloads_are_near_the_exact_average(
    policy: str, graphs: bool, least: int
) -> None:
    """And within the margins of 95%; benchmarks/sampling.py checks many more."""
    held, near, jobs = 0, 0, []
    for seed in range(12):
        workload = generate_workload(CROWDED, seed=seed)
        if graphs:
            workload = with_graphs(workload)
        exact = simulate(workload, "4x4", policy=policy)
        found = simulate(workload, "4x4", policy=policy, accuracy=0.01)
        off_s = abs(found.summary.average_jct_s - exact.summary.average_jct_s)
        held += off_s <= found.summary.average_jct_margin_s
        near += off_s <= 0.01 * exact.summary.average_jct_s
        jobs.append((np.abs(found.jct_s - exact.jct_s) <= found.jct_margin_s).mean())
    assert held >= 10
    assert near >= least
    assert np.mean(jobs) >= 0.9


def test_margins_are_those_of_a_prediction() -> None:
    """Around 3, of 1, 3 and 5: t(2) * 2 * sqrt(1 + 1/3)."""
    values = np.array([[1.0], [3.0], [5.0]])
    assert margins(values, np.array([3.0]))[0] == pytest.approx(4.303 * 2 * (4 / 3) ** 0.5)
    assert margins(values, np.array([2.0]))[0] == pytest.approx(1 + 4.303 * 2 * (4 / 3) ** 0.5)


def test_runs_that_agree_have_a_margin_of_exactly_0() -> None:
    """The mean of three equal floating-point numbers may be another one."""
    values = np.tile(np.random.default_rng(1).random(100), (3, 1))
    assert not margins(values, values[0]).any()


def test_runs_that_agree_on_the_average_by_luck_have_the_margin_of_their_jobs(
    exact: Result,
) -> None:
    """Half of the jobs are early in the first run and late in the last; the others the reverse."""
    shift_ns = np.where(np.arange(len(exact.workload)) % 2, 10**9, -(10**9))
    runs = [replace(exact, finish_ns=exact.finish_ns + k * shift_ns) for k in (-1, 0, 1)]
    summary = median_run(runs).summary
    pooled_s = 1.96 * (4 / 3) ** 0.5  # The standard deviation of -1, 0 and 1 is 1.
    assert summary.makespan_margin_s == pytest.approx(pooled_s)
    assert summary.average_jct_margin_s == pytest.approx(pooled_s / len(exact.workload) ** 0.5)


def test_a_page_shows_margins_and_what_to_think_of_them(sampled: Result, tmp_path: Path) -> None:
    margin_s = 0.5 * sampled.summary.average_jct_s
    wide = replace(sampled, summary=replace(sampled.summary, average_jct_margin_s=margin_s))
    write_run_page(wide, str(tmp_path / "run.html"))
    page = (tmp_path / "run.html").read_text()
    assert "The interval, ±50%, is wider than the 1% asked for" in page
    slowest = int(sampled.jct_s.argmax())
    assert f"{sampled.jct_s[slowest]:,.1f} ± {sampled.jct_margin_s[slowest]:,.1f}<" in page


def test_margins_are_stored(sampled: Result, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("stored")
    write_json(sampled, folder / "run.json")
    write_parquet(sampled, folder / "run.parquet")
    for name in ("run.json", "run.parquet"):
        stored = read_result(folder / name)
        assert stored.summary == sampled.summary
        assert stored.settings.accuracy == 0.01
        assert stored.jobs["jct_margin_s"].to_list() == sampled.jct_margin_s.tolist()


def test_the_summary_shows_margins_and_share(sampled: Result, exact: Result) -> None:
    text = str(sampled)
    summary = sampled.summary
    assert f"± {summary.average_jct_margin_s:,.2f} s (95%)" in text
    assert f"{summary.sampled_share:.0%} sampled" in text
    assert "±" not in str(exact)
    assert "sampled" not in str(exact)


def test_a_policy_without_promises_is_simulated_exactly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    workload = generate_workload(replace(CROWDED, jobs=8, iterations=(50, 100)), seed=1)
    policy = paper_with(admission="k-way")
    with caplog.at_level(logging.WARNING, "headway"):
        found = simulate(workload, "4x4", policy=policy, accuracy=0.01)
    assert "Simulating exactly: admission policy 'k-way'" in caplog.text
    assert outcome(found) == outcome(simulate(workload, "4x4", policy=policy))


def test_few_tasks_are_simulated_exactly(
    crowded: Workload, exact: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FEW_TASKS", 20_000_000)
    found = simulate(crowded, "4x4", accuracy="1%")
    assert (outcome(found), found.settings.accuracy) == (outcome(exact), 0.01)
    assert str(found).endswith("Nothing was sampled: this result is exact.")


def test_where_little_is_estimated_the_result_is_exact(
    crowded: Workload, exact: Result, sampled: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = simulate(crowded, "4x4", accuracy="0.1%")
    assert 0 < little.summary.sampled_share < sampled.summary.sampled_share
    monkeypatch.setattr(run, "_sampling_pays", sampling_pays)
    assert outcome(simulate(crowded, "4x4", accuracy="0.1%")) == outcome(exact)
    assert outcome(simulate(crowded, "4x4", accuracy="1%")) == outcome(sampled)


def test_after_a_trial_that_estimated_little_the_result_is_exact(
    crowded: Workload, exact: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial ends at the same instant however long the slices are."""
    ends: list[Progress] = []

    def note(now: Progress) -> bool:
        if will_not_pay(now):
            ends.append(replace(now, wall_s=0))
        return will_not_pay(now)

    monkeypatch.setattr(run, "_will_not_pay", note)
    monkeypatch.setattr(run, "_LARGEST_SLICE", 64)
    monkeypatch.setattr(run, "_TRIAL", 0.001)
    for first_slice, slice_s in ((1_000, 0.05), (1, 0.0), (7, 1e-9)):
        monkeypatch.setattr(run, "_FIRST_SLICE", first_slice)
        monkeypatch.setattr(run, "_SLICE_S", slice_s)
        assert outcome(simulate(crowded, "4x4", accuracy="0.1%")) == outcome(exact)
    assert len(ends) == 3
    assert ends.count(ends[0]) == 3
    assert 0 < ends[0].fraction < 0.5


def test_an_error_of_another_run_counts_only_if_that_run_is_needed(
    crowded: Workload, exact: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would depend on the number of cores whether there is a result."""
    result_of = run._Run.result

    def fail_or_run(one: run._Run, window: int, *rest: Any) -> Result:
        if window in run._WINDOWS[1:]:
            raise PolicyError(f"window {window}")
        return result_of(one, window, *rest)

    monkeypatch.setattr(run._Run, "result", fail_or_run)
    with pytest.raises(PolicyError, match=f"window {run._WINDOWS[1]}"):
        simulate(crowded, "4x4", accuracy="1%")
    monkeypatch.setattr(run, "_sampling_pays", lambda _: False)
    assert outcome(simulate(crowded, "4x4", accuracy="1%")) == outcome(exact)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_the_first_run_ends_the_others(
    crowded: Workload, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    ended: list[int] = []

    def fail_or_wait(one: run._Run, window: int, _: None, report: Callable[..., None]) -> Result:
        deadline = time.monotonic() + PATIENCE_S
        while window != run._WINDOWS[0] and time.monotonic() < deadline:
            report(Progress(0.0, 0.0, 0.0, 0, 0, 0, 1))
        ended.append(window)
        raise PolicyError(f"window {window}")

    monkeypatch.setattr(run._Run, "result", fail_or_wait)
    with pytest.raises(PolicyError, match=f"window {run._WINDOWS[0]}"):
        simulate(crowded, "4x4", accuracy="1%", threads=threads)
    assert ended == [run._WINDOWS[0]]


@pytest.mark.parametrize("others_fail", [False, True])
def test_the_exact_run_after_a_trial_begins_when_the_memory_of_the_others_is_free(
    crowded: Workload, monkeypatch: pytest.MonkeyPatch, others_fail: bool
) -> None:
    result_of, state_of, drive = run._Run.result, run._Run.state, run.drive
    states: list[weakref.ref[State]] = []
    alive: list[int] = []

    def count_and_run(one: run._Run, window: int, *rest: Any) -> Result:
        if window == run._EXACT:
            alive.append(sum(state() is not None for state in states))
        return result_of(one, window, *rest)

    def make_and_note(one: run._Run, *arguments: Any) -> State:
        state = state_of(one, *arguments)
        states.append(weakref.ref(state))
        return state

    def drive_or_fail(state: State, *rest: Any) -> float:
        if state.rules[0].window in run._WINDOWS[1:]:
            raise PolicyError("an error that does not count")
        return drive(state, *rest)

    monkeypatch.setattr(run._Run, "result", count_and_run)
    monkeypatch.setattr(run._Run, "state", make_and_note)
    if others_fail:
        monkeypatch.setattr(run, "drive", drive_or_fail)
        monkeypatch.setattr(run, "_sampling_pays", lambda _: False)
    else:
        monkeypatch.setattr(run, "_will_not_pay", lambda now: now.fraction > 0.1)
    gc.collect()
    gc.disable()
    try:
        simulate(crowded, "4x4", accuracy="1%")
    finally:
        gc.enable()
    assert alive == [0]
    assert len(states) >= 2


def test_the_time_of_a_sampled_simulation_is_that_of_all_its_runs(
    crowded: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = run.drive
    ended_s: list[float] = []

    def drive_and_note(*arguments: Any) -> float:
        ended_s.append(drive(*arguments))
        return ended_s[-1]

    monkeypatch.setattr(run, "drive", drive_and_note)
    summary = simulate(crowded, "4x4", accuracy="1%").summary
    assert len(ended_s) == 3
    assert summary.wall_s == pytest.approx(sum(ended_s))
    ended_s.clear()
    monkeypatch.setattr(run, "_sampling_pays", lambda _: False)
    summary = simulate(crowded, "4x4", accuracy="1%").summary
    assert len(ended_s) >= 2
    assert summary.wall_s >= 0.999 * sum(ended_s)


@pytest.mark.parametrize("pays", [True, False])
def test_progress_never_falls(
    crowded: Workload, monkeypatch: pytest.MonkeyPatch, pays: bool
) -> None:
    monkeypatch.setattr(run, "_sampling_pays", lambda _: pays)
    seen: list[float] = []
    simulate(crowded, "4x4", accuracy="1%", progress=lambda now: seen.append(now.fraction))
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert 0.5 <= seen[-1] <= 1
    assert pays or seen[-1] == 1


def test_a_timeline_cannot_be_sampled(crowded: Workload) -> None:
    with pytest.raises(InputError, match="a timeline shows every task"):
        simulate(crowded, "4x4", accuracy=0.01, timeline=Timeline())


def test_sampling_needs_full_acceleration(crowded: Workload) -> None:
    with pytest.raises(InputError, match="needs the acceleration 'full'"):
        simulate(crowded, Cluster(4, 4), accuracy=0.01, acceleration="solo")


@pytest.mark.parametrize(
    ("given", "value"), [("1%", 0.01), (" 0.5 % ", 0.005), ("0.02", 0.02), (0.25, 0.25)]
)
def test_an_accuracy_is_a_percentage_or_a_number(given: float | str, value: float) -> None:
    assert accuracy_from(given) == pytest.approx(value)


@pytest.mark.parametrize("given", ["", "%", "one", "0%", "-1%", "100%", "nan", 0, 1, 1.5, True])
def test_an_accuracy_is_between_nothing_and_everything(given: float | str) -> None:
    with pytest.raises(InputError, match="must be more than 0"):
        accuracy_from(given)
