"""GPUs that jobs have to themselves, on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.commands import headway
from headway.workload.files import read_workload
from headway.workload.traces.registry import FORMATS
from workload.traces.samples import sample

ROWS = "job_id,arrival_s,gpus,iterations,model\na,0,1,10,resnet50\nb,0,1,10,resnet50\n"
SHARED = "jobs share GPUs if their memory fits"
ALONE = "every job has its GPUs to itself"
CLUSTER = "[cluster]\nservers = 1\ngpus_per_server = 1\n"
GROUPS = "[[cluster.group]]\nservers = 1\ngpus_per_server = 1\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text(ROWS)
    header, *rows = ROWS.splitlines()
    Path("alone.csv").write_text("\n".join([header + ",exclusive", *(f"{row},1" for row in rows)]))
    Path("one.toml").write_text(CLUSTER + "exclusive = true\n")
    Path("groups.toml").write_text("[cluster]\nexclusive = true\n" + GROUPS)


WAYS = {
    "w.csv --cluster 1x1": SHARED,
    "w.csv --cluster 1x1 --exclusive": ALONE,
    "w.csv --cluster one.toml": ALONE,
    "w.csv --cluster groups.toml": ALONE,
    "alone.csv --cluster 1x1": ALONE,
}


@pytest.mark.parametrize("arguments", WAYS)
def test_simulate_and_compare_say_whether_jobs_share_gpus(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line, (workload, *options) = WAYS[arguments], arguments.split()
    done = headway(capsys, "simulate", *arguments.split(), "--json", "r.json", "-o", "r.html")
    assert (done.status, done.out.splitlines()[3]) == (0, line)
    assert line in Path("r.html").read_text()
    start_ns = [one["start_ns"] for one in json.loads(Path("r.json").read_text())["jobs"]]
    assert start_ns == ([0, 0] if line == SHARED else [0, 624_000_000])
    policies = ("--policies", "paper,ff+srsf:1")
    done = headway(capsys, "compare", *arguments.split(), *policies, "-o", "c.html")
    assert (done.status, done.out.splitlines()[2]) == (0, line)
    assert line in Path("c.html").read_text()
    done = headway(capsys, "explain", workload, "b", *options)
    assert re.search(r"^queued +0\.000 ", done.out, re.M) is None or line == SHARED


def test_exclusive_is_an_axis_of_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    # The short job waits for the long one, or takes turns with it.
    Path("w.csv").write_text(ROWS.replace("a,0,1,10", "a,0,1,1000").replace("b,0", "b,1"))
    Path("s.toml").write_text(
        'workloads = "w.csv"\nclusters = "1x1"\npolicies = "paper"\nexclusive = [false, true]\n'
    )
    done = headway(capsys, "sweep", "s.toml")
    assert done.status == 0
    assert "some jobs share GPUs if their memory fits, others do not" in done.out
    assert re.search(r"^no +31\.8 ", done.out, re.M)
    assert re.search(r"^yes +62\.2 ", done.out, re.M)
    Path("s.toml").write_text(Path("s.toml").read_text().replace("[false, true]", "true"))
    assert ALONE in headway(capsys, "sweep", "s.toml").out
    assert headway(capsys, "report", "s").status == 0
    assert f"In these runs {ALONE}." in Path("s/report.html").read_text()
    Path("s.toml").write_text(Path("s.toml").read_text().replace("= true", '= "yes"'))
    done = headway(capsys, "sweep", "s.toml")
    assert "s.toml, line 4, column 1 (exclusive): must be true, false or a list of both" in (
        done.err
    )


@pytest.mark.parametrize("form", FORMATS)
def test_jobs_of_a_trace_have_their_gpus_to_themselves_unless_told_otherwise(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {"openb", "pai"}  # These give some jobs a part of a GPU.
    for options, expected in (
        ((), {False, True} if form in parts else {True}),
        (("--shared",), {False}),
        (("--memory-gb", "16"), {False}),
    ):
        headway(capsys, "workload", "import", form, *sample(form), *options, "-o", "w.csv")
        assert {job.exclusive for job in read_workload("w.csv")} == expected
    described = headway(capsys, "workload", "describe", "w.csv").out
    assert f"On this cluster {SHARED}." in described


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_column_exclusive_survives_writing_and_reading(
    suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = headway(capsys, "workload", "import", "helios", *sample("helios"), "-o", f"w{suffix}")
    assert done.status == 0
    assert all(job.exclusive for job in read_workload(f"w{suffix}"))


@pytest.mark.parametrize(
    ("cell", "problem"),
    [("yes", "must be 1 or 0, not 'yes'."), ("2", "must be 1 or 0, not '2'.")],
)
def test_a_job_is_exclusive_or_not(
    cell: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.csv").write_text(Path("alone.csv").read_text().replace(",1\n", f",{cell}\n"))
    done = headway(capsys, "simulate", "bad.csv")
    assert (done.status, problem in done.err) == (2, True)
    assert "bad.csv, line 2, column 6 (exclusive): " in done.err
