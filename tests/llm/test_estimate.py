"""Estimated lengths of iterations against simulated ones, and the plans chosen by them."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace
from functools import cache

import pytest

from headway.configuration import network_from
from headway.experiments import plan_ranking
from headway.experiments.plan_ranking import estimate_plans, rank_plans
from headway.experiments.prediction import predicted_iteration_ns
from headway.llm.clusters import usual_network
from headway.llm.config import ModelConfig
from headway.llm.config_file import config_from
from headway.llm.estimate import estimated_iteration_ns
from headway.llm.gpu_file import gpu_from
from headway.llm.memory import plan_memory
from headway.llm.plan import Plan
from headway.llm.plans import candidate_plans

DENSE = replace(config_from("llama2-7b"), layers=10)
MIXTURE = replace(config_from("mixtral-8x7b"), layers=7)
DEEPSEEK = replace(config_from("deepseek-v3"), layers=9, experts=32, dense_layers=1)
MODELS = {"dense": DENSE, "mixture": MIXTURE, "deepseek": DEEPSEEK}
GPUS, BATCH = 64, 128
GPU = gpu_from("h100")
NETWORK = network_from(usual_network("h100"))


@cache
def plans_for(name: str) -> list[Plan]:
    """Return all plans that fit, in an order that has nothing to do with how fast they are."""
    found = candidate_plans(MODELS[name], GPUS, GPU.memory_bytes, global_batch=BATCH)
    plans = [plan for plan in found if plan.stages * plan.microbatches <= 200]
    return random.Random(0).sample(plans, len(plans))


def error(model: ModelConfig, plan: Plan) -> float:
    simulated = predicted_iteration_ns(model, plan, GPU, NETWORK)
    return estimated_iteration_ns(model, plan, GPU, NETWORK) / simulated - 1


@pytest.mark.parametrize("name", MODELS)
def test_estimates_are_near_the_simulation_for_all_kinds_of_plans(name: str) -> None:
    errors = {str(plan): error(MODELS[name], plan) for plan in plans_for(name)[:12]}
    sizes = sorted(map(abs, errors.values()))
    assert statistics.fmean(sizes) < 0.04, errors
    assert sizes[int(0.9 * len(sizes))] < 0.1, errors
    assert sizes[-1] < 0.25, errors


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("dense", "dp64-mb1-gb256-zero3"),
        ("dense", "dp64-mb1-gb256-zero2"),
        ("mixture", "dp64-ep2-mb1-gb256-zero3"),
        ("mixture", "dp64-ep2-mb1-gb256-zero1"),
        ("mixture", "dp64-ep8-mb1-gb256-zero1-nooverlap"),
        ("deepseek", "dp64-ep32-mb1-gb256-zero1-nooverlap"),
        ("deepseek", "pp4-dp16-ep16-mb1-gb256-zero1"),
        ("dense", "pp4-dp16-mb1-gb256-interleaved2"),
    ],
)
def test_estimates_have_every_message_of_a_plan(name: str, plan: str) -> None:
    assert abs(error(MODELS[name], Plan.parse(plan))) < 0.05


@pytest.mark.parametrize("name", MODELS)
def test_listed_plans_are_fastest_first_and_have_the_best_of_all(name: str) -> None:
    model = MODELS[name]
    found = candidate_plans(model, 16, GPU.memory_bytes, global_batch=16)
    plans = [plan for plan in found if plan.stages * plan.microbatches <= 60]
    assert len(plans) > 30
    estimated = estimate_plans(model, plans, GPU, NETWORK)
    ranked = rank_plans(model, estimated, GPU, NETWORK, count=5)
    times = [one.iteration_ns for one in ranked]
    assert len(times) == 5
    assert times == sorted(times)
    assert times[0] == min(predicted_iteration_ns(model, plan, GPU, NETWORK) for plan in plans)


def test_plans_that_are_too_large_to_simulate_keep_their_estimates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = [Plan.parse("dp64-mb1-gb128-zero1"), Plan.parse("tp8-dp8-sp-mb1-gb128-zero1")]
    monkeypatch.setattr(plan_ranking, "MOST_PASSES", 2 * 16 * 8)
    estimated = estimate_plans(DENSE, plans, GPU, NETWORK)
    ranked = {str(one.plan): one for one in rank_plans(DENSE, estimated, GPU, NETWORK, count=2)}
    assert [ranked[str(plan)].simulated for plan in plans] == [True, True]
    monkeypatch.setattr(plan_ranking, "MOST_PASSES", 2 * 2 * 64 - 1)
    ranked = {str(one.plan): one for one in rank_plans(DENSE, estimated, GPU, NETWORK, count=2)}
    assert [ranked[str(plan)].simulated for plan in plans] == [False, False]
    assert set(ranked.values()) == set(estimated)


def test_plans_are_listed_with_the_memory_of_their_attention() -> None:
    plan = Plan.parse("tp8-mb1-gb8-norecompute")
    (fused,) = estimate_plans(DENSE, [plan], GPU, NETWORK)
    (unfused,) = estimate_plans(DENSE, [plan], GPU, NETWORK, fused_attention=False)
    assert fused.memory == plan_memory(DENSE, plan)
    assert unfused.memory == plan_memory(DENSE, plan, fused_attention=False)
    assert unfused.memory.total > fused.memory.total


def test_plans_that_could_be_among_the_fastest_are_simulated() -> None:
    plans = plans_for("dense")[:20]
    estimated = estimate_plans(DENSE, plans, GPU, NETWORK)
    seen: list[int] = []
    ranked = rank_plans(
        DENSE, estimated, GPU, NETWORK, count=3, done=lambda done, total: seen.append(total)
    )
    assert 3 <= len(seen) <= 9
    assert set(seen) == {9}
    slowest_ns = ranked[-1].iteration_ns
    left = estimated[len(seen)]
    assert len(seen) == 9 or 0.9 * left.iteration_ns > slowest_ns
