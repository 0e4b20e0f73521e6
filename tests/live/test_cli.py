"""The scheduler's commands, each in a process of its own, as users run them."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headway.cli.live import client_options
from headway.cli.live.plain_log import PlainFormatter
from headway.domain.errors import InputError
from headway.live.daemon.state_folder import StateFolder, locked_folder, read_address
from live.ports import free_ports
from live.scheduler_process import PRINTS, SLEEPS, SchedulerProcess, python, running_scheduler
from waiting import eventually

pytestmark = pytest.mark.slow

CLIENTS = (
    ("submit", "x"),
    ("status",),
    ("logs", "1"),
    ("cancel", "1"),
    ("priority", "1", "2"),
    ("nodes",),
    ("drain", "n"),
    ("policy",),
    ("top",),
    ("web",),
    ("whatif",),
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
    ended = f"job {job} is done; headway logs {job} prints its output\n"
    assert (status, err) == (0, ended)
    status, out, _ = headway("logs", job, "--rank", "1", folder=shared.folder)
    assert out == f"{sys.executable} ['train.py', '--gpus', '$(id) *']\n"
    status, out, _ = headway("status", job, folder=shared.folder)
    assert out.startswith("state:      done\nname:       mine\n")
    assert f"folder:     {tmp_path}\n" in out


def test_what_if_tells_when_jobs_start_and_end(shared: SchedulerProcess, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time; time.sleep(600)")
    words = ("submit", "--gpus", "4", "--iterations", "1000", "--model", "resnet50", "train.py")
    jobs = [headway(*words, folder=shared.folder, here=tmp_path)[1].strip() for _ in range(2)]
    shared.wait_for(jobs[0], "running")
    endless = headway("submit", "train.py", folder=shared.folder, here=tmp_path)[1].strip()
    # The first request starts a process, which may take longer than a request waits.
    unknown = eventually(lambda: headway("whatif", folder=shared.folder)[1])
    shared.client.cancel(endless)
    shared.wait_for(endless, "cancelled")
    plain = headway("whatif", folder=shared.folder)
    status, out, err = headway(
        "whatif",
        *("--policy", "paper", "--add-nodes", "1", "--network", "100gbe"),
        *("--submit", "gpus=1,iterations=1,forward_ms=1,backward_ms=1.5", "--json", "-"),
        folder=shared.folder,
    )
    for job in jobs:
        shared.client.cancel(job)
        shared.wait_for(job, "cancelled")
    assert unknown.splitlines()[3].split()[-1] == "unknown"
    assert f"taken to be half done: {endless}." in " ".join(unknown.split())
    lines = plain[1].splitlines()
    assert (plain[0], plain[2]) == (0, "")
    assert lines[0].split() == ["job", "state", "starts", "ends"]
    assert lines[1].split()[:3] == [jobs[0], "running", "-"]
    assert lines[2].split()[:3] == [jobs[1], "queued", "in"]
    assert lines[-1].startswith("as it is (policy ")
    assert status == 0
    document = json.loads(out)
    now, then = document["now"], document["if"]
    assert [job["id"] for job in now["jobs"]] == jobs
    assert [job["id"] for job in then["jobs"]] == [*jobs, "(new)"]
    assert then["policy"] == "paper"
    assert then["jobs"][1]["start_ns"] < now["jobs"][1]["start_ns"]
    assert then["jobs"][2]["finish_ns"] >= then["made_ns"] + 2_500_000
    assert "(new)" in err
    assert "averages are over the 2 jobs that end either way" in err
    large = headway("whatif", "--submit", "gpus=99,iterations=1,model=vgg16", folder=shared.folder)
    assert "(new) cannot run. It needs 99 slots with " in large[1]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("4", "must be like gpus=4,iterations=1000,model=resnet50, not '4'."),
        (
            "gpus=1,gpus=2",
            "must be like gpus=4,iterations=1000,model=resnet50, not 'gpus=1,gpus=2'.",
        ),
        ("gpu=1", "unknown key 'gpu'. Did you mean 'gpus'?"),
        ("gpus=1", "needs iterations, such as gpus=4,iterations=1000,model=resnet50."),
        ("gpus=x,iterations=1", "gpus must be a whole number, not 'x'."),
        ("gpus=1,iterations=1", "needs a model, or forward_ms and backward_ms."),
        ("gpus=1,iterations=1,model=resnt50", "unknown model 'resnt50'. Did you mean 'resnet50'?"),
        ("gpus=1,iterations=1,forward_ms=-1", "must be at least 0.000001 milliseconds, not -1.0."),
    ],
)
def test_a_hypothetical_job_is_checked(shared: SchedulerProcess, spec: str, problem: str) -> None:
    status, out, err = headway("whatif", "--submit", spec, folder=shared.folder)
    assert (status, out) == (2, "")
    assert err.startswith(f"headway: error: --submit: {problem}")


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


UNTIL_TOLD = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "a").write("x")
while not os.path.exists(sys.argv[2]): time.sleep(0.02)
"""


def test_status_nodes_drain_policy_and_cancel_print_what_they_did(
    shared: SchedulerProcess, tmp_path: Path
) -> None:
    starts, go = tmp_path / "starts", tmp_path / "go"
    script = python(UNTIL_TOLD, str(starts), str(go))
    job = shared.submit(script, gpus=3, name="sleeper")
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
    # Its processes ignore SIGTERM: it does not end before the answer is there.
    eventually(lambda: starts.exists() and starts.read_text() == "xxx")
    assert headway("cancel", job, folder=shared.folder)[1] == f"job {job} is stopping\n"
    go.touch()
    shared.wait_for(job, "cancelled")


def test_a_job_gets_the_variables_that_are_named_and_no_others(
    shared: SchedulerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HERE", "NOT_NAMED"):
        monkeypatch.setenv(name, f"of this shell={name}")
    script = "import os; print([os.environ.get(name) for name in ('A', 'B', 'HERE', 'NOT_NAMED')])"
    (tmp_path / "train.py").write_text(script)
    named = ("--env", "A=1=2", "--env", "B=", "--env", "HERE")
    words = ("submit", "--wait", *named, "train.py")
    _, out, _ = headway(*words, folder=shared.folder, here=tmp_path)
    assert headway("logs", out.strip(), folder=shared.folder)[1] == (
        "['1=2', '', 'of this shell=HERE', None]\n"
    )


def test_priorities_are_changed_and_several_jobs_listed_and_cancelled(
    shared: SchedulerProcess,
) -> None:
    running = shared.submit(python(SLEEPS), gpus=4)
    shared.wait_for(running, "running")
    jobs = [shared.submit(python(SLEEPS), gpus=gpus) for gpus in (4, 1, 1)]
    assert headway("priority", jobs[2], "-3", folder=shared.folder)[1] == (
        f"job {jobs[2]} has priority -3\n"
    )
    assert headway("priority", jobs[0], "9", folder=shared.folder)[0] == 0
    lines = headway("status", jobs[0], folder=shared.folder)[1].splitlines()
    assert "priority:   9" in lines
    shared.kill()
    shared.start()
    assert [shared.client.job(job)["spec"]["priority"] for job in jobs] == [9, 0, -3]
    status, out, _ = headway("status", "--state", "queued", folder=shared.folder)
    listed = [line.split()[0] for line in out.splitlines() if line.split()[1:2] == ["queued"]]
    assert (status, listed) == (0, jobs[::-1])
    out = headway("status", "--last", "1", folder=shared.folder)[1]
    header, only = out.splitlines()[-2:]
    assert (header.split()[0], only.split()[:2]) == ("job", [jobs[2], "queued"])
    status, out, err = headway("cancel", "998", *jobs, jobs[0], "999", folder=shared.folder)
    assert out.splitlines() == [f"job {job} is cancelled" for job in jobs]
    assert (status, err.splitlines()) == (
        2,
        [f"headway: error: there is no job {job}." for job in ("998", "999")],
    )
    status, _, err = headway("priority", jobs[0], "1", folder=shared.folder)
    assert (status, err) == (2, f"headway: error: job {jobs[0]} is already cancelled.\n")
    shared.client.cancel(running)
    shared.wait_for(running, "cancelled")


FAILS_FIRST = """
import os, sys, time
if not os.path.exists(sys.argv[1]):
    open(sys.argv[1], "w").close()
    sys.exit("no luck")
print("second", flush=True)
time.sleep(600)
"""


def test_of_a_job_that_runs_again_the_earlier_attempt_is_told_apart(
    shared: SchedulerProcess, tmp_path: Path
) -> None:
    job = shared.submit(python(FAILS_FIRST, str(tmp_path / "first")), retries=1)
    eventually(lambda: shared.client.job(job)["attempts"] == 2)
    eventually(lambda: b"".join(shared.client.logs(job)) == b"second\n")
    shared.wait_for(job, "running")
    lines = headway("status", job, folder=shared.folder)[1].splitlines()
    assert lines[0] == "state:      running"
    (attempts,) = [line for line in lines if line.startswith("attempts:")]
    assert attempts.startswith("attempts:   2; attempt 1 ended: ")
    assert "no luck" in headway("logs", job, "--attempt", "1", folder=shared.folder)[1]
    assert headway("logs", job, "--attempt", "2", folder=shared.folder)[1] == "second\n"
    status, _, err = headway("logs", job, "--attempt", "3", folder=shared.folder)
    assert (status, err) == (
        2,
        f"headway: error: --attempt: job {job} has had 2, not 3.\n",
    )
    shared.client.cancel(job)
    shared.wait_for(job, "cancelled")


FAILURES = {
    "an unknown state": (
        ("status", "--state", "runing"),
        "--state: unknown state 'runing'. Did you mean 'running'?",
    ),
    "a priority out of bounds": (
        ("priority", "1", "1000001"),
        "priority: must be at most 1,000,000, not 1000001.",
    ),
    "an unset variable": (
        ("submit", "--env", "HW_UNSET", "x"),
        "--env: 'HW_UNSET' is not set here; give NAME=VALUE.",
    ),
    "a variable of the scheduler": (
        ("submit", "--env", "HEADWAY_GATE=x", "x"),
        "environment: HEADWAY_GATE is set by the scheduler.",
    ),
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
    "a directive without Slurm": (
        ("submit", "--directive=--qos=high", "x"),
        "--directive: is for Slurm; this scheduler's executor is local.",
    ),
    "a dry run without Slurm": (("serve", "--dry-run"), "--dry-run: is for the executor slurm."),
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
    if words[0] in ("submit", "web"):
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


def test_web_opens_a_page_that_stays_signed_in_when_the_scheduler_restarts(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:

        def opened(link: str, **headers: str) -> http.client.HTTPResponse:
            parts = urlsplit(link)
            connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
            stack.callback(connection.close)
            connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
            return stack.enter_context(connection.getresponse())

        def snapshot(url: str, cookie: str) -> tuple[http.client.HTTPResponse, dict[str, Any]]:
            response = opened(f"{url}/v1/live", cookie=cookie)
            lines = [response.readline() for _ in range(3)]
            assert lines[:2] == [b"retry: 1000\n", b"event: snapshot\n"]
            return response, json.loads(lines[2].removeprefix(b"data: "))

        # A port that nobody else gets while the scheduler restarts.
        port = str(free_ports(1)[0])
        one = stack.enter_context(running_scheduler(tmp_path / "state", "", "--port", port))
        status, out, err = headway("web", "--no-browser", folder=one.folder)
        assert (status, err, out.count("\n")) == (0, "", 1)
        link, url = out.strip(), read_address(StateFolder(one.folder)).url
        assert link.startswith(f"{url}/?token=")
        assert opened(f"{url}/").status == 401
        response = opened(link)
        assert response.status == 303
        cookie = response.headers["set-cookie"].partition(";")[0]
        assert opened(link).status == 403
        assert opened(f"{url}/", cookie=cookie).status == 200
        stream, first = snapshot(url, cookie)
        assert [node["slots"] for node in first["nodes"]] == [4]
        assert one.stop() == 0
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert b"event: snapshot" not in stream.read()  # It has ended.
        one.start()
        assert snapshot(url, cookie)[1]["nodes"] == first["nodes"]


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
