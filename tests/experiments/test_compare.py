"""Policies compared on the same workloads."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import headway
from builders import EXAMPLES, make_job, make_workload
from headway.domain.errors import InputError
from headway.domain.workload import Workload
from headway.engine.run import simulate
from headway.experiments import statistics
from headway.experiments.compare import METRICS, Comparison, compare, draw
from headway.figure_style import label_lines
from headway.results.schema import Result

POLICIES = ("lwf:1+ada-srsf", "rand+srsf:1", "ff+fifo+srsf:2", "lwf:1+srsf:1@1.5")


def workloads(count: int) -> list[Workload]:
    return [
        make_workload(
            *(make_job(gpus=1 + (i + seed) % 4, iterations=2 + i, arrival_ns=i) for i in range(5))
        )
        for seed in range(count)
    ]


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(workloads(3), POLICIES, "3x2", network=headway.NetworkModel(a_ns=5), threads=2)


def test_every_figure_is_what_simulate_returns(found: Comparison) -> None:
    sets = [
        headway.PolicySet("lwf:1", "srsf", "ada-dual"),
        headway.PolicySet("rand", "srsf", "srsf:1"),
        headway.PolicySet("ff", "fifo", "srsf:2"),
        headway.PolicySet("lwf:1", "srsf", "srsf:1", 3 * 2**19),
    ]
    for policy, policies in zip(POLICIES, sets, strict=True):
        for seed, workload in enumerate(workloads(3)):
            summary = headway.simulate(
                workload,
                "3x2",
                network=headway.NetworkModel(a_ns=5),
                policy=policies,
                seed=seed,
            ).summary
            for metric in METRICS[:-1]:
                assert found.sample(policy, metric)[seed] == getattr(summary, metric)
            product = summary.energy_j * summary.average_jct_s
            assert found.sample(policy, "energy_delay_js")[seed] == product


def test_comparisons_are_paired_with_the_first_policy(found: Comparison) -> None:
    first, other = found.sample(POLICIES[0]), found.sample(POLICIES[1])
    assert found.mean(POLICIES[1]) == statistics.mean(other)
    assert found.ratio(POLICIES[1]) == statistics.paired_ratio(other, first)
    assert found.difference(POLICIES[1]) == statistics.paired_difference(other, first)
    assert found.wins(POLICIES[1]) == np.count_nonzero(other < first)
    assert found.ratio(POLICIES[0]).value == 1
    assert found.wins(POLICIES[0]) == 0


def test_threads_and_their_order_change_nothing(found: Comparison) -> None:
    again = compare(workloads(3), POLICIES, "3x2", network=headway.NetworkModel(a_ns=5), threads=5)
    assert again.to_dict() == found.to_dict()


def test_progress_begins_with_the_number_of_runs() -> None:
    seen: list[tuple[int, int] | None] = []
    compare(
        workloads(2),
        POLICIES[:2],
        "3x2",
        started=lambda *counts: seen.append(counts),
        done=lambda: seen.append(None),
    )
    assert seen == [(0, 4), None, None, None, None]


@pytest.mark.parametrize(
    ("runs", "policies", "workloads_left", "missing"),
    [
        (
            1,
            POLICIES[:1],
            1,
            f" Left out: {', '.join(POLICIES[1:])}. Compared on 1 of 3 workloads.",
        ),
        (3, POLICIES[:3], 1, f" Left out: {POLICIES[3]}. Compared on 1 of 3 workloads."),
        (4, POLICIES, 1, " Compared on 1 of 3 workloads."),
        (11, POLICIES[:3], 3, f" Left out: {POLICIES[3]}."),
    ],
)
def test_an_interrupt_leaves_a_comparison_of_what_has_finished(
    found: Comparison,
    runs: int,
    policies: tuple[str, ...],
    workloads_left: int,
    missing: str,
) -> None:
    parts: list[Comparison] = []
    left = iter(range(runs - 1, -1, -1))

    def interrupt() -> None:
        if next(left) == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(
            workloads(3),
            POLICIES,
            "3x2",
            network=headway.NetworkModel(a_ns=5),
            threads=1,
            done=interrupt,
            ended_early=parts.append,
        )
    (part,) = parts
    assert (part.policies, len(part.workloads)) == (policies, workloads_left)
    assert part.missing == f"Incomplete: {runs} of 12 runs have finished.{missing}"
    for policy in policies:
        assert part.sample(policy).tolist() == found.sample(policy)[:workloads_left].tolist()
    assert str(part).startswith("Incomplete")
    assert draw(part).axes[0].get_title() == "(a) incomplete"


def test_jobs_that_do_not_fit_are_refused_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.experiments.compare.compile_ahead", pytest.fail)
    with pytest.raises(InputError, match="3 GPUs, but the cluster has 2"):
        compare(workloads(4), POLICIES, "1x2")


def test_one_workload_has_no_intervals() -> None:
    found = compare(workloads(1), POLICIES[:2], "3x2")
    for estimate in (found.mean(POLICIES[1]), found.ratio(POLICIES[1])):
        assert math.isfinite(estimate.value)
        assert math.isnan(estimate.low)
        assert math.isnan(estimate.high)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["policies"][1]["against_first"]["average_jct_s"]["ratio"]["low"] is None
    draw(found)


def test_one_sampled_workload_has_the_intervals_of_sampling() -> None:
    exact = compare(workloads(1), POLICIES[:3], "3x2")
    first, second, third = exact.policies
    assert exact.about_intervals.startswith("A single workload has no intervals")
    found = replace(
        exact,
        summaries={
            first: exact.summaries[first],
            second: (replace(exact.summaries[second][0], average_jct_margin_s=0.25),),
            third: (replace(exact.summaries[third][0], makespan_margin_s=0.5),),
        },
    )
    assert "the error of sampling only" in found.about_intervals
    assert found.mean(second).margin == found.difference(second).margin == pytest.approx(0.25)
    assert found.ratio(second).margin == pytest.approx(0.25 / found.mean(first).value)
    assert found.mean(third, "makespan_s").margin == pytest.approx(0.5)
    for policy, metric in ((first, "average_jct_s"), (second, "makespan_s"), (second, "energy_j")):
        assert not found.mean(policy, metric).has_interval
    rows = str(found).splitlines()
    assert ["±" in row for row in rows] == [False, False, True, False]
    assert ["[" in row for row in rows] == [False, False, True, False]
    entries = json.loads(json.dumps(found.to_dict(), allow_nan=False))["policies"]
    assert entries[1]["runs"][0]["average_jct_margin_s"] == 0.25
    assert entries[1]["average_jct_s"]["high"] == found.mean(second).high
    assert entries[0]["average_jct_s"]["high"] is None
    sampled_first = replace(found, policies=(second, first, third))
    assert not sampled_first.ratio(second).has_interval, "a policy equals itself"
    draw(found)


def test_plain_values_hold_every_run(found: Comparison) -> None:
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [entry["policy"] for entry in data["policies"]] == list(POLICIES)
    assert "against_first" not in data["policies"][0]
    assert [set(run) for run in data["policies"][2]["runs"]] == [
        {*METRICS, "average_jct_margin_s", "makespan_margin_s", "sampled_share"}
    ] * 3


def test_the_figure_shows_every_policy(found: Comparison) -> None:
    average, ratios = draw(found).axes
    assert [label.get_text() for label in average.get_yticklabels()] == list(POLICIES)
    assert len(average.patches) == len(POLICIES)
    assert len(ratios.lines) == 1 + 2 * (len(POLICIES) - 1)


def test_labels_of_figures_differ_however_long_they_are() -> None:
    long = ["/a/long/way/to/mine.py:quiet+srtf+/a/long/way/to/mine.py:smaller", "paper"]
    assert label_lines(long) == ["mine.py:quiet+srtf+mine.py:smaller", "paper"]
    other = [long[0], long[0].replace("/a/long", "/another")]
    assert [label.replace("\n", "") for label in label_lines(other)] == other
    longer = [f"{'x' * 400}{end}" for end in "ab"]
    first, second = label_lines(longer)
    assert "…" in first
    assert (first[-1], second[-1]) == ("a", "b")
    middle = [f"{'x' * 200}{one}{'x' * 200}" for one in "ab"]
    assert [label.replace("\n", "") for label in label_lines(middle)] == middle


def test_own_policies_can_be_compared() -> None:
    own = f"{EXAMPLES / 'my_policies.py'}:packed+srsf:1"
    found = compare(workloads(2), ["lwf:1+srsf:1", own], "3x2")
    assert found.policies == ("lwf:1+srsf:1", own)


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        (["ff+srsf:1"], "policies: a comparison needs at least two policies."),
        (["ff+srsf:1", "ff+srsf:1"], "policies: must differ from each other."),
        (["ff+srsf:1", "ff"], "'ff' is a placement, not a set of policies: write ff[+]srsf"),
        (["ff+srsf:1", "ff+"], "unknown policy 'ff[+]'. .*Or write placement[+]scheduler"),
        (["ff+srsf:1", "a+b+c+d"], "unknown policy 'a[+]b[+]c[+]d'."),
        (["ff+srsf:1", "papers"], "unknown policy 'papers'. Did you mean 'paper'?"),
        (["ff+srsf:1", "fff+srsf:1"], "unknown placement policy 'fff'. Did you mean 'ff'?"),
        (["ff+srsf:1", "ff+srsf:1@big"], "the bucket size after @ must be a number of MB"),
        (["ff+srsf:1", "ff+srsf:1@-1"], "bucket size of policy ff[+]srsf:1@-1: must be 0 or more"),
    ],
)
def test_bad_policies_are_refused(policies: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(workloads(1), policies)


def test_bad_workloads_and_seeds_are_refused() -> None:
    with pytest.raises(InputError, match="at least one workload"):
        compare([], POLICIES)
    with pytest.raises(InputError, match="as many as there are workloads"):
        compare(workloads(2), POLICIES, seeds=[1])
    with pytest.raises(InputError, match="threads: must be at least 1"):
        compare(workloads(1), POLICIES, threads=0)


@pytest.mark.parametrize(("threads", "each"), [(1, 1), (4, 1), (9, 2), (12, 3)])
def test_a_comparison_may_be_sampled(
    threads: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run with its part of the threads."""
    policies = ["paper", "lwf:1+srsf:1"]
    asked: list[tuple[object, object]] = []

    def note(*arguments: Any, **options: Any) -> Result:
        asked.append((options["accuracy"], options["threads"]))
        return simulate(*arguments, **options)

    monkeypatch.setattr("headway.experiments.compare.simulate", note)
    compare(workloads(2), policies, "3x2", accuracy="1%", threads=threads)
    assert asked == [(0.01, each)] * 4
    with pytest.raises(InputError, match="must be more than 0"):
        compare(workloads(2), policies, "3x2", accuracy=2)
