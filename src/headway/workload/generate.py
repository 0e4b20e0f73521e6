"""Synthetic workloads, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.job import Job
from headway.domain.limits import MAX_GPUS, MAX_ITERATIONS, whole
from headway.domain.models import MODELS, PAPER_PROFILES, ProfileSet
from headway.domain.profiles import measured_times, model_names
from headway.domain.workload import Workload

MAX_JOBS = 10**7
LONGEST_SPAN_S = 10**9


@dataclass(frozen=True, slots=True)
class Recipe:
    """The distribution that jobs are drawn from.

    `mix` maps a number of GPUs to its share of the jobs. Iterations are uniform over a closed
    range, models are uniform, and arrivals are uniform over the whole seconds 1..span. A model's
    profile comes from the first set in `profiles` that has it.
    """

    jobs: int
    span_s: int
    mix: Mapping[int, float]
    iterations: tuple[int, int]
    models: Sequence[str]
    profiles: tuple[ProfileSet, ...] = PAPER_PROFILES

    def __post_init__(self) -> None:
        whole(self.jobs, "jobs", 1, MAX_JOBS)
        whole(self.span_s, "span", 1, LONGEST_SPAN_S, " seconds")
        low, high = self.iterations
        whole(low, "iterations", 1, MAX_ITERATIONS)
        whole(high, "iterations", 1, MAX_ITERATIONS)
        if low > high:
            raise InputError(
                f"must rise from LOW to HIGH, not fall from {low} to {high}.", field="iterations"
            )
        if not self.mix or not self.models:
            raise InputError("must not be empty.", field="models" if self.mix else "mix")
        for gpus, share in self.mix.items():
            whole(gpus, "mix", 1, MAX_GPUS)
            if not 0 < share <= MAX_JOBS:
                raise InputError(f"shares must be positive, not {shown(share)}.", field="mix")
        known = model_names(self.profiles)
        for model in self.models:
            if model not in known:
                raise InputError(
                    f"unknown model {shown(model)}.{did_you_mean(model, known)}", field="models"
                )


PRESETS = {
    "paper": Recipe(
        jobs=160,
        span_s=1200,
        mix={1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2},
        iterations=(1000, 6000),
        models=tuple(MODELS),
    )
}
"""`paper` is the workload of the paper's evaluation."""


def preset_recipe(name: str) -> Recipe:
    """Return the recipe with this name."""
    if name not in PRESETS:
        raise InputError(
            f"unknown preset {shown(name)}.{did_you_mean(name, PRESETS)}", field="preset"
        )
    return PRESETS[name]


def generate_workload(
    recipe: Recipe | str = "paper",
    seed: int = 0,
    *,
    jobs: int | None = None,
    span_s: int | None = None,
    mix: Mapping[int, float] | None = None,
    iterations: tuple[int, int] | None = None,
    models: Sequence[str] | None = None,
) -> Workload:
    """Draw a workload; jobs are numbered in order of arrival.

    Args:
        recipe: A recipe, or its name.
        seed: The same seed draws the same jobs.
        jobs: The number of jobs, in place of the recipe's.
        span_s: The time in which they arrive, likewise.
        mix: The share of the jobs by number of GPUs, likewise.
        iterations: The range of their iterations, likewise.
        models: The models to draw from, likewise.
    """
    if isinstance(recipe, str):
        recipe = preset_recipe(recipe)
    changes: dict[str, Any] = {
        "jobs": jobs,
        "span_s": span_s,
        "mix": mix,
        "iterations": iterations,
        "models": models,
    }
    recipe = replace(recipe, **{key: value for key, value in changes.items() if value is not None})
    whole(seed, "seed", 0, 2**63 - 1)
    draw = _Draw(seed)
    gpus = [
        size for size, count in zip(recipe.mix, _counts(recipe), strict=True) for _ in range(count)
    ]
    draw.shuffle(gpus)
    low, high = recipe.iterations
    rounds = [draw.integer(low, high) for _ in gpus]
    chosen = [recipe.models[draw.integer(0, len(recipe.models) - 1)] for _ in gpus]
    arrivals = sorted(draw.integer(1, recipe.span_s) for _ in gpus)
    return Workload(
        [
            Job.of_model(
                model,
                job_id=str(index),
                arrival_ns=arrival * 10**9,
                gpus=count,
                iterations=repeats,
                profiles=recipe.profiles,
            )
            for index, (model, arrival, count, repeats) in enumerate(
                zip(chosen, arrivals, gpus, rounds, strict=True)
            )
        ],
        source=f"generated workload, seed {seed}",
        profiles=() if recipe.profiles == PAPER_PROFILES else measured_times(recipe.profiles),
    )


class _Draw:
    """Integers and shuffles from `random()` alone, the one method that is stable across Pythons."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        """Return an integer from low to high, inclusive."""
        return low + int(self._random.random() * (high - low + 1))

    def shuffle(self, items: list[int]) -> None:
        """Shuffle the items in place (Fisher-Yates)."""
        for end in range(len(items) - 1, 0, -1):
            other = self.integer(0, end)
            items[end], items[other] = items[other], items[end]


def _counts(recipe: Recipe) -> list[int]:
    """Split the jobs by share, by the largest-remainder method."""
    total = sum(recipe.mix.values())
    exact = [recipe.jobs * share / total for share in recipe.mix.values()]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for index in by_remainder[: recipe.jobs - sum(counts)]:
        counts[index] += 1
    return counts
