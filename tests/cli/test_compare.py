"""`headway compare` on the command line."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.commands import headway
from waiting import PATIENCE_S

ROWS = "a,0,4,8,resnet50\nb,0.1,2,6,vgg16\nc,0.3,3,6,lstm-ptb\n"
POLICIES = "lwf:1+ada-srsf,ff+srsf:1,ff+srsf:2@25"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    header = "job_id,arrival_s,gpus,iterations,model\n"
    Path("a.csv").write_text(header + ROWS)
    Path("b.csv").write_text(header + ROWS.replace("0.1", "0.2"))
    Path("c.csv").write_text(header + ROWS.replace("vgg16", "resnet50"))


def test_files_are_compared_with_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--policies", POLICIES, "--cluster", "2x2", "-o", "c.svg", "--json", "c.json"]
    outcome = headway(capsys, "compare", "a.csv", "b.csv", "c.csv", *options)
    assert outcome.status == 0
    assert outcome.out.startswith("3 workloads on 2x2 GPUs of 16 GB\n")
    assert re.search(r"^ff\+srsf:1 +[\d.]+ ± [\d.]+ +[\d.]+ +[\d.]+ +[\d.]+% ", outcome.out, re.M)
    row = r"^ff\+srsf:2@25 +[\d.]+  \[-?[\d.]+, [\d.]+\] +[+-][\d.]+ ± [\d.]+ +[0-3]$"
    assert re.search(row, outcome.out, re.M)
    assert "average JCT against the first's" in outcome.out
    assert ElementTree.parse("c.svg").getroot().tag.endswith("svg")
    data = json.loads(Path("c.json").read_text())
    assert data["workloads"] == ["a.csv", "b.csv", "c.csv"]
    assert [len(entry["runs"]) for entry in data["policies"]] == [3, 3, 3]


def test_one_file_has_no_intervals_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, "compare", "a.csv", "--policies", POLICIES, "--cluster", "2x2")
    assert "A single workload has no intervals" in outcome.out
    assert "±" not in outcome.out
    assert "nan" not in outcome.out


def test_standard_output_has_only_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--policies", POLICIES, "--cluster", "2x2", "--json", "-"]
    outcome = headway(capsys, "compare", "a.csv", "b.csv", *options)
    assert len(json.loads(outcome.out)["policies"]) == 3
    assert "average JCT" in outcome.err


def test_the_papers_workload_is_drawn_from_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--policies", "lwf:1+srsf:1,ff+srsf:1", "--seeds", "3,5", "--json", "-"]
    outcome = headway(capsys, "compare", "paper", *options)
    data = json.loads(outcome.out)
    assert data["workloads"] == ["generated workload, seed 3", "generated workload, seed 5"]
    assert "The paper's workload, seeds 3,5," in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "paper a.csv --policies X",
            "give either `paper` or files (a file of that name is ./paper).",
        ),
        ("a.csv --seeds 3 --policies X", "--seeds only applies to `paper`."),
        ("a.csv a.csv --policies X", "give every workload once."),
        ("a.csv --json a.csv --policies X", "a.csv: is an input too; give another"),
        ("a.csv -o a.gif --policies X", "a.gif: must end in .html, .svg, .pdf, .png."),
        ("a.csv -o no/a.svg --policies X", "no/a.svg: there is no folder no."),
        ("paper --seeds 0 --policies X", "--seeds: must be at least 1, not 0."),
        ("a.csv --policies ff+srsf:1", "--policies: a comparison needs at least two policies."),
        ("a.csv --policies ff,ls+srsf:1", "'ff' is a placement, not a set of policies: write"),
        ("no.csv --policies X", "no.csv: No such file or directory."),
        ("a.csv --policies X --cluster 1x2", "a.csv, line 2, column 3 (gpus): 4 GPUs, but the"),
        ("a.csv --policies X -j 0", "--threads: must be at least 1, not 0."),
    ],
)
def test_invalid_comparisons_are_refused(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, "compare", *arguments.replace("X", POLICIES).split())
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.splitlines()[-1].startswith(f"headway: error: {message}")


STUCK = """
def refuses(cluster, message, parameter):
    return False

def forever(cluster, job, parameter):
    turns = 0
    while cluster.system[0].now_ns >= 0:
        turns += 1
    return turns
"""


def test_a_policy_that_fails_leaves_those_that_have_finished(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("mine.py").write_text(STUCK)
    policies = "ff+srsf:2,ff+srsf:1,ff+srsf+mine.py:refuses,paper"
    options = ["--policies", policies, "--cluster", "2x2", "-j", "1"]
    files = ["-o", "c.html", "--json", "c.json"]
    outcome = headway(capsys, "compare", "a.csv", *options, *files)
    assert outcome.status == 2
    left_out = "Left out: ff+srsf+mine.py:refuses, paper."
    assert f"\nIncomplete: 2 of 4 runs have finished. {left_out}\n" in outcome.out
    assert re.search(r"^ff\+srsf:2 +[\d.]+ ", outcome.out, re.M)
    assert re.search(r"^ff\+srsf:1 +[\d.]+ +[+-][\d.]+ +[01]$", outcome.out, re.M)
    assert "leaves messages waiting for ever" in outcome.err.splitlines()[-1]
    assert f"<strong>Incomplete: 2 of 4 runs have finished. {left_out}</strong>" in (
        Path("c.html").read_text()
    )
    assert not Path("c.json").exists(), "a script must not take a part for the whole"


def test_an_interrupt_leaves_what_has_finished() -> None:
    Path("mine.py").write_text(STUCK)
    policies = "ff+srsf:1,ff+mine.py:forever+srsf:1"
    command = ["compare", "a.csv", "--policies", policies, "--cluster", "2x2", "-j", "1"]
    terminal, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "headway", *command],
        stdout=subprocess.PIPE,
        stderr=side,
        env={**os.environ, "TERM": "xterm-256color"},
        text=True,
    ) as process:
        os.close(side)
        seen = b""
        while b"1 of 2 runs" not in seen:
            seen += os.read(terminal, 65_536)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # The terminal is closed when the process ends.
            while os.read(terminal, 65_536):
                pass
        printed, _ = process.communicate(timeout=PATIENCE_S)
    os.close(terminal)
    assert process.returncode == 130
    assert "\nIncomplete: 1 of 2 runs have finished. Left out: ff+mine.py:forever" in printed
    assert re.search(r"^ff\+srsf:1 +[\d.]+ ", printed, re.M)
