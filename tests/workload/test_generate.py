"""Generated workloads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from headway.domain.errors import InputError
from headway.workload.generate import PRESETS, Recipe, generate_workload

PAPER = PRESETS["paper"]


def test_the_papers_workload_has_the_papers_jobs() -> None:
    workload = generate_workload("paper", seed=0)
    assert Counter(job.gpus for job in workload) == {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}
    assert all(1000 <= job.iterations <= 6000 for job in workload)
    assert all(10**9 <= job.arrival_ns <= 1200 * 10**9 for job in workload)
    assert all(job.arrival_ns % 10**9 == 0 for job in workload)
    assert {job.model for job in workload} == {"vgg16", "resnet50", "inception-v3", "lstm-ptb"}
    assert [job.job_id for job in workload] == [str(index) for index in range(160)]
    arrivals = [job.arrival_ns for job in workload]
    assert arrivals == sorted(arrivals)


def test_draws_are_uniform_over_the_whole_range() -> None:
    workload = generate_workload(replace(PAPER, jobs=20_000), seed=1)
    models = Counter(job.model for job in workload)
    assert all(abs(count - 5000) < 300 for count in models.values())
    iterations = [job.iterations for job in workload]
    assert abs(sum(iterations) / len(iterations) - 3500) < 50
    assert min(iterations) < 1005
    assert max(iterations) > 5995
    seconds = {job.arrival_ns // 10**9 for job in workload}
    assert {1, 1200} <= seconds


def test_a_seed_gives_the_same_jobs_in_every_version() -> None:
    """These figures are part of the interface: published tables depend on them."""
    workload = generate_workload("paper", seed=0)
    first = workload[0]
    assert (first.arrival_ns, first.gpus, first.iterations, first.model) == (
        3_000_000_000,
        1,
        1874,
        "lstm-ptb",
    )
    assert sum(job.iterations * job.gpus for job in workload) == 2_208_429
    assert generate_workload("paper", seed=0).jobs == workload.jobs
    assert generate_workload("paper", seed=1).jobs != workload.jobs


def test_a_workload_scales_and_keeps_its_mix() -> None:
    workload = generate_workload(replace(PAPER, jobs=1600, span_s=60), seed=0)
    assert Counter(job.gpus for job in workload) == {1: 800, 2: 140, 4: 260, 8: 300, 16: 80, 32: 20}
    assert max(job.arrival_ns for job in workload) <= 60 * 10**9


def test_shares_that_do_not_divide_go_to_the_largest_remainders() -> None:
    workload = generate_workload(replace(PAPER, jobs=10, mix={1: 1, 2: 1, 4: 1}), seed=0)
    assert Counter(job.gpus for job in workload) == {1: 4, 2: 3, 4: 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"jobs": 0}, "jobs: must be at least 1, not 0."),
        ({"span_s": 0}, "span: must be at least 1 seconds, not 0."),
        ({"iterations": (9, 3)}, "iterations: must rise from LOW to HIGH, not fall from 9 to 3."),
        ({"mix": {}}, "mix: must not be empty."),
        ({"mix": {0: 1.0}}, "mix: must be at least 1, not 0."),
        ({"mix": {1: -1.0}}, "mix: shares must be positive, not -1.0."),
        ({"models": []}, "models: must not be empty."),
        ({"models": ["vgg"]}, "models: unknown model 'vgg'. Did you mean 'vgg16'?"),
    ],
)
def test_an_impossible_recipe_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        replace(PAPER, **changes)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_an_unknown_preset_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="Did you mean 'paper'"):
        generate_workload("papers")


def test_recipes_can_be_made_from_scratch() -> None:
    recipe = Recipe(jobs=3, span_s=5, mix={2: 1}, iterations=(4, 4), models=["vgg16"])
    assert [job.iterations for job in generate_workload(recipe)] == [4, 4, 4]
