"""Synthetic workloads, drawn from a seed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.job import Job
from headway.domain.limits import MAX_GPUS, MAX_ITERATIONS, number_from, whole
from headway.domain.models import MODELS, PAPER_PROFILES, ProfileSet
from headway.domain.profiles import measured_times, model_names
from headway.domain.workload import Workload
from headway.graphs.parallel import FIELD, parse_parallel
from headway.workload.draw import LONGEST_SPAN_S, MAX_JOBS, Draw, counts_by_share
from headway.workload.parallel import ParallelJobs

_FALLBACK = "ddp"
"""How jobs are trained that do not suit what was drawn for them."""

_log = logging.getLogger("headway")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The distribution that jobs are drawn from.

    `mix` maps a number of GPUs to its share of the jobs. Iterations are uniform over a closed
    range, models are uniform, and arrivals are uniform over the whole seconds 1..span. A model's
    profile comes from the first set in `profiles` that has it. With `parallel`, such as `ddp` or
    `ddp@3,fsdp:12`, jobs have graphs made from the layers of these profiles; a number after @ is
    a share of the jobs, by default 1. A job whose GPUs or layers do not suit what is drawn for it
    has `ddp`.
    """

    jobs: int
    span_s: int
    mix: Mapping[int, float]
    iterations: tuple[int, int]
    models: Sequence[str]
    profiles: tuple[ProfileSet, ...] = PAPER_PROFILES
    parallel: str = ""

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
    parallel: str | None = None,
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
        parallel: How they are trained, such as `ddp` or `ddp@3,fsdp:12`, likewise.
    """
    if parallel is not None:
        _shares(parallel)
    if isinstance(recipe, str):
        recipe = preset_recipe(recipe)
    changes: dict[str, Any] = {
        "jobs": jobs,
        "span_s": span_s,
        "mix": mix,
        "iterations": iterations,
        "models": models,
        "parallel": parallel,
    }
    recipe = replace(recipe, **{key: value for key, value in changes.items() if value is not None})
    whole(seed, "seed", 0, 2**63 - 1)
    draw = Draw(seed)
    counts = counts_by_share(recipe.jobs, list(recipe.mix.values()))
    gpus = [size for size, count in zip(recipe.mix, counts, strict=True) for _ in range(count)]
    draw.shuffle(gpus)
    low, high = recipe.iterations
    rounds = [draw.integer(low, high) for _ in gpus]
    chosen = [recipe.models[draw.integer(0, len(recipe.models) - 1)] for _ in gpus]
    arrivals = sorted(draw.integer(1, recipe.span_s) for _ in gpus)
    jobs_drawn = [
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
    ]
    if recipe.parallel:
        jobs_drawn = _in_parallel(jobs_drawn, recipe, draw)
    return Workload(
        jobs_drawn,
        source=f"generated workload, seed {seed}",
        profiles=() if recipe.profiles == PAPER_PROFILES else measured_times(recipe.profiles),
    )


def _in_parallel(jobs: list[Job], recipe: Recipe, draw: Draw) -> list[Job]:
    """Return the jobs with graphs; say how many do not suit what was drawn for them."""
    shares = _shares(recipe.parallel)
    counts = counts_by_share(len(jobs), list(shares.values()))
    drawn = [text for text, count in zip(shares, counts, strict=True) for _ in range(count)]
    draw.shuffle(drawn)
    made = ParallelJobs(recipe.profiles)
    replaced: Counter[str] = Counter()
    found = []
    for job, text in zip(jobs, drawn, strict=True):
        suits = made.misfit(job, text) is None
        replaced[text] += not suits
        found.append(made.job(job, text if suits else _FALLBACK))
    for text, count in (+replaced).items():
        _log.warning(
            "%s of %s jobs drawn for %s train with %s: their GPUs or their model's layers do not "
            "suit it.",
            f"{count:,}",
            f"{drawn.count(text):,}",
            text,
            _FALLBACK,
        )
    return found


def _shares(parallel: str) -> dict[str, float]:
    """Return the share of each way to train in a text such as `ddp@3,fsdp:12`."""
    shares: dict[str, float] = {}
    for part in parallel.split(","):
        text, at, share = part.strip().partition("@")
        parse_parallel(text)
        if text in shares:
            raise InputError(f"{shown(text)} is duplicated.", field=FIELD)
        try:
            shares[text] = number_from(share) if at else 1
        except ValueError:
            shares[text] = 0
        if not 0 < shares[text] <= MAX_JOBS:
            raise InputError(
                f"the share after @ must be a positive number, not {shown(share)}.", field=FIELD
            )
    return shares
