"""Workloads with the column `parallel`, and models whose profiles have layers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headway.configuration import profiles_from
from headway.domain.cluster import Cluster
from headway.domain.compute_times import estimated_pairs
from headway.domain.errors import InputError
from headway.domain.job import Job
from headway.domain.layers import fitted
from headway.domain.models import MODELS
from headway.domain.workload import Workload
from headway.graphs import ddp
from headway.workload.files import read_workload, write_workload
from headway.workload.generate import generate_workload

HEADER = (
    "job_id,arrival_s,gpus,iterations,model,batch_size,"
    "forward_ms,backward_ms,gradient_mb,memory_mb,parallel,graph\n"
)
PROFILE = """[[model]]
name = "{name}"
gpu = "h100"
batch_size = 8
forward_ms = 10
backward_ms = 20
gradient_mb = 30
memory_mb = 100
"""
LAYERS = """optimizer_ms = 0.5
layers = [
    ["front", 1, 3, 4, 2],
    ["middle", 4, 8, 16, 1.5],
    ["back", 5, 9, 10, 0],
]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known, unknown = PROFILE.format(name="net"), PROFILE.format(name="flat")
    Path("m.toml").write_text(known + LAYERS + unknown)


def read(*rows: str) -> Workload:
    Path("w.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return read_workload("w.csv", ["m.toml"])


def tasks(job: Job) -> dict[str, float]:
    assert job.graph is not None
    return {task.name: task.duration_ns / 1e6 for task in job.graph.tasks}


def test_a_row_becomes_a_job_with_the_graph_of_its_models_layers() -> None:
    (job,) = read("a,0,4,10,net,,,,,,ddp:15,")
    layers = profiles_from(["m.toml"])[0].by_model["net"][0].layers
    assert [layer.name for layer in layers] == ["front", "middle", "back"]
    assert job.graph == ddp(layers, 4, bucket_bytes=15 * 2**20, optimizer_ns=500_000)
    assert (job.model, job.parallel, job.measured_on) == ("net", "ddp:15", "h100-sxm5")
    assert not job.estimated
    assert job.memory_bytes == 100 * 2**20
    assert tasks(job) == {
        "forward": 10,
        "backward-1": 9,
        "backward-2": 8,
        "backward-3": 3,
        "optimizer": 0.5,
    }


def test_equal_rows_share_one_graph() -> None:
    a, b, c, d = read(
        "a,0,4,10,net,,,,,,ddp,",
        "b,5,4,99,net,,,,,7,ddp,",
        "c,0,8,10,net,,,,,,ddp,",
        "d,0,4,10,net,,,,,,ddp:5,",
    )
    assert a.graph is b.graph
    assert len({id(job.graph) for job in (a, c, d)}) == 3


def test_times_and_sizes_in_the_row_scale_the_layers() -> None:
    (job,) = read("a,0,2,1,net,,30,10,60,,fsdp,")
    assert not job.estimated
    assert job.graph is not None
    found = tasks(job)
    assert [found[f"forward-{unit}"] for unit in (1, 2, 3)] == pytest.approx([3, 12, 15], abs=1e-5)
    assert sum(found[f"backward-{unit}"] for unit in (1, 2, 3)) == pytest.approx(10, abs=1e-9)
    scattered = [one for one in job.graph.messages if one.kind == "reduce-scatter"]
    assert [one.buffer_bytes / 2**20 for one in scattered] == [20, 32, 8]


def test_another_batch_size_scales_times_and_activations_as_an_estimate() -> None:
    (job,) = read("a,0,3,1,net,16,,,,,pp3x1f1b:1,")
    assert job.estimated
    assert job.graph is not None
    found = tasks(job)
    assert [found[f"forward-{stage}.0"] for stage in range(3)] == pytest.approx([2, 8, 10])
    sizes = [one.buffer_bytes / 2**20 for one in job.graph.messages if "forward" in one.name]
    assert sizes == [4, 3]
    assert found["optimizer-0"] == pytest.approx(0.5 / 3, abs=1e-6)


def test_a_model_without_layers_is_cut_into_equal_ones_as_an_estimate() -> None:
    workload = read("a,0,2,1,flat,,,,,,ddp:5,", "b,0,2,1,own,,3,6,64,10,fsdp:40,")
    assert estimated_pairs(workload, Cluster(2, 2)) == [("flat", "h100-sxm5"), ("own", "v100-sxm2")]
    first, second = workload
    assert first.graph is not None
    assert second.graph is not None
    # 30 MB in 32 layers: a first bucket of two layers, five of six layers.
    assert len(first.graph.messages) == 6
    assert first.graph.unit_ns() == 30_000_000
    assert len(second.graph.tasks) == 80
    assert second.graph.unit_ns() == 9_000_000


def test_jobs_are_written_with_their_model_if_the_papers_profiles_give_the_same_graph() -> None:
    Path("w.csv").write_text(
        "job_id,arrival_s,gpus,iterations,model,batch_size,parallel\n"
        "a,0,8,10,vgg16,,ddp\nb,0,8,10,vgg16,32,fsdp:4\nc,1,1,10,resnet50,,\n"
    )
    workload = read_workload("w.csv")
    write_workload(workload, "again.csv")
    assert Path("again.csv").read_text() == Path("w.csv").read_text()
    write_workload(workload, "again.parquet")
    assert read_workload("again.parquet").jobs == workload.jobs


def test_jobs_of_other_profiles_are_written_with_graph_files() -> None:
    workload = read("a,0,4,10,net,,,,,,ddp:15,", "b,0,2,10,vgg16,,1,2,3,4,ddp,")
    write_workload(workload, "again.csv")
    header, *rows = Path("again.csv").read_text().splitlines()
    assert header == (
        "job_id,arrival_s,gpus,iterations,memory_mb,measured_on,parallel,graph,trained_model"
    )
    assert rows[0].startswith("a,0,4,10,100,h100-sxm5,ddp:15,again.graphs/")
    assert rows[0].endswith(".json,net")
    again = read_workload("again.csv")
    for before, after in zip(workload, again, strict=True):
        assert before.graph == after.graph
        assert (before.model, before.parallel) == (after.model, after.parallel)
        assert (before.memory_bytes, before.measured_on) == (after.memory_bytes, after.measured_on)


def test_a_job_that_does_not_suit_the_papers_profile_is_written_with_a_graph_file() -> None:
    """Its own profile has more layers than the paper's, and needs as much memory."""
    layers = ", ".join(["['block', 0.5, 1, 1, 1]"] * 20)
    own = PROFILE.format(name="vgg16").replace('"h100"', '"v100"').replace("= 8\n", "= 16\n")
    own = own.replace("gradient_mb = 30", "gradient_mb = 20")
    memory_mb = MODELS["vgg16"].memory_bytes // 2**20
    own = own.replace("memory_mb = 100", f"memory_mb = {memory_mb}\nlayers = [{layers}]")
    Path("m.toml").write_text(own)
    workload = read("a,0,20,10,vgg16,,,,,,pp20x1f1b:2,")
    write_workload(workload, "again.csv")
    assert read_workload("again.csv")[0].graph == workload[0].graph


def test_a_recipe_draws_the_same_jobs_with_graphs() -> None:
    plain = generate_workload("paper", 3, jobs=20)
    made = generate_workload("paper", 3, jobs=20, parallel="ddp")
    for before, after in zip(plain, made, strict=True):
        assert (before.model, before.gpus, before.arrival_ns) == (
            after.model,
            after.gpus,
            after.arrival_ns,
        )
        assert after.parallel == "ddp"
        assert after.compute_ns == before.compute_ns
    graphs = {(job.model, job.gpus): job.graph for job in made}
    assert all(job.graph is graphs[job.model, job.gpus] for job in made)


def test_a_recipe_draws_ways_to_train_by_their_shares(caplog: pytest.LogCaptureFixture) -> None:
    plain = generate_workload("paper", 3, jobs=40)
    made = generate_workload("paper", 3, jobs=40, parallel="ddp@2,fsdp:12, pp4x1f1b:8@1")
    assert [job.gpus for job in made] == [job.gpus for job in plain]
    counts = Counter(job.parallel for job in made)
    assert counts["fsdp:12"] == 10
    assert 0 < counts["pp4x1f1b:8"] < 10
    assert counts["ddp"] == 30 - counts["pp4x1f1b:8"]
    assert all(
        job.gpus % 4 == 0 and job.model != "lstm-ptb"
        for job in made
        if job.parallel == "pp4x1f1b:8"
    )
    (note,) = caplog.messages
    assert note.startswith(
        f"{10 - counts['pp4x1f1b:8']} of 10 jobs drawn for pp4x1f1b:8 train with"
    )


@pytest.mark.parametrize(
    ("parallel", "problem"),
    [
        ("", "must be ddp, fsdp, moe:8 or a pipeline"),
        ("ddp,", "must be ddp, fsdp, moe:8 or a pipeline"),
        ("ddp,ddp", "'ddp' is duplicated."),
        ("ddp@0", "the share after @ must be a positive number, not '0'."),
        ("ddp@", "the share after @ must be a positive number, not ''."),
        ("ddp@nan", "the share after @ must be a positive number, not 'nan'."),
    ],
)
def test_a_mix_that_makes_no_sense_is_refused(parallel: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        generate_workload("paper", 3, jobs=4, parallel=parallel)
    assert (caught.value.field, caught.value.problem[: len(problem)]) == ("parallel", problem)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("a,0,4,10,net,,,,,,dpp,", "line 2, column 11 (parallel): must be ddp, fsdp, moe:8 or"),
        ("a,0,6,10,net,,,,,,pp4x1f1b:8,", "column 3 (gpus): must be a multiple of the 4 GPUs of a"),
        (
            "a,0,4,10,net,,,,,,pp4x1f1b:8,",
            "column 11 (parallel): 'pp4x1f1b:8' of 'net': the model has 3 layers, too few for 4 s",
        ),
        (
            "a,0,2,10,flat,,,,,,pp2x1f1b:8,",
            "column 11 (parallel): 'pp2x1f1b:8' of 'flat': its layers are not known, so neither",
        ),
        ("a,0,2,10,,,1,2,3,4,ddp,", "column 11 (parallel): needs a model in the same row."),
        ("a,0,2,10,,,,,,,ddp,g.json", "column 11 (parallel): must be empty in a row with a graph"),
        (
            "a,0,3,10,net,,,,,,pp3x1f1b:50000,",
            "(parallel): 'pp3x1f1b:50000' of 'net': microbatches: must be at most 43,690 with 3 s",
        ),
        (
            "a,0,10000000,10,net,,,,,,ddp,",
            "(parallel): 'ddp' of 'net': the graph would have 40,000,000 tasks; at most 4,194,304",
        ),
        (
            "a,0,2,10,net,,0.000002,1,,,ddp,",
            "(parallel): 'ddp' of 'net': forward_ns: must be at least 3 ns, 1 for each layer",
        ),
    ],
)
def test_errors_name_line_and_column(row: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read(row)
    assert str(caught.value).startswith("w.csv, line 2")
    assert problem in str(caught.value)


def test_layers_of_the_profile_are_fitted_to_its_totals() -> None:
    text = PROFILE.format(name="net") + LAYERS.replace("5, 9, 10", "5.05, 9.1, 9.9")
    Path("m.toml").write_text(text)
    (profile,) = profiles_from(["m.toml"])[0].profiles
    assert sum(layer.forward_ns for layer in profile.layers) == 10_000_000
    assert sum(layer.backward_ns for layer in profile.layers) == 20_000_000
    assert sum(layer.parameter_bytes for layer in profile.layers) == 30 * 2**20
    assert profile.layers == fitted(profile.layers, 10_000_000, 20_000_000, 30 * 2**20)
