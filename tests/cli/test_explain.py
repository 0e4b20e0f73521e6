"""`headway explain` as a person uses it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.commands import headway

WORKLOAD = (
    "job_id,arrival_s,gpus,iterations,model\n"
    "first,0,4,8,resnet50\n"
    "second [b],0.1,4,6,vgg16\n"
    "third,0.3,3,6,lstm-ptb\n"
)


@pytest.fixture(autouse=True)
def _run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text(WORKLOAD)
    options = "--cluster 2x2 --scheduler srsf:1 -q --timeline run.parquet --json run.json"
    assert headway(capsys, "simulate", "w.csv", *options.split()).status == 0


def test_it_shows_where_the_time_went(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, "explain", "run.parquet", "third")
    assert outcome.status == 0
    assert outcome.out.startswith(
        "job third: 3 GPUs on 2 servers, 6 iterations\narrived at 0.300 s"
    )
    for part in ("queued", "computing", "waiting for its GPU", "waiting for admission"):
        assert re.search(rf"^{part} +[\d.]+ +[\d.]+%", outcome.out, re.M)
    assert re.search(r"waiting for admission .*second \[b\] \([\d.]+\)", outcome.out)
    shares = [float(share) for share in re.findall(r" ([\d.]+)%", outcome.out)]
    assert shares[-1] == 100
    assert sum(shares[:-1]) == pytest.approx(100, abs=0.4)


def test_the_json_adds_up_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, "explain", "run.parquet", "second [b]", "--json", "-")
    data = json.loads(outcome.out)
    assert sum(data["parts_ns"].values()) == data["jct_ns"]
    assert data["finish_ns"] - data["arrival_ns"] == data["jct_ns"]
    assert "completion time" in outcome.err
    assert headway(capsys, "explain", "run.parquet", "first", "--json", "x.json").status == 0
    assert json.loads(Path("x.json").read_text())["job_id"] == "first"


def test_a_job_that_contends_with_itself_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    messages = [
        {"name": name, "kind": "all-reduce", "mb": 10, "channel": name, "after": ["task"]}
        for name in "ab"
    ]
    graph = {"ranks": 4, "tasks": [{"name": "task", "ms": 5}], "messages": messages}
    Path("g.json").write_text(json.dumps(graph))
    Path("w.csv").write_text("job_id,arrival_s,gpus,iterations,graph\nlone,0,4,3,g.json\n")
    options = ["--cluster", "2x2", "--policy", "ff+srsf:2"]
    outcome = headway(capsys, "explain", "w.csv", "lone", *options)
    assert outcome.status == 0
    assert re.search(r"sending under contention .*itself \([\d.]+\)", outcome.out)
    (contention, own) = re.findall(r"(?:contention|  own messages only) +([\d.]+) ", outcome.out)[
        :2
    ]
    assert contention == own


def test_the_entries_on_the_critical_path_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [{"name": f"part-{number:02}", "ms": number} for number in range(1, 14)]
    messages = [{"name": "all", "kind": "all-reduce", "mb": 10, "after": ["part-13"]}]
    graph = {"ranks": 4, "tasks": tasks, "messages": messages}
    Path("g.json").write_text(json.dumps(graph))
    Path("w.csv").write_text("job_id,arrival_s,gpus,iterations,graph\nlone,0,4,3,g.json\n")
    outcome = headway(capsys, "explain", "w.csv", "lone", "--cluster", "2x2", "--json", "lone.json")
    lines = outcome.out[outcome.out.index("on the critical path") :].splitlines()
    assert lines[1].split() == ["part-13", "3", "0.000", "0.039", "0.000", "12.9%"]
    assert [line.split()[0] for line in lines[2:13]] == [
        *("part-12", "part-11", "part-10", "all", "part-09", "part-08", "part-07", "part-06"),
        *("part-05", "part-04", "part-03"),
    ]
    assert lines[13].split() == ["…", "(2", "more)"]
    found = json.loads(Path("lone.json").read_text())
    assert len(found["entries"]) == 14
    assert found["entries"][4]["kind"] == "all-reduce"
    assert {one["kind"] for one in found["entries"]} == {"all-reduce", "task"}
    assert sum(one["running_ns"] for one in found["entries"]) == found["jct_ns"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run.parquet frist", "run.parquet: there is no job 'frist'. Did you mean 'first'?"),
        ("no.parquet first", "no.parquet: No such file or directory."),
        ("run.parquet", "give the id of a job, or --worst N."),
        ("w.csv first --worst 2", "give the id of a job, or --worst N."),
        ("run.parquet first --policy paper", "--policy applies to a workload; the timeline has"),
        ("run.parquet first --exclusive", "--exclusive applies to a workload; the timeline has"),
        ("nothing.csv first", "nothing.csv: No such file or directory."),
        ("run.json first", "run.json: is a result, without its tasks; explain the workload, or a"),
        ("no.json first", "no.json: No such file or directory."),
        ("run.parquet first --json run.parquet", "run.parquet: is an input too; give another"),
        ("run.parquet first --json no/x", "no/x: there is no folder no."),
    ],
)
def test_a_bad_request_is_refused(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, "explain", *arguments.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1].startswith(f"headway: error: {message}")


def test_a_part_of_a_run_is_not_enough(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--cluster 2x2 -q --timeline part.parquet --from 0.2 --to 0.4"
    headway(capsys, "simulate", "w.csv", *options.split())
    outcome = headway(capsys, "explain", "part.parquet", "first")
    assert outcome.status == 2
    assert "covers only 0.200 s to 0.400 s; explaining needs the timeline of the" in outcome.err


SETTINGS = "--cluster 2x2 --scheduler srsf:1"


def test_a_workload_is_simulated_and_explained_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = headway(capsys, "explain", "run.parquet", "third")
    before = {path.name for path in Path().iterdir()}
    outcome = headway(capsys, "explain", "w.csv", "third", *SETTINGS.split())
    assert (outcome.status, outcome.out) == (0, recorded.out)
    assert {path.name for path in Path().iterdir()} == before


def test_the_worst_jobs_are_explained_slowest_first(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "w.csv", "--worst", "2", *SETTINGS.split(), "--json", "-"]
    found = json.loads(headway(capsys, *words).out)
    assert [len(found), found[0]["jct_ns"] >= found[1]["jct_ns"]] == [2, True]
    every = json.loads(headway(capsys, "explain", "run.parquet", "--worst", "9", "--json", "-").out)
    assert [job["job_id"] for job in every[:2]] == [job["job_id"] for job in found]
    assert len(every) == 3


def test_a_run_that_is_too_large_for_memory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, "explain", "muri-1", "0")
    assert outcome.status == 2
    assert "tasks, too many to keep in memory; record it with headway simulate" in outcome.err
