"""`simulate --timeline` and `report` as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.commands import Outcome, headway
from headway.engine.run import simulate
from headway.engine.timeline import Timeline
from headway.reports.trace import read_trace
from headway.reports.window import Window
from headway.workload.files import read_workload
from reports.perfetto_traces import expected_counters, expected_slices, parse

HEADWAY = [sys.executable, "-m", "headway"]
WORKLOAD = (
    "job_id,arrival_s,gpus,iterations,model\n"
    "a,0,4,8,resnet50\n"
    "b,0.1,2,6,vgg16\n"
    "c,0.3,3,6,lstm-ptb\n"
    "d,0.4,2,5,resnet50\n"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text(WORKLOAD)


def told(outcome: Outcome) -> list[str]:
    """Return what was printed, but for what is said only by the first run on a machine."""
    return [line for line in outcome.err.splitlines() if not line.startswith("Compiling ")]


def test_a_timeline_and_its_picture(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, "simulate", "w.csv", "--cluster", "2x2", "--timeline", "run.pftrace")
    assert outcome.status == 0
    assert "average JCT" in outcome.out
    outcome = headway(capsys, "report", "run.pftrace")
    assert (outcome.status, outcome.out) == (0, "")
    assert ElementTree.parse("run.svg").getroot().tag.endswith("svg")
    options = ["-o", "part.png", "--from", "0.5", "--to", "1"]
    assert headway(capsys, "report", "run.pftrace", *options).status == 0
    assert Path("part.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir()) == ["part.png", "run.pftrace", "run.svg", "w.csv"]


@pytest.mark.parametrize(
    ("options", "window"),
    [
        ([], Window()),
        (["--from", "0.5", "--to", "1"], Window(500_000_000, 1_000_000_000)),
        (["--from", "0.5"], Window(500_000_000)),
        (["--to", "0.25"], Window(0, 250_000_000)),
    ],
)
def test_the_command_writes_the_engines_tasks(
    options: list[str], window: Window, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["simulate", "w.csv", "--cluster", "2x2", "-q", "--timeline", "t", *options]
    assert headway(capsys, *command).status == 0
    timeline = Timeline()
    result = simulate(read_workload("w.csv"), "2x2", timeline=timeline)
    parsed = parse("t")
    assert parsed.named_slices() == expected_slices(result, timeline.tasks(), window)
    assert parsed.points == expected_counters(result, timeline.tasks(), window)


def test_recording_changes_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    headway(capsys, "simulate", "w.csv", "-q", "--json", "a.json")
    headway(capsys, "simulate", "w.csv", "-q", "--json", "b.json", "--timeline", "t")
    plain, recorded = (json.loads(Path(name).read_text()) for name in ("a.json", "b.json"))
    assert plain["jobs"] == recorded["jobs"]


def test_a_timeline_goes_through_pipes() -> None:
    command = " ".join(HEADWAY)
    subprocess.run(
        f"{command} simulate w.csv --timeline - | tee copy | {command} report - -o r.svg",
        shell=True,
        check=True,
        stderr=subprocess.DEVNULL,
    )
    assert len(read_trace("copy").slices) > 0
    ElementTree.parse("r.svg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--from 1", "--from and --to choose a part of the timeline; give --timeline too."),
        ("--to 1", "--from and --to choose a part of the timeline; give --timeline too."),
        ("--timeline t --from 2 --to 1", "the window must begin before it ends: from 2 s to 1 s."),
        ("--timeline t --from 1 --to 1", "the window must begin before it ends: from 1 s to 1 s."),
        ("--timeline t --from -1", "from: must be 0 or more seconds, not -1.0."),
        ("--timeline t --to -1", "to: must be 0 or more seconds, not -1.0."),
        ("--timeline t --from nan", "from: must be a finite number of seconds, not nan."),
        ("--timeline t --to inf", "to: must be a finite number of seconds, not inf."),
        ("--timeline t --to 1e30", "to: must be at most 4,611,686,018 seconds, not 1e+30."),
        ("--timeline no/t", "no/t: there is no folder no."),
        ("--timeline .", ".: is a folder, not a file."),
        ("--timeline w.csv", "the workload and the outputs must be different files."),
        ("--timeline t --json t", "the workload and the outputs must be different files."),
        ("--timeline - --json -", "the workload and the outputs must be different files."),
        ("--timeline t --from 1000", "the run ends at 0.7728 s; the window begins at 1000 s."),
    ],
)
def test_a_bad_option_is_refused(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, "simulate", "w.csv", *options.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert told(outcome) == [f"headway: error: {message}"]
    assert os.listdir() == ["w.csv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("no", "no: No such file or directory."),
        (".", ".: there is no runs.parquet; run a sweep first."),
        ("w.csv", "w.csv: is not a timeline from `headway simulate --timeline`."),
        ("empty", "empty: is empty; a timeline comes from `headway simulate --timeline`."),
        (
            "short",
            "short: is cut off: the packet at byte 2,999 goes on beyond the end, 3,005 bytes.",
        ),
        ("run.pftrace -o x.gif", "x.gif: must end in .svg, .pdf, .png."),
        ("run.pftrace -o no/x.svg", "no/x.svg: there is no folder no."),
        ("run.svg", "the timeline and the picture must be different files."),
        ("-", "give --output for a timeline on standard input."),
        (
            "run.pftrace --from 1 --to 0.5",
            "the window must begin before it ends: from 1 s to 0.5 s.",
        ),
        ("run.pftrace --from nan", "from: must be a finite number of seconds, not nan."),
        ("run.pftrace --to -1", "to: must be 0 or more seconds, not -1.0."),
        (
            "run.pftrace --from 50",
            "run.pftrace: covers 0.000 s to 0.773 s, "
            "nothing of the window from 50.00 s to 52.00 s.",
        ),
    ],
)
def test_a_bad_report_is_refused(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert headway(capsys, "simulate", "w.csv", "-q", "--timeline", "run.pftrace").status == 0
    Path("empty").touch()
    content = Path("run.pftrace").read_bytes()
    Path("short").write_bytes(content[:3005])
    before = sorted(os.listdir())
    outcome = headway(capsys, "report", *options.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert told(outcome) == [f"headway: error: {message}"]
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_an_interrupted_run_leaves_no_timeline(number: signal.Signals, status: int) -> None:
    options = "--jobs 3000 --span 20000 -o long.csv"
    subprocess.run([*HEADWAY, "workload", "generate", *options.split()], check=True)
    process = subprocess.Popen(
        [*HEADWAY, "simulate", "long.csv", "--timeline", "t.pftrace"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while len(os.listdir()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert any(name.startswith(".t.pftrace.") for name in os.listdir())
    time.sleep(0.3)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == status
    assert out == b""
    assert b"Traceback" not in err
    assert sorted(os.listdir()) == ["long.csv", "w.csv"]


@pytest.mark.parametrize("command", ["simulate", "report"])
def test_the_help_names_the_window(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, command, "--help")
    assert outcome.status == 0
    assert "--from" in outcome.out
    assert "--to" in outcome.out


def test_simulating_without_a_timeline_imports_nothing_for_one() -> None:
    code = (
        "import sys; sys.argv = ['headway', 'simulate', 'w.csv', '-q']\n"
        "from headway.cli.main import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "heavy = ('matplotlib', 'headway.reports.perfetto', 'headway.reports.trace')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
