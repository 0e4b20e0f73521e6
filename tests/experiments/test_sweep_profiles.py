"""Sweeps that take models from given profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.domain.errors import InputError
from headway.experiments.sweep.specification import Sweep, read_sweep

MODEL = """
[[model]]
name = "mine"
gpu = "h100"
batch_size = 4
forward_ms = 10
backward_ms = 20
gradient_mb = 1
memory_mb = 2
"""
SWEEP = """profiles = ["m.toml", "v100"]
workloads = ["w.csv", { recipe = "paper", jobs = 3, models = ["mine", "vgg16"] }]
policies = ["ff+srsf:1"]
seeds = 2
"""


def written(home: Path, sweep: str, model: str = MODEL) -> Path:
    (home / "m.toml").write_text(model)
    (home / "w.csv").write_text("job_id,arrival_s,gpus,iterations,model\na,0,1,5,mine\n")
    (home / "s.toml").write_text(sweep)
    return home / "s.toml"


def digests(sweep: Sweep) -> list[str]:
    return [workload.digest for workload in sweep.workloads]


def test_workloads_of_a_sweep_take_models_from_its_profiles(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path, SWEEP))
    jobs, drawn = (workload.value.draw(0) for workload in sweep.workloads)
    assert (jobs[0].forward_ns, jobs[0].measured_on) == (10_000_000, "h100-sxm5")
    assert {job.model for job in drawn} <= {"mine", "vgg16"}


def test_other_profiles_change_the_keys(tmp_path: Path) -> None:
    one = digests(read_sweep(written(tmp_path, SWEEP)))
    other = digests(read_sweep(written(tmp_path, SWEEP, MODEL.replace("= 20", "= 21"))))
    assert all(before != after for before, after in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('"v10"', r"s.toml, line 1, column \d+ \(profiles\): unknown set 'v10'"),
        ("[3]", r"s.toml, line 1, column \d+ \(profiles\): must be a string, not 3"),
        ('"absent.toml"', "absent.toml: No such file"),
    ],
)
def test_an_error_about_a_missing_profile_set_names_its_position(
    tmp_path: Path, given: str, message: str
) -> None:
    text = SWEEP.replace('["m.toml", "v100"]', given)
    with pytest.raises(InputError, match=message):
        read_sweep(written(tmp_path, text))
