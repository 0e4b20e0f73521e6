"""Policies under one name, and how their parts are overridden."""

from __future__ import annotations

import re

import pytest

from builders import make_job, make_workload
from cli.commands import headway
from headway.domain.errors import InputError
from headway.engine.run import simulate
from headway.policies.presets import POLICIES, policy_of

WORKLOAD = make_workload(make_job(gpus=4, iterations=3), make_job(gpus=2))


def decided(**arguments: object) -> tuple[str, str, str, int | None]:
    settings = simulate(WORKLOAD, "4x2", **arguments).settings  # type: ignore[arg-type]
    return settings.placement, settings.priority, settings.admission, settings.bucket_bytes


def test_the_papers_combination_is_the_default() -> None:
    assert decided() == decided(policy="paper") == ("lwf:1", "srsf", "ada-dual", None)


def test_headway_names_everything_at_once() -> None:
    assert decided(policy="headway") == ("least-delay", "srtf", "ada-dual", 50 * 2**20)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"policy": "headway", "bucket_mb": 0}, ("least-delay", "srtf", "ada-dual", None)),
        ({"policy": "headway@0"}, ("least-delay", "srtf", "ada-dual", None)),
        ({"policy": "headway@25"}, ("least-delay", "srtf", "ada-dual", 25 * 2**20)),
        ({"policy": "headway", "placement": "ff"}, ("ff", "srtf", "ada-dual", 50 * 2**20)),
        (
            {"policy": "headway", "scheduler": "srsf:2"},
            ("least-delay", "srsf", "srsf:2", 50 * 2**20),
        ),
        (
            {"policy": "headway", "admission": "srsf:1"},
            ("least-delay", "srtf", "srsf:1", 50 * 2**20),
        ),
        ({"policy": "ff+srsf:1"}, ("ff", "srsf", "srsf:1", None)),
        ({"policy": "ls+fifo+srsf:3@1"}, ("ls", "fifo", "srsf:3", 2**20)),
        ({"scheduler": "srsf:1", "priority": "las"}, ("lwf:1", "las", "srsf:1", None)),
    ],
)
def test_parts_override_the_preset(
    arguments: dict[str, object], expected: tuple[str, str, str, int | None]
) -> None:
    assert decided(**arguments) == expected


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
    ],
)
def test_a_policy_that_is_none_gets_a_clear_error(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        policy_of(text)


def test_the_command_takes_a_policy_and_lists_the_presets(
    capsys: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert headway(capsys, "workload", "generate", "--jobs", "5", "-o", "w.csv").status == 0
    outcome = headway(capsys, "simulate", "w.csv", "--policy", "headway")
    assert outcome.status == 0
    told = "placement least-delay, priority srtf, admission ada-dual, buckets of 50 MB\n"
    assert told in outcome.out
    listed = headway(capsys, "policies").out
    assert all(f"policy     {name}" in listed for name in POLICIES)
