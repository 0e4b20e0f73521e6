"""Workloads whose models are looked up in sets of profiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.configuration import profiles_from
from headway.domain.cluster import Cluster, ServerGroup
from headway.domain.compute_times import compute_times, estimated_pairs
from headway.domain.errors import InputError
from headway.domain.gpus import V100, gpu_type
from headway.domain.job import Job
from headway.domain.workload import Workload
from headway.workload.files import read_workload, write_workload
from headway.workload.generate import generate_workload, preset_recipe

HEADER = (
    "job_id,arrival_s,gpus,iterations,model,batch_size,"
    "forward_ms,backward_ms,gradient_mb,memory_mb,measured_on\n"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entries = [
        ("vgg16", "h100", 32, 8, 16),
        ("vgg16", "h100", 64, 12, 24),
        ("net", "h100", 4, 5, 6),
        ("net", "a100", 4, 7, 9),
    ]
    Path("m.toml").write_text(
        "".join(
            f'[[model]]\nname = "{name}"\ngpu = "{gpu}"\nbatch_size = {batch}\n'
            f"forward_ms = {forward}\nbackward_ms = {backward}\n"
            "gradient_mb = 100\nmemory_mb = 1000\n"
            for name, gpu, batch, forward, backward in entries
        )
    )


def read(row: str, *profiles: str) -> Workload:
    Path("w.csv").write_text(f"{HEADER}{row}\n")
    return read_workload("w.csv", profiles)


def told(job: Job) -> tuple[int, int, int | None, bool, str]:
    """Return forward and backward in ms, batch size, whether estimated, and the type."""
    times = job.forward_ns // 10**6, job.backward_ns // 10**6
    return *times, job.batch_size, job.estimated, job.measured_on


def test_without_a_batch_size_the_models_first_profile_applies() -> None:
    assert told(read("a,0,1,1,vgg16,,,,,,", "m.toml")[0]) == (8, 16, 32, False, "h100-sxm5")
    assert told(read("a,0,1,1,vgg16,,,,,,")[0]) == (35, 53, None, False, "v100-sxm2")


def test_a_batch_size_picks_its_profile_or_scales_the_nearest() -> None:
    assert told(read("a,0,1,1,vgg16,64,,,,,", "m.toml")[0]) == (12, 24, 64, False, "h100-sxm5")
    assert told(read("a,0,1,1,vgg16,16,,,,,", "m.toml")[0]) == (4, 8, 16, True, "h100-sxm5")
    assert told(read("a,0,1,1,vgg16,48,,,,,", "m.toml")[0]) == (12, 24, 48, True, "h100-sxm5")


def test_the_first_set_with_the_model_applies() -> None:
    rows = "a,0,1,1,vgg16,,,,,,\nb,0,1,1,net,,,,,,"
    vgg, net = read(rows, "v100", "m.toml")
    assert told(vgg) == (35, 53, None, False, "v100-sxm2")
    assert told(net) == (5, 6, 4, False, "h100-sxm5")
    vgg, _ = read(rows, "m.toml", "v100")
    assert told(vgg)[0] == 8


def test_a_model_in_none_of_the_sets_is_refused() -> None:
    with pytest.raises(InputError, match=r"line 2, column 5 \(model\): unknown model 'resnet50'"):
        read("a,0,1,1,resnet50,,,,,,", "m.toml")


def test_times_in_a_row_are_a_v100s_by_default() -> None:
    assert told(read("a,0,1,1,vgg16,,1,2,,,", "m.toml")[0]) == (1, 2, None, False, "v100-sxm2")
    job = read("a,0,1,1,vgg16,,1,2,,,h200", "m.toml")[0]
    assert told(job) == (1, 2, None, False, "h200-sxm5")
    assert told(read("a,0,1,1,vgg16,,1,,,,", "m.toml")[0]) == (1, 16, 32, False, "h100-sxm5")


def test_a_row_cannot_change_the_type_that_a_profile_was_measured_on() -> None:
    with pytest.raises(InputError, match=r"column 11 \(measured_on\): the times of 'vgg16' were"):
        read("a,0,1,1,vgg16,,,,,,v100", "m.toml")


def test_a_uniform_cluster_takes_times_unchanged() -> None:
    workload = read("a,0,1,1,vgg16,16,,,,,", "m.toml")
    assert compute_times(workload, Cluster()).times_ns.tolist() == [[[4_000_000, 8_000_000]]]
    assert estimated_pairs(workload, Cluster()) == [("vgg16", "h100-sxm5")]


def test_on_groups_a_profile_from_the_sets_wins_over_an_estimate() -> None:
    groups = [ServerGroup(1, 1, gpu_type(name)) for name in ("h100", "a100", "v100")]
    workload = read("a,0,1,1,net,,,,,,", "m.toml")
    found = compute_times(workload, Cluster.of(groups))
    assert found.times_ns[0].tolist() == [
        [5_000_000, 6_000_000],
        [7_000_000, 9_000_000],
        [round(5e6 * 67 / 15.7), round(6e6 * 67 / 15.7)],
    ]
    assert found.estimated.tolist() == [[False, False, True]]
    assert estimated_pairs(workload, Cluster.of(groups)) == [("net", "v100-sxm2")]


def test_a_v100_set_beside_another_gives_the_times_on_a_v100() -> None:
    workload = read("a,0,1,1,vgg16,32,,,,,", "m.toml", "v100")
    found = compute_times(workload, Cluster.of([ServerGroup(1, 1, V100)]))
    assert found.times_ns[0, 0].tolist() == [2 * 35_800_000, 2 * 53_700_000]
    assert found.estimated.all()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_written_workload_needs_no_set_to_be_read(
    suffix: str,
) -> None:
    rows = "a,0,1,1,vgg16,,,,,,\nb,0,1,1,net,,,,,,\nc,0,1,1,net,,1,2,,,v100"
    workload = read(rows, "m.toml")
    write_workload(workload, f"again.{suffix}")
    assert read_workload(f"again.{suffix}").jobs == workload.jobs
    assert read_workload(f"again.{suffix}", ["m.toml"]).jobs == workload.jobs


def test_a_recipe_draws_the_same_jobs_from_any_set_with_other_costs() -> None:
    paper = preset_recipe("paper")
    recipe = replace(paper, models=["net", "vgg16"], profiles=profiles_from(["m.toml"]))
    drawn = generate_workload(recipe, seed=3)
    usual = generate_workload(replace(paper, models=["vgg16", "resnet50"]), seed=3)
    assert [(job.arrival_ns, job.gpus) for job in drawn] == [
        (job.arrival_ns, job.gpus) for job in usual
    ]
    assert {told(job) for job in drawn} == {
        (8, 16, 32, False, "h100-sxm5"),
        (5, 6, 4, False, "h100-sxm5"),
    }
    with pytest.raises(InputError, match="models: unknown model 'resnet50'"):
        replace(recipe, models=["resnet50"])
