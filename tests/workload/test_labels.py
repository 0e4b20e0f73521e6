"""Columns that Headway does not know are labels of jobs."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import polars
import pytest

import headway
from builders import make_job
from cli.commands import headway as run
from graphs.imports.chakra_messages import unpack
from headway.domain.errors import InputError
from headway.domain.workload import Workload
from headway.results.store import read_result, write_json, write_parquet
from headway.results.timeline.file import read_timeline
from headway.web import columns
from headway.web.run_data import RunData
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


GRAPH = '{"ranks": 2, "tasks": [{"name": "all", "ms": 5}]}'
WITH_GRAPH = "job_id,arrival_s,gpus,iterations,graph,trained_model,parallel"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_graphs_that_are_generated_keep_the_names_of_what_they_train(
    suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = ("--jobs", "4", "--mix", "4:1", "--models", "vgg16,resnet50", "--iterations", "2:3")
    options = ("--profiles", "h200", "--parallel", "ddp,fsdp:12", "-o", f"w{suffix}")
    assert run(capsys, "workload", "generate", *recipe, *options).status == 0
    names = [(job.model, job.parallel) for job in read_workload(f"w{suffix}")]
    assert {parallel for _, parallel in names} == {"ddp", "fsdp:12"}
    described = run(capsys, "workload", "describe", f"w{suffix}").out
    assert "(graph)" not in described
    assert all(f"{model} {parallel} " in described for model, parallel in names)
    assert run(capsys, "simulate", f"w{suffix}", "--timeline", "t.parquet").status == 0
    jobs = read_timeline("t.parquet").jobs
    assert list(zip(jobs["model"], jobs["parallel"], strict=True)) == names
    values, _ = columns.unpack(RunData(read_timeline("t.parquet"), "t").overview)
    assert values["model"] == [f"{model} {parallel}" for model, parallel in names]
    done = run(capsys, "explain", "t.parquet", "0", "--json", "-")
    found = json.loads(done.out)
    assert (found["model"], found["parallel"]) == names[0]
    assert f"trains {names[0][0]} with {names[0][1]}\n" in done.err


def test_large_models_keep_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--preset", "llm", "--jobs", "2", "-o", "w.csv")
    assert run(capsys, "workload", "generate", *options).status == 0
    assert {job.model for job in read_workload("w.csv")} == {"gpt2-1.5b"}
    assert {job.parallel for job in read_workload("w.csv")} == {"mb4-gb16"}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("a,0,2,1,g.json,gpt,mine", ""),
        ("a,0,2,1,g.json,vgg16,of my own", ""),
        ("a,0,2,1,g.json,,", ""),
        ("a,0,2,1,g.json,gpt,", "column 6 (trained_model): needs parallel in the same row, such"),
        ("a,0,2,1,g.json,,ddp", "column 7 (parallel): must be empty in a row with a graph, unless"),
        ("a,0,2,1,,gpt,", "column 6 (trained_model): is for a row with a graph; give a model"),
    ],
)
def test_a_graph_has_both_names_or_none(rows: str, problem: str) -> None:
    Path("g.json").write_text(GRAPH)
    Path("w.csv").write_text(f"{WITH_GRAPH}\n{rows}\n")
    if problem:
        with pytest.raises(InputError) as caught:
            read_workload("w.csv")
        assert f"w.csv, line 2, {problem}" in str(caught.value)
        return
    workload = read_workload("w.csv")
    assert [(job.model, job.parallel) for job in workload] == [tuple(rows.split(",")[5:])]
    write_workload(workload, "again.csv")
    assert read_workload("again.csv").jobs == workload.jobs


def test_an_import_says_what_belongs_beside_its_graph(capsys: pytest.CaptureFixture[str]) -> None:
    unpack("gpt_dp2pp2", Path())
    arguments = ("graph", "import", "chakra", "gpt_dp2pp2", "-o", "g.json")
    done = run(capsys, *arguments, "--gpu", "h100")
    assert "In a workload: gpus 4, measured_on h100-sxm5\n" in done.err
