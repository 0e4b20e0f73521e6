"""The column `batch_size`: the mini-batch of one GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.domain.job import Job
from headway.domain.models import MAX_BATCH, MODELS
from headway.workload.files import read_workload, write_workload

HEADER = (
    "job_id,arrival_s,gpus,iterations,model,batch_size,"
    "forward_ms,backward_ms,gradient_mb,memory_mb\n"
)


def read(tmp_path: Path, row: str) -> Job:
    path = tmp_path / "w.csv"
    path.write_text(f"{HEADER}{row}\n")
    return read_workload(path)[0]


def test_times_of_a_model_are_scaled_to_the_batch_size_and_marked(tmp_path: Path) -> None:
    job = read(tmp_path, "a,0,1,1,vgg16,40,,,,")
    assert (job.forward_ns, job.backward_ns) == (89_500_000, 134_250_000)
    assert (job.batch_size, job.estimated) == (40, True)
    assert job.memory_bytes == 4527 * 2**20


@pytest.mark.parametrize("model", MODELS)
def test_the_largest_batch_size_is_only_a_long_iteration(model: str, tmp_path: Path) -> None:
    job = read(tmp_path, f"a,0,1,1,{model},{MAX_BATCH},,,,")
    assert job.forward_ns == MODELS[model].forward_ns * MAX_BATCH // MODELS[model].batch_size


def test_the_batch_size_of_the_paper_changes_nothing(tmp_path: Path) -> None:
    job = read(tmp_path, "a,0,1,1,lstm-ptb,64,,,,")
    assert (job.forward_ns, job.backward_ns, job.estimated) == (31_500_000, 47_300_000, False)


def test_times_in_the_row_are_those_at_its_batch_size(tmp_path: Path) -> None:
    job = read(tmp_path, "a,0,1,1,vgg16,40,80,100,,")
    assert (job.forward_ns, job.backward_ns, job.estimated) == (80_000_000, 100_000_000, False)
    half = read(tmp_path, "a,0,1,1,vgg16,32,80,,,")
    assert (half.forward_ns, half.backward_ns, half.estimated) == (80_000_000, 107_400_000, True)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_batch_sizes_survive_writing_and_reading(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "w.csv"
    rows = "a,0,1,1,vgg16,40,,,,\nb,0,1,1,vgg16,,,,,\nc,0,1,1,vgg16,32,80,,,\n"
    path.write_text(f"{HEADER}{rows}d,0,1,1,bert,8,1,2,3,4\ne,0,1,1,vgg16,40,7,8,,\n")
    workload = read_workload(path)
    again = tmp_path / f"again.{suffix}"
    write_workload(workload, again)
    assert read_workload(again).jobs == workload.jobs


def test_models_alone_need_no_more_columns_than_their_batch_size(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text(f"{HEADER}a,0,1,1,vgg16,40,,,,\nb,0,1,1,vgg16,,,,,\n")
    write_workload(read_workload(path), tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == (
        "job_id,arrival_s,gpus,iterations,model,batch_size\na,0,1,1,vgg16,40\nb,0,1,1,vgg16,\n"
    )
