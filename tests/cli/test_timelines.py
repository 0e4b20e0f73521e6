"""`simulate --timeline`, `timeline export` and `report` as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.commands import Outcome, headway
from headway.engine.run import simulate
from headway.results.timeline.file import read_timeline
from headway.results.timeline.sinks import Timeline
from headway.results.timeline.window import Window
from headway.workload.files import read_workload
from reports.perfetto_traces import expected_counters, expected_slices, parse
from waiting import PATIENCE_S, eventually

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


def notices(outcome: Outcome) -> list[str]:
    """Return the lines on standard error, without those of a first run on a machine."""
    return [line for line in outcome.err.splitlines() if not line.startswith("Compiling ")]


def test_a_timeline_and_its_picture(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = headway(capsys, "simulate", "w.csv", "--cluster", "2x2", "--timeline", "run.parquet")
    assert outcome.status == 0
    assert "average JCT" in outcome.out
    outcome = headway(capsys, "report", "run.parquet")
    assert (outcome.status, outcome.out) == (0, "")
    assert ElementTree.parse("run.svg").getroot().tag.endswith("svg")
    options = ["-o", "part.png", "--from", "0.5", "--to", "1"]
    assert headway(capsys, "report", "run.parquet", *options).status == 0
    assert Path("part.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir()) == ["part.png", "run.parquet", "run.svg", "w.csv"]


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
    command = ["simulate", "w.csv", "--cluster", "2x2", "-q", *options]
    assert headway(capsys, *command, "--timeline", "t.pftrace").status == 0
    timeline = Timeline()
    result = simulate(read_workload("w.csv"), "2x2", timeline=timeline)
    assert headway(capsys, *command, "--timeline", "run.parquet").status == 0
    assert headway(capsys, "timeline", "export", "run.parquet").status == 0
    for trace in ("t.pftrace", "run.pftrace"):
        parsed = parse(trace)
        assert parsed.named_slices() == expected_slices(result, timeline.tasks(), window)
        assert parsed.points == expected_counters(result, timeline.tasks(), window)


def test_recording_changes_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    headway(capsys, "simulate", "w.csv", "-q", "--json", "a.json")
    headway(capsys, "simulate", "w.csv", "-q", "--json", "b.json", "--timeline", "t")
    plain, recorded = (json.loads(Path(name).read_text()) for name in ("a.json", "b.json"))
    assert plain["jobs"] == recorded["jobs"]


@pytest.mark.slow
def test_a_timeline_goes_through_pipes() -> None:
    command = " ".join(HEADWAY)
    subprocess.run(
        f"{command} simulate w.csv --timeline - | tee copy | {command} report - -o r.svg",
        shell=True,
        check=True,
        stderr=subprocess.DEVNULL,
    )
    assert len(read_timeline("copy").tasks) > 0
    ElementTree.parse("r.svg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--from 1", "--from and --to select a part of the timeline; give --timeline too."),
        ("--to 1", "--from and --to select a part of the timeline; give --timeline too."),
        ("--timeline t --from 2 --to 1", "the window must begin before it ends: from 2 s to 1 s."),
        ("--timeline t --from 1 --to 1", "the window must begin before it ends: from 1 s to 1 s."),
        ("--timeline t --from -1", "--from: must be 0 or more seconds, not -1.0."),
        ("--timeline t --to -1", "--to: must be 0 or more seconds, not -1.0."),
        ("--timeline t --from nan", "--from: must be a finite number of seconds, not nan."),
        ("--timeline t --to inf", "--to: must be a finite number of seconds, not inf."),
        ("--timeline t --to 1e30", "--to: must be at most 4,611,686,018 seconds, not 1e+30."),
        ("--timeline no/t", "no/t: there is no folder no."),
        ("--timeline .", ".: is a folder, not a file."),
        ("--timeline w.csv", "w.csv: is an input too; give another file for the output."),
        (
            "--timeline t.json",
            "t.json: must end in .parquet, or in .pftrace for Perfetto, not in .json.",
        ),
        ("--timeline t --json t", "t: is given for two outputs."),
        ("--timeline - --json -", "standard output: is given for two outputs."),
        ("--timeline t --from 1000", "the run ends at 0.7728 s; the window begins at 1000 s."),
    ],
)
def test_a_bad_option_is_refused(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, "simulate", "w.csv", *options.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert notices(outcome) == [f"headway: error: {message}"]
    assert os.listdir() == ["w.csv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("no", "no: No such file or directory."),
        (".", ".: there is no runs.parquet; run a sweep first."),
        ("w.csv", "w.csv: is not a timeline from `headway simulate --timeline`."),
        ("empty", "empty: is empty; a timeline comes from `headway simulate --timeline`."),
        ("short", "short: is cut off after 3,005 bytes."),
        (
            "x.pftrace",
            "x.pftrace: is an export for Perfetto, which Headway does not read; record the run "
            "with `headway simulate --timeline FILE.parquet`.",
        ),
        ("run.parquet -o x.gif", "x.gif: must end in .svg, .pdf, .png."),
        ("run.parquet -o no/x.svg", "no/x.svg: there is no folder no."),
        ("run.svg", "run.svg: is an input too; give another file for the output."),
        ("-", "give --output for a timeline on standard input."),
        (
            "run.parquet --from 1 --to 0.5",
            "the window must begin before it ends: from 1 s to 0.5 s.",
        ),
        ("run.parquet --from nan", "--from: must be a finite number of seconds, not nan."),
        ("run.parquet --to -1", "--to: must be 0 or more seconds, not -1.0."),
        (
            "run.parquet --from 50",
            "run.parquet: covers 0.000 s to 0.773 s, "
            "which does not overlap the window from 50.00 s to 52.00 s.",
        ),
    ],
)
def test_a_bad_report_is_refused(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert headway(capsys, "simulate", "w.csv", "-q", "--timeline", "run.parquet").status == 0
    Path("empty").touch()
    content = Path("run.parquet").read_bytes()
    Path("short").write_bytes(content[:3005])
    Path("x.pftrace").write_bytes(b"\n")
    before = sorted(os.listdir())
    outcome = headway(capsys, "report", *options.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert notices(outcome) == [f"headway: error: {message}"]
    assert sorted(os.listdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_an_interrupted_run_leaves_no_timeline(number: signal.Signals, status: int) -> None:
    options = "--jobs 3000 --span 20000 -o long.csv"
    subprocess.run([*HEADWAY, "workload", "generate", *options.split()], check=True)
    process = subprocess.Popen(
        [*HEADWAY, "simulate", "long.csv", "--timeline", "t.parquet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    eventually(lambda: any(name.startswith(".t.parquet.") for name in os.listdir()))
    eventually(lambda: any(Path().glob(".t.parquet.*/0.arrow")))
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
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
        "heavy = ('matplotlib', 'headway.reports.perfetto', 'headway.results.timeline.file')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_an_export_goes_through_pipes() -> None:
    command = " ".join(HEADWAY)
    subprocess.run(
        f"{command} simulate w.csv --timeline - | {command} timeline export - -o - > t.pftrace",
        shell=True,
        check=True,
        stderr=subprocess.DEVNULL,
    )
    assert parse("t.pftrace").slices


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("no", "no: No such file or directory."),
        ("w.csv", "w.csv: is not a timeline from `headway simulate --timeline`."),
        ("w.csv -o w.csv", "w.csv: is an input too; give another file for the output."),
        ("w.csv -o no/x", "no/x: there is no folder no."),
        ("-", "give --output for a timeline on standard input."),
    ],
)
def test_a_bad_export_is_refused(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, "timeline", "export", *options.split())
    assert (outcome.status, outcome.out) == (2, "")
    assert notices(outcome) == [f"headway: error: {message}"]
    assert os.listdir() == ["w.csv"]
