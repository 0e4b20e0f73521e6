"""`headway view -o`, and what it refuses; tests/web has the page itself."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path

import pytest

from cli.commands import headway

WORKLOAD = "job_id,arrival_s,gpus,iterations,model\na,0,4,3,resnet50\nb,0.1,2,2,vgg16\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text(WORKLOAD)


def recorded(capsys: pytest.CaptureFixture[str], path: str) -> None:
    assert headway(capsys, "simulate", "w.csv", "--timeline", path, "-q").status == 0


def test_a_page_is_one_file_that_asks_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    recorded(capsys, "<b>.parquet")
    done = headway(capsys, "view", "<b>.parquet", "-o", "run.html")
    assert (done.status, done.out, done.err) == (0, "", "Written: run.html\n")
    page = Path("run.html").read_text()
    assert "<title>&lt;b&gt; – Headway</title>" in page
    assert not re.search(r'(src|href)="(?!data:,")', page)
    assert not re.search(r"^(import|export) ", page, re.MULTILINE)
    assert "default-src 'none'" in page
    printed = headway(capsys, "view", "<b>.parquet", "-o", "-")
    assert printed.out == page


def test_a_run_may_come_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    recorded(capsys, "run.parquet")
    os.mkfifo("pipe")

    def write() -> None:
        with contextlib.suppress(BrokenPipeError):
            Path("pipe").write_bytes(Path("run.parquet").read_bytes())
        Path("pipe").write_bytes(b"")  # A second reader would find nothing.

    threading.Thread(target=write, daemon=True).start()
    done = headway(capsys, "view", "pipe", "-o", "run.html")
    assert (done.status, done.err) == (0, "Written: run.html\n")


def test_runs_of_the_same_file_name_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("x", "y"):
        Path(folder).mkdir()
        recorded(capsys, f"{folder}/run.parquet")
    assert headway(capsys, "view", "x/run.parquet", "y/run.parquet", "-o", "r.html").status == 0
    assert "<title>x/run.parquet, y/run.parquet – Headway</title>" in Path("r.html").read_text()


def test_what_cannot_be_shown_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    recorded(capsys, "run.parquet")
    refused = {
        ("w.csv", "-o", "r.html"): "w.csv: is not a timeline from `headway simulate --timeline`.",
        ("run.parquet", "-o", "r.pdf"): "r.pdf: must end in .html.",
        ("run.parquet", "-o", "no/r.html"): "no/r.html: there is no folder no.",
        ("none.parquet", "-o", "r.html"): "none.parquet: No such file or directory.",
        ("run.parquet", "run.parquet", "-o", "r.html"): "run.parquet: is given twice.",
    }
    for words, problem in refused.items():
        done = headway(capsys, "view", *words)
        assert (done.status, done.err) == (2, f"headway: error: {problem}\n")
    assert not list(Path().glob("r.*"))


@pytest.mark.slow
def test_the_page_of_the_papers_run_is_small(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["paper", "--timeline", "paper.parquet", "-q"]
    assert headway(capsys, "simulate", *words).status == 0
    assert headway(capsys, "view", "paper.parquet", "-o", "paper.html").status == 0
    assert Path("paper.html").stat().st_size < 5_000_000
    assert '"exact": true' in Path("paper.html").read_text()
