"""Text from jobs, files and users is shown as it is: no markup, no control of the terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.commands import headway
from headway.cli.live import jobs as live_jobs
from headway.cli.live import top

HEADWAY = [sys.executable, "-m", "headway"]
GLOO = "[/__w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [v2]"
HOSTILE = "\x1b[31mred\x07\nnext [/bold]"
ESCAPED = "\\x1b[31mred\\x07\\nnext [/bold]"
HEADER = "job_id,arrival_s,model,gpus,iterations\n"


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
        }

    def jobs(self, **_: Any) -> list[dict[str, Any]]:
        return [live_job()]

    def job(self, _: str) -> dict[str, Any]:
        return live_job()


@pytest.mark.parametrize("arguments", [("status",), ("status", "1")])
def test_the_status_shows_what_jobs_print_as_it_is(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_jobs, "connect", lambda *_: FakeClient())
    outcome = headway(capsys, *arguments)
    assert outcome.status == 0
    assert GLOO in outcome.out
    assert ESCAPED in outcome.out
    assert "\x1b" not in outcome.out
    assert "\x07" not in outcome.out


def test_the_status_lines_of_top_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console, ConsoleDimensions

    monkeypatch.setattr(FakeClient, "nodes", lambda _: [], raising=False)
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
