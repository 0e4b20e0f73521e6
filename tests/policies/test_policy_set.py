"""Policies as one value: parsing, overriding parts, and the canonical text."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from builders import EXAMPLES, built_in, make_job, make_workload
from cli.commands import headway
from headway.domain.errors import InputError
from headway.engine.run import simulate
from headway.policies.policy_set import PRESETS, SCHEDULERS, PolicySet
from headway.policies.registry import Kind

WORKLOAD = make_workload(make_job(gpus=4, iterations=3), make_job(gpus=2))
OWN = f"{EXAMPLES}/my_policies.py"


def parts(policy: PolicySet) -> tuple[str, str, str, int | None]:
    return policy.placement, policy.priority, policy.admission, policy.bucket_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("paper", ("lwf:1", "srsf", "ada-dual", None)),
        ("paper@25", ("lwf:1", "srsf", "ada-dual", 25 * 2**20)),
        ("headway", ("least-delay", "srtf", "ada-dual/needed-first", 50 * 2**20)),
        ("headway@0", ("least-delay", "srtf", "ada-dual/needed-first", None)),
        ("headway@25", ("least-delay", "srtf", "ada-dual/needed-first", 25 * 2**20)),
        ("ff+srsf:1", ("ff", "srsf", "srsf:1", None)),
        ("ff+srsf:12", ("ff", "srsf", "srsf:12", None)),
        ("ls+fifo+srsf:3@1", ("ls", "fifo", "srsf:3", 2**20)),
        ("lwf:04+ada-srsf", ("lwf:4", "srsf", "ada-dual", None)),
        (f"{OWN}:packed+srsf:1", (f"{OWN}:packed", "srsf", "srsf:1", None)),
    ],
)
def test_a_text_names_policies(text: str, expected: tuple[str, str, str, int | None]) -> None:
    policy = PolicySet.parse(text)
    assert parts(policy) == expected
    assert policy.name == text


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_is_a_priority_and_an_admission(name: str) -> None:
    policy = PolicySet.parse(f"lwf:1+{name}")
    assert (policy.priority, policy.admission) == SCHEDULERS[name]


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("headway", {"bucket_mb": 0}, "least-delay+srtf+ada-dual/needed-first"),
        ("headway", {"placement": "ff"}, "ff+srtf+ada-dual/needed-first@50/if-shared"),
        ("headway", {"scheduler": "srsf:2"}, "least-delay+srsf+srsf:2@50/if-shared"),
        ("headway", {"admission": "srsf:1"}, "least-delay+srtf+srsf:1@50/if-shared"),
        ("headway", {}, "least-delay+srtf+ada-dual/needed-first@50/if-shared"),
        ("headway", {"bucket_mb": 50}, "least-delay+srtf+ada-dual/needed-first@50"),
        ("paper", {"scheduler": "srsf:1", "priority": "las"}, "lwf:1+las+srsf:1"),
        ("paper", {"bucket_mb": 1.5}, "lwf:1+srsf+ada-dual@1.5"),
    ],
)
def test_an_override_replaces_parts(text: str, changes: dict[str, Any], expected: str) -> None:
    policy = PolicySet.parse(text).override(**changes)
    assert str(policy) == expected
    assert policy.name == (expected if changes else text)


def test_the_canonical_text_of_every_combination_is_read_back() -> None:
    kinds: tuple[Kind, ...] = ("placement", "priority", "admission")
    buckets = (None, 1, 2**20, 2**20 + 1, 25 * 2**20, 2**50)
    sets = [
        PolicySet(placement, priority, admission, bucket_bytes)
        for placement, priority, admission in product(*map(built_in, kinds))
        for bucket_bytes in buckets
    ]
    sets += [replace(each, buckets_if_shared=True, name="") for each in sets if each.bucket_bytes]
    assert len(set(sets)) == len(sets)
    for policy in sets:
        again = PolicySet.parse(str(policy))
        assert again == policy
        assert parts(again) == parts(policy)
        assert again.buckets_if_shared == policy.buckets_if_shared


def test_sets_with_the_same_canonical_text_are_equal() -> None:
    preset, written = PolicySet.parse("paper"), PolicySet.parse("lwf:1.0+srsf+ada-dual@0")
    assert preset == written
    assert len({preset, written}) == 1
    assert (preset.name, written.name) == ("paper", "lwf:1.0+srsf+ada-dual@0")
    assert preset != PolicySet.parse("headway")
    assert preset != "lwf:1+srsf+ada-dual"


def test_a_file_stays_in_the_canonical_text_and_results_show_the_policy_alone() -> None:
    policy = PolicySet.parse(f"{OWN}:packed+srsf:1")
    assert PolicySet.parse(str(policy)) == policy
    assert simulate(WORKLOAD, "4x2", policy=policy).settings.placement == "packed"


def test_a_set_is_pickled_without_loading_its_files(tmp_path: Path) -> None:
    file = tmp_path / "gone.py"
    file.write_text("def gone(cluster, job, candidates, parameter):\n    return True\n")
    policy = PolicySet.parse(f"{file}:gone+srsf:1")
    data = pickle.dumps(policy)
    file.unlink()
    again = pickle.loads(data)
    assert again == policy
    with pytest.raises(InputError, match="no such file"):
        again.choices  # noqa: B018


def test_files_may_move_and_are_loaded_on_first_use(tmp_path: Path) -> None:
    for name in ("here.py", "there.py"):
        function = "def placed(cluster, job, candidates, parameter):\n    return True\n"
        (tmp_path / name).write_text(function)
    here, there = f"{tmp_path}/here.py", f"{tmp_path}/there.py"
    policy = PolicySet.parse(f"{here}:placed+srsf:1")
    moved = policy.with_files_at({here: there})
    assert parts(moved) == (f"{there}:placed", "srsf", "srsf:1", None)
    assert moved.name == policy.name
    assert moved.choices.placement.policy.function.__code__.co_filename == there


def test_simulate_takes_a_set_or_its_text() -> None:
    for policy in ("headway", PolicySet.parse("headway")):
        settings = simulate(WORKLOAD, "4x2", policy=policy).settings
        named = (settings.placement, settings.priority, settings.admission)
        assert named == ("least-delay", "srtf", "ada-dual/needed-first")
        assert settings.bucket_bytes == 50 * 2**20
    default, paper = simulate(WORKLOAD, "4x2"), simulate(WORKLOAD, "4x2", policy="paper")
    assert default.settings == paper.settings


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("headwy", "Did you mean"),
        ("", "unknown policy ''"),
        ("ff+", "unknown policy 'ff+'"),
        ("a+b+c+d", "unknown policy 'a+b+c+d'"),
        ("ff+srsf:1@x", "must be a number of MB, not 'x'"),
        ("ff+srsf:1@-1", "must be 0 or more MB"),
        ("ff+srsf:1@nan", "must be a finite number of MB"),
        ("nope+srsf:1", "unknown placement policy 'nope'"),
        ("ff+nope", "unknown scheduler 'nope'"),
        ("ff+k-way", "is an admission, not a scheduler: write ff+srsf+k-way."),
        (f"ff+{EXAMPLES}/my_policies.py:nope", "has no function 'nope'"),
        ("ff+nope+srsf:1", "unknown priority policy 'nope'"),
        ("ff+ls", "'ls' is a placement policy, not a scheduler"),
        ("ff+ada-dual+srsf", "'ada-dual' is an admission, not a priority: write ff+srsf+ada-dual."),
        ("ada-srsf+ff@25", "'ada-srsf' is a scheduler, not a placement: write ff+ada-srsf@25."),
        ("ff+fifo", "'fifo' is a priority, not a scheduler: write ff+fifo+ada-dual."),
        ("ff", "'ff' is a placement, not a set of policies: write ff+srsf+ada-dual."),
        (
            f"{OWN}:packed+{OWN}:patient:2",
            f"is an admission, not a scheduler: write {OWN}:packed+srsf+{OWN}:patient:2.",
        ),
        (f"{OWN}:packed+{OWN}:patiend", "has no function 'patiend'. Did you mean 'patient'?"),
        (f"{OWN}:packed+{OWN}:packed", "'packed' is a placement policy, not an admission policy"),
    ],
)
def test_an_invalid_text_gets_a_clear_error(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        PolicySet.parse(text)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"bucket_mb": -1}, "bucket_mb: must be 0 or more MB"),
        ({"scheduler": "nope"}, "unknown scheduler 'nope'"),
        ({"scheduler": f"{OWN}:patient:2"}, "is one policy, not a scheduler."),
        ({"placement": "lwf"}, "placement policy 'lwf:KAPPA' needs a whole number"),
    ],
)
def test_an_invalid_override_gets_a_clear_error(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        PolicySet.parse("paper").override(**changes)


def test_the_command_takes_a_policy_with_overrides_and_lists_the_presets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert headway(capsys, "workload", "generate", "--jobs", "5", "-o", "w.csv").status == 0
    outcome = headway(capsys, "simulate", "w.csv", "--policy", "headway", "--priority", "fifo")
    assert outcome.status == 0
    assert "\nplacement least-delay, priority fifo,\n" in outcome.out
    assert (
        "\nadmission ada-dual/needed-first, buckets of 50 MB where jobs share the network\n"
        in outcome.out
    )
    listed = headway(capsys, "policies").out
    assert all(f"policy     {name}" in listed for name in PRESETS)
