"""The scheduler's commands, each in a process of its own, as users run them."""

from __future__ import annotations

import logging
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.cli.live import client_options
from headway.cli.live.plain_log import PlainFormatter
from headway.domain.errors import InputError
from headway.live.daemon.state_folder import locked_folder
from live.scheduler_process import PRINTS, SLEEPS, SchedulerProcess, python, running_scheduler

pytestmark = pytest.mark.slow

CLIENTS = (
    ("submit", "x"),
    ("status",),
    ("logs", "1"),
    ("cancel", "1"),
    ("nodes",),
    ("drain", "n"),
    ("policy",),
    ("top",),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    """Return the scheduler that these tests share."""
    with running_scheduler(tmp_path_factory.mktemp("commands") / "state") as one:
        yield one


def headway(*words: str, folder: Path, here: Path | None = None) -> tuple[int, str, str]:
    """Run a command; return its exit code, standard output and standard error."""
    name, *others = words
    done = subprocess.run(
        [sys.executable, "-m", "headway", name, "--folder", str(folder), *others],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=here,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_script_runs_with_this_python_and_unchanged_arguments(
    shared: SchedulerProcess, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.executable, sys.argv)")
    words = ("submit", "--wait", "--name", "mine", "--gpus", "2", "train.py", "--gpus", "$(id) *")
    status, out, err = headway(*words, folder=shared.folder, here=tmp_path)
    job = out.strip()
    assert (status, err) == (0, f"job {job} is done\n")
    status, out, _ = headway("logs", job, "--rank", "1", folder=shared.folder)
    assert out == f"{sys.executable} ['train.py', '--gpus', '$(id) *']\n"
    status, out, _ = headway("status", job, folder=shared.folder)
    assert out.startswith("state:      done\nname:       mine\n")
    assert f"folder:     {tmp_path}\n" in out


def test_waiting_for_a_job_that_fails_exits_with_1(
    shared: SchedulerProcess, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(7)")
    words = ("submit", "--wait", "train.py")
    status, out, err = headway(*words, folder=shared.folder, here=tmp_path)
    assert status == 1
    assert err.startswith(f"job {out.strip()} is failed: ")


def test_a_models_profile_provides_times_memory_and_gradient_size(shared: SchedulerProcess) -> None:
    words = ("submit", "--model", "resnet50", "--iterations", "5", "--gpus", "4", "sleep", "600")
    status, out, _ = headway(*words, folder=shared.folder)
    assert status == 0
    spec = shared.client.job(out.strip())["spec"]
    assert (spec["model"], spec["iterations"]) == ("resnet50", 5)
    assert spec["memory_bytes"] == 3213 * 2**20
    assert (spec["forward_ns"], spec["backward_ns"]) == (25_000_000, 37_400_000)
    assert spec["gradient_bytes"] == round(99.2 * 2**20)
    shared.client.cancel(out.strip())


def test_status_nodes_drain_policy_and_cancel_print_what_they_did(
    shared: SchedulerProcess,
) -> None:
    job = shared.submit(python(SLEEPS), gpus=3, name="sleeper")
    shared.wait_for(job, "running")
    waits = shared.submit(python(PRINTS), gpus=2)
    status, out, _ = headway("status", folder=shared.folder)
    assert status == 0
    assert out.startswith("policy ff+srsf:1, network 10gbe, executor local\n1 nodes, 4 slots, ")
    assert "needs 2 slots to itself; 1 is free" in out
    status, out, _ = headway("nodes", folder=shared.folder)
    assert f"{job} {job} {job} ." in out
    assert headway("drain", "localhost", folder=shared.folder)[1] == (
        "node localhost is draining\n"
    )
    assert "localhost (draining)" in headway("nodes", folder=shared.folder)[1]
    assert headway("drain", "--undo", "localhost", folder=shared.folder)[1] == (
        "node localhost accepts jobs again\n"
    )
    assert headway("policy", "ff+srsf:2", folder=shared.folder)[1] == "ff+srsf:2\n"
    assert headway("policy", "ff+srsf:1", folder=shared.folder)[0] == 0
    assert headway("policy", folder=shared.folder)[1] == "ff+srsf:1\n"
    assert headway("cancel", waits, folder=shared.folder)[1] == f"job {waits} is cancelled\n"
    assert headway("cancel", job, folder=shared.folder)[1] == f"job {job} is stopping\n"
    shared.wait_for(job, "cancelled")


FAILURES = {
    "an unknown job": (("status", "9999"), "there is no job 9999."),
    "an unknown node": (("drain", "x"), "there is no node x."),
    "an unknown policy": (("policy", "papr"), "unknown policy 'papr'. Did you mean 'paper'?"),
    "a missing script": (("submit", "no.py"), "script no.py not found."),
    "an unknown model": (("submit", "--model", "resnet5", "x"), "--model: unknown model. Did you"),
    "too many GPUs": (
        ("submit", "--gpus", "999", "x"),
        "--gpus: 999 GPUs, but the scheduler has ",
    ),
    "no GPUs": (("submit", "--gpus", "0", "x"), "--gpus: must be at least 1, not 0."),
    "no memory": (
        ("submit", "--memory-mb", "-1", "x"),
        "--memory-mb: must be 0 or more MB, not -1",
    ),
    "no terminal": (
        ("top",),
        "top requires a terminal; use headway status and headway nodes instead.",
    ),
    "a strange server": (("status", "--server", "ftp://x"), "--server: must be like http://127"),
    "no server there": (
        ("status", "--server", "http://127.0.0.1:1"),
        "no scheduler is listening at http://127.0.0.1:1; start one with headway serve.",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_is_one_line(shared: SchedulerProcess, tmp_path: Path, name: str) -> None:
    words, message = FAILURES[name]
    status, out, err = headway(*words, folder=shared.folder, here=tmp_path)
    assert (status, out) == (2, "")
    assert err.startswith(f"headway: error: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", CLIENTS, ids=lambda words: words[0])
def test_without_a_scheduler_every_command_says_so_in_one_line(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    status, out, err = headway(*words, folder=tmp_path)
    lines = err.splitlines()
    if words[0] == "submit":
        assert lines.pop(0) == f"waiting for a scheduler on {tmp_path} to start …"
    assert (status, out, len(lines)) == (2, "", 1)
    message = f"headway: error: no scheduler is running on {tmp_path}; start one with"
    assert lines[0].startswith(message)


def test_submit_waits_while_a_scheduler_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, tries = object(), []

    def connect(*_: object) -> object:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise InputError("no scheduler is running")
        return found

    monkeypatch.setattr(client_options, "connect", connect)
    monkeypatch.setattr(client_options, "START_S", -1.0)
    with locked_folder(tmp_path):
        assert client_options.connect_when_started(tmp_path, None, None, None) is found
    assert len(tries) == 4
    assert capsys.readouterr().err == f"waiting for a scheduler on {tmp_path} to start …\n"
    tries.clear()
    with pytest.raises(InputError, match="no scheduler is running"):
        client_options.connect_when_started(tmp_path, None, None, None)


def test_a_person_reads_the_log_in_words() -> None:
    values = {"url": "http://x", "folder": "/s", "policy": "paper", "executor": "local"}
    record = logging.makeLogRecord(
        {"msg": "scheduler ready", "levelno": logging.INFO, "levelname": "INFO", "values": values}
    )
    line = PlainFormatter().format(record)
    assert "the scheduler is ready with policy paper; page and API at http://x, state in /s" in line
    record = logging.makeLogRecord(
        {
            "msg": "node lost",
            "levelno": logging.WARNING,
            "levelname": "WARNING",
            "values": {"node": "a\x1b", "jobs": 3, "name": ""},
        }
    )
    assert PlainFormatter().format(record).endswith(r"  WARNING: node lost: node a\x1b, jobs 3")


def test_a_token_that_others_can_read_is_not_used(shared: SchedulerProcess, tmp_path: Path) -> None:
    copy = tmp_path / "token"
    copy.write_bytes((shared.folder / "token").read_bytes())
    copy.chmod(0o644)
    status, _, err = headway("status", "--token-file", str(copy), folder=shared.folder)
    assert (status, err.count("\n")) == (2, 1)
    assert "chmod 600" in err
    copy.chmod(0o600)
    assert headway("status", "--token-file", str(copy), folder=shared.folder)[0] == 0


def test_top_shows_nodes_and_jobs_and_quits_with_q(shared: SchedulerProcess) -> None:
    words = [sys.executable, "-m", "headway", "top", "--folder", str(shared.folder)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(words[0], words, os.environ | {"TERM": "xterm", "COLUMNS": "120"})
    seen = b""
    deadline = time.monotonic() + 60
    while b"q quits" not in seen and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 65536)
    assert b"localhost" in seen
    os.write(terminal, b"q")
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # The terminal disappears with its last process.
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
