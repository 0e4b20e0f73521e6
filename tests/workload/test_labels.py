"""Columns that Headway does not know are labels of jobs."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import polars
import pytest

import headway
from builders import make_job
from cli.commands import headway as run
from headway.domain.errors import InputError
from headway.domain.workload import Workload
from headway.results.store import read_result, write_json, write_parquet
from headway.workload.files import read_workload, write_workload

HEADER = "job_id,arrival_s,gpus,iterations,model"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(name: str, *cells: str) -> str:
    """Write a workload with a job for each cell of one more column."""
    rows = [f"{index},0,1,10,resnet50,{cell}" for index, cell in enumerate(cells)]
    Path("w.csv").write_text("\n".join([f"{HEADER},{name}", *rows]) + "\n")
    return "w.csv"


@pytest.mark.parametrize(
    ("cells", "values", "kind"),
    [
        (["bob", "eve"], ["bob", "eve"], polars.String),
        (["30", " -4 "], [30, -4], polars.Int64),
        (["30", "1.5"], [30, 1.5], polars.Float64),
        (["1e3", ""], [1000.0, None], polars.Float64),
        (["30", "none"], ["30", "none"], polars.String),
        (["inf", "30"], ["inf", "30"], polars.String),
        (["007", "12"], ["007", "12"], polars.String),
        (["9007199254740993", "1"], ["9007199254740993", "1"], polars.String),
        (["", ""], [None, None], None),
        (["=x,y", "é"], None, None),
    ],
)
def test_a_column_is_of_numbers_or_of_texts(
    cells: list[str], values: list[Any] | None, kind: Any
) -> None:
    if values is None:
        values, cells, kind = cells, [f'"{cell}"' for cell in cells], polars.String
    workload = read_workload(written("tag", *cells))
    assert [job.labels.get("tag") for job in workload] == values
    result = headway.simulate(workload)
    if kind is None:
        assert "tag" not in result.jobs.columns
        return
    assert (result.jobs["tag"].to_list(), result.jobs.schema["tag"]) == (values, kind)
    for write, name in ((write_json, "r.json"), (write_parquet, "r.parquet")):
        write(result, name)
        assert read_result(name).jobs.equals(result.jobs)
    for name in ("again.csv", "again.parquet"):
        write_workload(workload, name)
        assert read_workload(name).jobs == workload.jobs


def test_labels_of_parquet_are_dates_and_flags_too() -> None:
    columns: dict[str, Any] = {"job_id": ["a", "b"], "arrival_s": [0, 0], "gpus": [1, 1]}
    columns |= {"iterations": [1, 1], "model": ["vgg16", "vgg16"]}
    columns |= {"day": [date(2026, 1, 2), None], "urgent": [True, False]}
    polars.DataFrame(columns | {"share": [float("nan"), 0.5]}).write_parquet("w.parquet")
    one, other = read_workload("w.parquet")
    assert one.labels == {"day": "2026-01-02", "urgent": 1}
    assert other.labels == {"urgent": 0, "share": 0.5}
    polars.DataFrame(columns | {"tags": [["x"], ["y"]]}).write_parquet("w.parquet")
    with pytest.raises(InputError, match=r"w\.parquet.*tags.*holds 'List\(String\)'"):
        read_workload("w.parquet")


def test_a_timeline_keeps_labels(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("user", "bob", "eve")
    assert run(capsys, "simulate", file, "--timeline", "t.parquet", "-q").status == 0
    from headway.results.timeline.file import read_timeline

    assert read_timeline("t.parquet").jobs["user"].to_list() == ["bob", "eve"]


@pytest.mark.parametrize(
    ("header", "error", "warning"),
    [
        ("job_id,arrival_s,gpu,iterations,model", "column 3: unknown column 'gpu'. Did you m", ""),
        ("job_id,arrival_s,num_gpus,iterations,model", "column 3: unknown column 'num_gpus'.", ""),
        ("job_id,arrival_s,gpus,iterations,modle", "column 5: unknown column 'modle'. Did yo", ""),
        (f"{HEADER},jct_s", "column 6: 'jct_s' is a column of results; call this one", ""),
        (f"{HEADER},", "column 6: the column has no name.", ""),
        (f"{HEADER},user,user", "column 7: duplicate column 'user'.", ""),
        (f"{HEADER},gpu", "", "'gpu' is kept as a label. Did you mean 'gpus'?"),
        (f"{HEADER},forward_m", "", "'forward_m' is kept as a label. Did you mean 'forward_ms'?"),
        (f"{HEADER},trained_modle", "", "'trained_modle' is kept as a label. Did you mean 'trai"),
        (f"{HEADER},user,deadline_s,limit_s,start_s,save_s,save_every", "", ""),
        (f"{HEADER},min_gpus,max_gpus,scaling,weight,queue,duration", "", ""),
    ],
)
def test_a_name_that_looks_like_a_slip_is_an_error_where_a_column_is_missing_else_a_warning(
    header: str, error: str, warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = ["a", "0", "1", "10", "vgg16", *["7"] * 6][: header.count(",") + 1]
    Path("w.csv").write_text(f"{header}\n{','.join(cells)}\n")
    done = run(capsys, "simulate", "w.csv")
    assert done.status == (2 if error else 0)
    said = [line for line in done.err.splitlines() if not line.startswith("Compiling")]
    assert len(said) == bool(error or warning)
    for line in said:
        assert all(part in line for part in (error, warning, "w.csv"))


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"": 1}, "labels: names must be non-empty strings, not ''."),
        ({"x": True}, "label 'x': must be a text or a finite number, not True."),
        ({"x": float("inf")}, "label 'x': must be a text or a finite number, not inf."),
        ({"x": 2**53 + 1}, "label 'x': must be at most 9,007,199,254,740,992, not "),
    ],
)
def test_a_label_is_a_text_or_a_number(labels: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        make_job(labels=labels)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("name", ["jct_s", "parallel", "gpu_count"])
def test_a_label_has_no_name_of_a_column(name: str) -> None:
    workload = Workload([make_job(labels={name: 1})])
    with pytest.raises(InputError, match=f"labels: '{name}' is a column of results already"):
        _ = headway.simulate(workload).jobs
    with pytest.raises(InputError, match="labels: 'model' is a column of"):
        write_workload(Workload([make_job(labels={"model": "x"})]), "w.csv")


def test_jobs_with_labels_can_be_kept_in_sets() -> None:
    assert len({make_job(labels={"user": "bob"}), make_job(labels={"user": "bob"})}) == 1
