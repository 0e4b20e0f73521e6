"""`headway workload import`, and every way in which it can fail."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from cli.commands import headway
from headway.cli.console import ReadingBar
from headway.workload.files import read_workload
from headway.workload.traces.importing import import_trace
from headway.workload.traces.registry import FORMATS
from workload.traces.samples import sample

POLLUX = "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66,1\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("form", FORMATS)
def test_every_sample_becomes_a_workload(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = headway(capsys, "workload", "import", form, *sample(form), "-o", "w.csv")
    assert (done.status, done.out) == (0, "")
    jobs = len(read_workload("w.csv"))
    assert done.err.splitlines()[0] == f"{jobs:,} jobs written to w.csv"
    assert headway(capsys, "workload", "describe", "w.csv").status == 0


def test_dropped_omitted_and_reordered_jobs_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = headway(
        capsys,
        *("workload", "import", "helios", *sample("helios"), "--max-gpus", "8", "-o", "w.parquet"),
    )
    assert done.err.splitlines() == [
        "3 jobs written to w.parquet",
        "3 jobs dropped because they cannot be simulated:",
        "  no GPU           1",
        "  never started    1",
        "  ran for no time  1",
        "1 job left out by the options:",
        "  more than 8 GPUs  1",
    ]
    assert len(read_workload("w.parquet")) == 3


def test_a_workload_goes_to_standard_output_and_a_trace_comes_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Standard:
        buffer = io.BytesIO(gzip.compress(POLLUX.encode()))

    monkeypatch.setattr("sys.stdin", Standard)
    done = headway(capsys, "workload", "import", "philly-pollux", "-")
    assert done.status == 0
    assert done.out.splitlines()[0].startswith("job_id,arrival_s,gpus,iterations,model")
    assert done.err == "1 job written to standard output\n"


def test_a_long_read_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.cli.console.PATIENCE_S", 0.0)
    screen = io.StringIO()
    with ReadingBar(Console(file=screen, force_terminal=True, width=80)) as bar:
        import_trace("muri", sample("muri"), progress=bar)
    assert "100%" in screen.getvalue()
    assert "read 0 MB" in screen.getvalue()


def test_an_imported_trace_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--max-gpus", "8", "--first", "3", "--memory-gb", "16", "--seed", "7")
    assert (
        headway(
            capsys, "workload", "import", "helios", *sample("helios"), *options, "-o", "w.csv"
        ).status
        == 0
    )
    done = headway(capsys, "simulate", "w.csv", "--cluster", "2x4", "--json", "-")
    assert done.status == 0
    assert done.out.count('"job_id"') == 3


FAILURES = {
    "an unknown format": (
        "phily t.csv -o w.csv",
        "unknown format 'phily'. Did you mean 'philly'?",
    ),
    "a missing file": (
        "philly no.json -o w.csv",
        "no.json: No such file or directory.",
    ),
    "a folder": ("philly . -o w.csv", ".: Is a directory."),
    "a missing column": (
        "helios t.csv -o w.csv",
        "t.csv, line 1: missing columns job_id, gpu_num, submit_time, start_time, end_time.",
    ),
    "an output in no folder": (
        "philly-pollux t.csv -o no/w.csv",
        "no/w.csv: there is no folder no.",
    ),
    "an output that is the input": (
        "philly-pollux t.csv -o ./t.csv",
        "./t.csv: is an input too; give another file for the output.",
    ),
    "a negative seed": (
        "philly-pollux t.csv --seed -1 -o w.csv",
        "--seed: must be at least 0, not -1.",
    ),
    "no memory": (
        "philly-pollux t.csv --memory-gb nan -o w.csv",
        "--memory-gb: must be a finite number of GB, not nan.",
    ),
    "a window that is none": (
        "philly-pollux t.csv --from 9 -o w.csv",
        "t.csv: no jobs are left (outside the window of time: 1).",
    ),
    "no GPUs allowed": (
        "philly-pollux t.csv --max-gpus 0 -o w.csv",
        "--max-gpus: must be at least 1, not 0.",
    ),
    "tables from standard input": (
        "pai - -o w.csv",
        "standard input: PAI's files are read more than once; give paths, not standard input.",
    ),
    "a strict import": (
        "philly-pollux bad.csv --strict -o w.csv",
        "bad.csv, line 3, column 3 (num_gpus): must be a number, not 'two'.",
    ),
    "another encoding": (
        "philly-pollux latin.csv -o w.csv",
        "latin.csv, line 2, column 23: not UTF-8 text: byte 0xe9.",
    ),
    "a cut gzip file": ("philly-pollux cut.gz -o w.csv", "cut.gz: the gzip file is truncated."),
    "a tar archive": (
        "philly-pollux t.tar -o w.csv",
        "t.tar, line 1: not a text file; a trace is UTF-8 text, plain or gzip (unpack a .tar "
        "first).",
    ),
    "an endless line": (
        "philly-pollux long.csv -o w.csv",
        "long.csv, line 2: longer than 65,536 bytes; a trace's lines are short.",
    ),
    "an open quote": (
        "philly-pollux quote.csv -o w.csv",
        "quote.csv, line 2: not CSV: unexpected end of data.",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_one_line_and_writes_nothing(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.csv").write_text(POLLUX)
    Path("bad.csv").write_text(POLLUX + "2017-10-09 07:01:55,66,two\n")
    Path("latin.csv").write_bytes(POLLUX.encode()[:28] + b"2017-10-09 07:01:55,66\xe9,1\n")
    Path("cut.gz").write_bytes(gzip.compress(POLLUX.encode() * 100)[:60])
    Path("t.tar").write_bytes(b"philly.csv" + bytes(502) + POLLUX.encode())
    Path("long.csv").write_text(POLLUX[:28] + "x" * 70_000)
    Path("quote.csv").write_text(POLLUX[:28] + '"2017')
    before = set(os.listdir())
    arguments, message = FAILURES[name]
    done = headway(capsys, "workload", "import", *arguments.split())
    assert (done.status, done.out, done.err) == (2, "", f"headway: error: {message}\n")
    assert set(os.listdir()) == before


def test_a_failed_import_leaves_the_old_workload_unchanged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("w.csv").write_text("old")
    Path("t.csv").write_text(POLLUX + "2017-10-09 07:01:55,66,two\n")
    arguments = ("workload", "import", "philly-pollux", "t.csv", "--strict", "-o", "w.csv")
    assert headway(capsys, *arguments).status == 2
    assert Path("w.csv").read_text() == "old"


def test_packaged_workloads_are_described_and_unknown_ones_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = headway(capsys, "workload", "describe", "muri-1")
    assert done.status == 0
    assert done.out.startswith("1,494 jobs arrive from 0 s to 10,817,570 s")
    done = headway(capsys, "simulate", "muri")
    assert (done.status, done.err) == (
        2,
        "headway: error: muri: no such file, and no packaged workload of that name "
        "(available: muri-1).\n",
    )
