"""Labels that are numbers, as policies see them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import headway
from builders import make_job, make_workload
from headway.domain.cluster import Cluster
from headway.domain.workload import Workload
from headway.engine.setup import ACCELERATIONS
from headway.live.core.rules import Rules
from headway.policies import ClusterView, Integers, part, placement_policy, priority_policy

ALONE = Cluster(1, 1, exclusive=True)


@part
def due_ns(cluster: ClusterView, job: int) -> int:
    return int(1e9 * cluster.extra.deadline_s[job])


@priority_policy("tests-edf", timeless=True)
def edf(cluster: ClusterView, job: int, parameter: float) -> int:
    return due_ns(cluster, job)


@priority_policy("tests-heaviest", timeless=True)
def heaviest(cluster: ClusterView, job: int, parameter: float) -> int:
    return -int(cluster.extra.weight[job] / cluster.extra.deadline_s[job])


@placement_policy("tests-known-only", steady=True, timeless=True)
def known_only(cluster: ClusterView, job: int, candidates: Integers, parameter: float) -> bool:
    weight = cluster.extra.weight[job]
    if math.isnan(weight):
        candidates[:] = candidates[::-1].copy()
    return True


def labelled(*labels: dict[str, Any]) -> Workload:
    return make_workload(*(make_job(labels=own, iterations=3) for own in labels))


def order(workload: Workload, priority: str, **options: Any) -> list[int]:
    """Return the jobs in the order in which they got the only GPU."""
    policy = f"ff+{priority}+srsf:1"
    starts: list[int] = headway.simulate(
        workload, ALONE, policy=policy, **options
    ).start_ns.tolist()
    return sorted(range(len(starts)), key=starts.__getitem__)


@pytest.mark.parametrize("acceleration", ACCELERATIONS)
def test_a_priority_may_be_a_label(acceleration: str) -> None:
    workload = labelled(*({"deadline_s": due} for due in (30, 10.5, 20)))
    assert order(workload, "tests-edf", acceleration=acceleration) == [1, 2, 0]


def test_the_same_code_finds_the_columns_of_any_workload() -> None:
    one = labelled({"weight": 1, "deadline_s": 1}, {"weight": 6, "deadline_s": 2})
    other = labelled(
        {"a": 1, "deadline_s": 1, "user": "x", "weight": 6},
        {"a": 1, "deadline_s": 6, "user": "y", "weight": 1},
    )
    assert order(one, "tests-heaviest") == [1, 0]
    assert order(other, "tests-heaviest") == [0, 1]
    assert order(one, "tests-heaviest") == [1, 0]


def test_a_job_without_the_label_has_nan() -> None:
    result = headway.simulate(
        labelled({"weight": 1}, {}), Cluster(1, 3), placement="tests-known-only"
    )
    assert result.gpus == ((0,), (2,))


@pytest.mark.parametrize(
    "labels", [[{}], [{"deadline": 3}], [{"deadline_s": "soon"}, {"deadline_s": 1}]]
)
def test_a_policy_that_reads_a_column_that_is_not_there_is_told_which(
    labels: list[dict[str, Any]],
) -> None:
    with pytest.raises(headway.PolicyError) as caught:
        order(labelled(*labels), "tests-edf")
    said = str(caught.value)
    assert said.startswith("priority policy 'tests-edf' (")
    assert said.endswith(
        "reads cluster.extra.deadline_s, but the workload has no column 'deadline_s' of numbers."
    )


def test_a_policy_in_a_file_reads_columns_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "def lightest(cluster, job, parameter):\n    return int(cluster.extra.weight[job])\n"
    )
    rows = [f"{weight},0,1,10,resnet50,{weight}" for weight in (3, 1, 2)]
    header = "job_id,arrival_s,gpus,iterations,model,weight"
    Path("w.csv").write_text("\n".join([header, *rows]))
    assert order(headway.read_workload("w.csv"), "own.py:lightest") == [1, 2, 0]


def test_live_jobs_have_no_labels_and_the_failure_says_so() -> None:
    from headway.live.core.core import Core
    from headway.network.contention import NetworkModel

    core = Core("ff+tests-edf+srsf:1", NetworkModel(), 0)
    rules: Rules = core.rules
    assert rules.key(core.state.arrays.cluster, 0) == 0
    assert "there is no column 'deadline_s' of numbers (live jobs have none)" in rules.failure
