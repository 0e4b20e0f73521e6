"""Text from jobs, files and users is shown as it is: no markup, no control of the terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.commands import headway
from cli.terminals import received_by_terminal
from headway import testbed as testbeds
from headway.cli.live import cluster as live_cluster
from headway.cli.live import jobs as live_jobs
from headway.cli.live import top
from headway.cli.main import run

HEADWAY = [sys.executable, "-m", "headway"]
GLOO = "[/__w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [v2]"
HOSTILE = "\x1b[31mred\x07\nnext\u202e [/bold]"
ESCAPED = "\\x1b[31mred\\x07\\nnext\\u202e [/bold]"
HEADER = "job_id,arrival_s,model,gpus,iterations\n"
FIGURES = (
    "job_id,arrival_s,gpus,iterations,forward_ms,backward_ms,gradient_mb,memory_mb,measured_on\n"
)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")


def live_job(**changes: Any) -> dict[str, Any]:
    """Return a job as the scheduler describes it."""
    spec = {
        "name": HOSTILE,
        "command": ["python", f"{HOSTILE}.py"],
        "folder": f"/home/{HOSTILE}",
        "gpus": 1,
        "iterations": None,
        "priority": 0,
    }
    job = {
        "job_id": "1",
        "state": "failed",
        "stuck": False,
        "why": "",
        "reason": GLOO,
        "spec": spec,
        "slots": [{"node": HOSTILE, "index": 0}],
        "attempts": 1,
        "iterations": 3,
        "submitted_at": 0.0,
        "started_at": 1.0,
        "ended_at": 2.0,
        "predicted_start_at": None,
        "predicted_finish_at": None,
        "prediction_note": "",
    }
    return job | changes


class FakeClient:
    """A scheduler with one job."""

    def status(self) -> dict[str, Any]:
        return {
            "policy": HOSTILE,
            "network": "n",
            "executor": "local",
            "nodes": 1,
            "slots": 1,
            "workers": 0,
            "grants": 0,
            "jobs": {"failed": 1},
            "policy_problem": GLOO,
            "storage_problem": None,
            "log_problem": None,
            "ungated": [HOSTILE],
        }

    def jobs(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return [live_job()]

    def job(self, _: str) -> dict[str, Any]:
        return live_job()

    def submit(self, _: dict[str, Any]) -> dict[str, Any]:
        return live_job(job_id=HOSTILE)

    def cancel(self, _: str) -> dict[str, Any]:
        return live_job(state=HOSTILE)

    def patiently(self, request: Callable[[], Any]) -> Any:
        return request()

    def logs(self, *_: Any) -> Iterator[bytes]:
        for byte in OUTPUT:  # a character may come in parts
            yield bytes([byte])

    def drain(self, *_: Any) -> None:
        pass

    def policy(self) -> str:
        return HOSTILE

    def set_policy(self, name: str) -> str:
        return name

    def nodes(self) -> list[dict[str, Any]]:
        slot = {"jobs": [HOSTILE], "computing": HOSTILE}
        waiting = [{"job_id": "2", "why": f"{HOSTILE} {GLOO}"}]
        node = {"node": HOSTILE, "draining": False, "memory_bytes": 0, "slots": [slot]}
        return [node | {"messages": [{"job_id": HOSTILE}], "waiting": waiting}]


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find a scheduler full of hostile text."""
    for module in (live_jobs, live_cluster, top):
        monkeypatch.setattr(module, "connect", lambda *_: FakeClient())
    monkeypatch.setattr(live_jobs, "connect_when_started", lambda *_: FakeClient())


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("arguments", [("status",), ("status", "1")])
def test_the_status_shows_what_jobs_print_as_it_is(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = headway(capsys, *arguments)
    assert outcome.status == 0
    assert GLOO in outcome.out
    assert ESCAPED in outcome.out
    assert "\x1b" not in outcome.out
    assert "\x07" not in outcome.out


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(
    "arguments",
    [
        ("cancel", HOSTILE),
        ("drain", HOSTILE),
        ("drain", "--undo", HOSTILE),
        ("policy",),
        ("policy", HOSTILE),
        ("nodes",),
        ("submit", "--wait", "true"),
        ("workload", "graph", "w.csv", HOSTILE),
        ("workload", "graph", "w.csv", "no such [/job]\x1b"),
        ("testbed", "status", "--name", HOSTILE),
        ("testbed", "status"),
        ("explain", "w.csv", HOSTILE),
        ("replay", HOSTILE),
        ("report", f"{HOSTILE}.parquet", "-o", "x.svg"),
        ("sweep", f"{HOSTILE}.toml"),
        ("compare", f"{HOSTILE}.csv"),
        ("simulate", "w.csv", "--policy", HOSTILE),
        ("simulate", "w.csv", "--json", f"{HOSTILE.replace('/', '')}.json"),
        ("new", "policy", f"{HOSTILE.replace('/', '')}.py"),
        ("calibrate", "network", HOSTILE),
        (HOSTILE,),
    ],
    ids=lambda arguments: " ".join(arguments[:2]).split("\x1b")[0],
)
def test_every_command_escapes_hostile_text(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("w.csv").write_text(f'{FIGURES}"{HOSTILE}",0,1,5,1,1,1,1,"{HOSTILE[:5]}"\n')
    broken = testbeds.Status(testbeds.Testbed(), (), (HOSTILE,))
    monkeypatch.setattr("headway.testbed.statuses", lambda: [broken])
    outcome = headway(capsys, *arguments)
    shown = outcome.out + outcome.err
    assert "Traceback" not in shown
    assert "\\x1b" in shown
    assert not set(shown) & {"\x1b", "\x07", "\u202e"}
    assert "\nnext" not in shown


OUTPUT = b"step 1\r\tstep 2\xc3\xa9 \x1b]0;owned\x07 \xff\xe2\x80\xae\nend"


@pytest.mark.usefixtures("scheduler")
def test_a_jobs_output_does_not_control_a_terminal_unless_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, received = received_by_terminal(monkeypatch, 80, "logs", "1")
    assert not code
    expected = "step 1\r\tstep 2é \\x1b]0;owned\\x07 \\xff\\u202e\r\nend"
    assert received.decode() == expected
    code, received = received_by_terminal(monkeypatch, 80, "logs", "--raw", "1")
    assert received == OUTPUT.replace(b"\n", b"\r\n")


@pytest.mark.usefixtures("scheduler")
def test_files_and_pipes_get_a_jobs_output_byte_for_byte(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["headway", "logs", "1"])
    with pytest.raises(SystemExit):
        run()
    assert capfdbinary.readouterr().out == OUTPUT


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "TERM": "dumb"}]
)
def test_no_command_sends_escapes_where_they_are_not_wanted(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("w.csv").write_text(f"{HEADER}1,0,vgg16,1,5\n2,0,vgg16,4,5\n")
    Path("s.toml").write_text(
        'seeds=[1]\nworkloads=["w.csv"]\nclusters=["2x4"]\npolicies=["paper","headway"]\n'
    )
    healthy = testbeds.Status(testbeds.Testbed(), (), ())
    monkeypatch.setattr("headway.testbed.statuses", lambda: [healthy])
    monkeypatch.setattr("headway.cli.console.PATIENCE_S", 0.0)
    for command, status in {
        "simulate w.csv --timeline t.parquet -o run.svg": 0,
        "compare w.csv --policies paper,headway": 0,
        "sweep s.toml": 0,
        "explain w.csv 1": 0,
        "explain t.parquet 1": 0,
        "report t.parquet -o t.svg": 0,
        "timeline export t.parquet -o t.pftrace": 0,
        "policies": 0,
        "network": 0,
        "workload list": 0,
        "workload describe w.csv": 0,
        "workload graph w.csv 1": 0,
        "workload profiles": 0,
        "workload generate -o g.csv": 0,
        "new policy p.py": 0,
        "testbed status": 0,
        "status": 0,
        "status 1": 0,
        "logs 1": 0,
        "nodes": 0,
        "top": 2,
        "cancel 1": 0,
        "drain n": 0,
        "policy": 0,
        "--help": 0,
        "simulate --help": 0,
        "simulate": 2,
        "simulate nowhere.csv": 2,
        "calibrate network --help": 0,
        "calibrate network --sizes 1": 2,
    }.items():
        code, received = received_by_terminal(
            monkeypatch, 80, *command.split(), environment=environment
        )
        assert (code or 0) == status, (command, received)
        assert received
        assert b"\x1b" not in received, (command, received)


def test_the_status_lines_of_top_are_escaped() -> None:
    from rich.console import Console, ConsoleDimensions

    screen = top._screen(FakeClient(), ConsoleDimensions(200, 40))  # type: ignore[arg-type]
    printed = io.StringIO()
    Console(width=200, file=printed, color_system=None).print(screen)
    shown = printed.getvalue()
    assert ESCAPED in shown
    assert GLOO in shown
    assert "\x1b" not in shown


def test_names_in_files_and_options_are_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    Path("[w].csv").write_text(f'{HEADER}"{HOSTILE}",0,vgg16,1,5\n')
    assert "[w].csv" in headway(capsys, "simulate", "[w].csv").out
    outcome = headway(capsys, "explain", "[w].csv", HOSTILE)
    assert f"job {ESCAPED}: 1 GPU" in outcome.out
    outcome = headway(capsys, "simulate", f"{HOSTILE}.csv")
    assert outcome.err == f"headway: error: {ESCAPED}.csv: No such file or directory.\n"
    Path("bad.csv").write_text(f'{HEADER}1,0,"\x1b[31m",1,5\n')
    outcome = headway(capsys, "simulate", "bad.csv")
    assert outcome.status == 2
    assert "\x1b" not in outcome.err


@pytest.mark.parametrize("command", ["compare w.csv --policies paper,headway", "explain w.csv é"])
def test_an_ascii_terminal_gets_substitutes(command: str) -> None:
    Path("w.csv").write_text(f"{HEADER}é,0,vgg16,1,5\n2,0,vgg16,1,5\n")
    done = subprocess.run(
        [*HEADWAY, *command.split()],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"kWh x h" in done.stdout or b"job \\xe9: 1 GPU" in done.stdout
