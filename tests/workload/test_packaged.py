"""Workloads that ship with Headway."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import headway
from headway.domain.errors import InputError
from headway.workload.packaged import packaged_names
from headway.workload.traces.importing import import_trace
from workload.traces.samples import sample

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_muri_1_is_what_the_importer_makes_of_the_trace() -> None:
    packaged = headway.read_workload("muri-1")
    assert packaged.jobs == import_trace("muri", sample("muri")).workload.jobs
    assert packaged.source == "muri-1"


def test_muri_1_fits_the_default_cluster() -> None:
    workload = headway.read_workload("muri-1")
    cluster = headway.Cluster(16, 4)
    assert max(job.gpus for job in workload) <= cluster.gpus
    assert max(job.memory_bytes for job in workload) <= cluster.gpu_memory_bytes


@pytest.mark.parametrize("name", packaged_names())
def test_every_packaged_workload_is_read_by_name_and_attributed(name: str) -> None:
    assert len(headway.read_workload(name)) > 0
    assert len(headway.read_workload(Path(name))) > 0
    notice = ROOT / "src" / "headway" / "workload" / "data" / "NOTICE"
    assert f"{name}.csv" in notice.read_text()


def test_a_file_with_the_name_of_a_packaged_workload_is_ambiguous() -> None:
    text = "job_id,arrival_s,gpus,iterations,model\na,0,1,1,vgg16\n"
    Path("muri-1").write_text(text)
    with pytest.raises(InputError) as caught:
        headway.read_workload("muri-1")
    assert str(caught.value) == (
        "muri-1: is a packaged workload and a file in this folder; write ./muri-1 for the file, "
        "or move it to read the packaged one."
    )
    assert len(headway.read_workload("./muri-1")) == 1
    Path("muri-1.csv").write_text(text)
    assert len(headway.read_workload("muri-1.csv")) == 1


def test_an_unknown_name_lists_the_packaged_workloads() -> None:
    with pytest.raises(InputError) as caught:
        headway.read_workload("muri-9")
    assert str(caught.value) == (
        "muri-9: no such file, and no packaged workload of that name (available: muri-1)."
    )


def test_a_file_without_a_suffix_is_still_a_file() -> None:
    Path("jobs").write_text("job_id,arrival_s,gpus,iterations,model\na,0,1,1,vgg16\n")
    assert len(headway.read_workload("jobs")) == 1


def test_the_wheel_holds_the_packaged_workloads_with_their_notice(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [*(f"{name}.csv" for name in packaged_names()), "NOTICE"]
    assert {f"headway/workload/data/{name}" for name in files} <= names
