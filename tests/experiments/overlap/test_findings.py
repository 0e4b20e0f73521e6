"""Verdicts with and without overlap follow from the data, and the settings are what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from types import MappingProxyType

import numpy as np
import polars
import pytest

from headway.domain.models import MODELS
from headway.experiments.overlap.bounds import busiest, identical
from headway.experiments.overlap.cases import (
    HEADWAY,
    MEMORIES,
    POLICIES,
    SETTINGS,
    cases,
    with_workload,
)
from headway.experiments.overlap.findings import changed_claims, gain, judge_claims
from headway.experiments.overlap.workloads import ONE_BUCKET, OVERLAPPED, PAPER, changes
from headway.experiments.reproduction import paper
from headway.experiments.reproduction.claims import Verdict
from headway.experiments.reproduction.evaluation import Evaluation
from headway.experiments.reproduction.paper import Case
from headway.experiments.reproduction.runs import RawResults
from headway.network.contention import NETWORKS
from headway.policies.policy_set import PRESETS, PolicySet

SEEDS = (0, 1, 2)
ADA = paper.LWF_ADA


def crafted(
    jct_s: Mapping[Case, float], jobs: Mapping[Case, list[int]] = MappingProxyType({})
) -> Evaluation:
    """Return an evaluation where a case has this average JCT, 1000 s by default.

    Seeds differ by far more than cases do. A case has one job, on the given GPUs.
    """
    runs, rows = [], []
    draw = np.random.default_rng(0)
    for case in cases():
        for seed in SEEDS:
            jct = jct_s.get(case, 1000.0) * (1 + seed) * draw.uniform(0.999, 1.001)
            settings = {**asdict(case), "seed": seed}
            figures = {"average_jct_s": jct, "median_jct_s": jct, "p95_jct_s": jct}
            shares = {"average_gpu_utilization": 200 / jct, "makespan_s": 10 * jct}
            runs.append({**settings, **figures, **shares})
            job = {"job_id": "0", "model": "vgg16", "iterations": 100, "arrival_ns": 0}
            times = {"start_ns": 0, "finish_ns": round(jct_s.get(case, 1000.0) * 1e9)}
            rows.append({**settings, **job, **times, "gpus": jobs.get(case, [0, 4])})
    gpus = polars.DataFrame({"gpu": []})
    return Evaluation(RawResults(polars.DataFrame(runs), polars.DataFrame(rows), gpus), SEEDS)


@pytest.mark.parametrize(
    ("overlapped_s", "verdict"),
    [(900.0, Verdict.HOLDS), (1000.0, Verdict.IN_PART), (1100.0, Verdict.FAILS)],
)
def test_whether_overlap_helps_follows_from_the_data(overlapped_s: float, verdict: Verdict) -> None:
    found = gain(crafted({with_workload(HEADWAY, OVERLAPPED): overlapped_s}), HEADWAY)
    assert found.verdict == verdict
    assert found.jct.value == pytest.approx(overlapped_s / 1000, abs=0.002)
    assert found.makespan.value == pytest.approx(overlapped_s / 1000, abs=0.002)
    if verdict != Verdict.IN_PART:
        assert found.seeds_with_lower_jct == (3 if overlapped_s < 1000 else 0)
        assert (found.utilization.value > 0) == (overlapped_s < 1000)


def test_a_claim_may_hold_without_overlap_and_fail_with_it() -> None:
    both = {ADA: 700.0, with_workload(ADA, OVERLAPPED): 700.0}
    claim = "Ada-SRSF: average JCT saved against SRSF(1)"
    for lost in (None, ADA, with_workload(ADA, OVERLAPPED)):
        found = judge_claims(crafted(both if lost is None else {**both, lost: 1100.0}))["16 GB"]
        changed = {
            plain.claim: (plain.verdict, new.verdict) for plain, new in changed_claims(found)
        }
        if lost is None:
            assert claim not in changed
        else:
            verdicts = (Verdict.HOLDS, Verdict.FAILS)
            assert changed[claim] == (verdicts if lost.workload == OVERLAPPED else verdicts[::-1])


def test_all_claims_are_judged_with_either_memory_and_those_on_schedulers_elsewhere() -> None:
    found = judge_claims(crafted({}))
    numbers = {name: [len(part) for part in kinds.values()] for name, kinds in found.items()}
    assert numbers.pop("16 GB") == [20, 20]
    assert numbers.pop("32 GB") == [19, 19]
    assert set(map(tuple, numbers.values())) == {(10, 10)}
    assert len(numbers) == 2


def test_the_settings_run_what_they_say() -> None:
    for name, kinds in SETTINGS.items():
        for kind, setting in kinds.items():
            for case in paper.SCHEDULERS.values():
                run = setting(case)
                before, policies = PolicySet.parse(case.policy), PolicySet.parse(run.policy)
                assert policies.placement == before.placement
                assert policies.admission == before.admission
                assert policies.priority == ("srtf" if "SRTF" in name else "srsf")
                assert policies.bucket_bytes == (25 * 2**20 if "25 MB" in name else None)
                assert run.workload == (OVERLAPPED if kind == "overlapped" else PAPER)
                assert f"{run.gpu_memory_gb} GB" == name.partition(",")[0]


def test_every_case_can_be_run() -> None:
    assert len(cases()) == len(set(cases()))
    assert {case.workload for case in cases()} <= {PAPER, *changes()}
    assert PolicySet.parse(HEADWAY.policy) == PolicySet.parse(PRESETS["headway"])
    for case in cases():
        PolicySet.parse(case.policy)
    for memory_gb in MEMORIES.values():
        for case in POLICIES.values():
            for workload in (PAPER, OVERLAPPED):
                assert replace(case, gpu_memory_gb=memory_gb, workload=workload) in cases()


def test_the_makespan_is_no_shorter_than_computing_or_sending() -> None:
    profile, network = MODELS["vgg16"], NETWORKS["10gbe"]
    across, within = HEADWAY, ADA
    evaluation = crafted({}, {across: [3, 4], within: [4, 5]})
    makespan_s = evaluation.sample(across, "makespan_s")
    found = busiest(evaluation, across, network)
    computing_s = 100 * (profile.forward_ns + profile.backward_ns) / 1e9
    sending_s = 100 * network.b_ns_per_byte * profile.gradient_bytes / 1e9
    assert found.gpu == pytest.approx(computing_s / makespan_s)
    assert found.link == pytest.approx(sending_s / makespan_s)
    assert busiest(evaluation, within, network).link == pytest.approx([0, 0, 0])


def test_jobs_are_identical_only_in_all_of_start_finish_and_gpus() -> None:
    case = Case("ff", "fifo+srsf:1")
    other = with_workload(case, ONE_BUCKET)
    assert identical(crafted({}), case, other) == (3, 3)
    assert identical(crafted({other: 1001.0}), case, other) == (0, 3)
    assert identical(crafted({}, {other: [0, 8]}), case, other) == (0, 3)
