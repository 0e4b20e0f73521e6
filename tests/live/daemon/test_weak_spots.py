"""What a hostile job, client or operator may do to a real scheduler, and does not get."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headway.gate.connections import FRAMES_BURST, MAX_FRAMES_PER_S
from live.daemon.test_daemon_gated import ASKS
from live.scheduler_process import PRINTS, SLEEPS, SchedulerProcess, python, running_scheduler
from waiting import eventually

pytestmark = pytest.mark.slow

PATH = {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    """Return a scheduler shared by the tests that neither stop nor kill it."""
    with running_scheduler(tmp_path_factory.mktemp("weak") / "state", slots=4) as one:
        yield one


def attempt_folder(one: SchedulerProcess, job: str) -> Path:
    return one.folder / "attempts" / f"{job}.1"


REPLACES_ITS_LOG = """
import os, sys, time
for name in ("rank-0.log", "rank-0.log.1"):
    path = os.path.join(os.environ["HEADWAY_ATTEMPT_FOLDER"], name)
    if os.path.exists(path):
        os.unlink(path)
    {replace}
print("replaced", flush=True)
open(sys.argv[1], "w").close()
time.sleep(600)
"""


@pytest.mark.parametrize(
    "replace",
    ["os.mkfifo(path)", "os.symlink('/dev/zero', path)", "os.symlink('/etc/passwd', path)"],
)
def test_a_job_that_replaces_its_log_holds_up_nobody_and_shows_nothing_else(
    shared: SchedulerProcess, tmp_path: Path, replace: str
) -> None:
    done = tmp_path / "done"
    job = shared.submit(python(REPLACES_ITS_LOG.format(replace=replace), str(done)))
    eventually(done.exists)
    # More readers than there are threads.
    for _ in range(40):
        assert fetch(shared, f"/v1/jobs/{job}/logs")[1] == b""
    assert shared.wait_for(shared.submit(python(PRINTS)), "done", "failed")["state"] == "done"
    shared.client.cancel(job)
    shared.wait_for(job, "cancelled")


def fetch(
    one: SchedulerProcess, path: str, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """Return a response and its body; fail if they do not come."""
    parts = urlsplit(one.client._address.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    token = (one.folder / "token").read_text().strip()
    connection.request("GET", path, headers={"authorization": f"Bearer {token}", **headers})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def request_raw(one: SchedulerProcess, path: str, **headers: str) -> http.client.HTTPResponse:
    return fetch(one, path, **headers)[0]


def test_no_request_is_redirected_to_a_host_of_its_choice(shared: SchedulerProcess) -> None:
    response = request_raw(shared, "/v1/status/", host="evil.com")
    assert (response.status, response.getheader("location")) == (404, None)


def test_named_pipes_in_the_state_folder_hold_up_no_start(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    (folder / "attempts" / "1.1").mkdir(parents=True)
    folder.chmod(0o700)
    names = ("address.json", "events-000003-000001.jsonl", "thinned-000002-000001.jsonl")
    for name in (*names, "attempts/1.1/lock"):
        os.mkfifo(folder / name, 0o600)
    with running_scheduler(folder) as scheduler:
        scheduler.wait_for(scheduler.submit(python("pass")), "done")
        assert (folder / "events.jsonl").readlink() == Path("events-000004-000001.jsonl")


def test_a_deleted_socket_is_bound_again_and_reported(shared: SchedulerProcess) -> None:
    (shared.folder / "gate.sock").unlink()
    eventually((shared.folder / "gate.sock").exists)
    job = shared.submit(python(ASKS, "1", "0", "/"), environment=PATH)
    shared.wait_for(job, "done")
    lines = b"".join(shared.client.logs(job)).decode().splitlines()
    assert lines[1].startswith("1 ")
    shared.wait_for_entries(1, event="gate's socket was deleted; listening anew")


LEAVES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        sleeps = "import time; time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-c", sleeps, sys.argv[1]], {})
    os._exit(0)
time.sleep(600)
"""


def processes_with(word: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if word.encode() in words and b"-c" in words and LEAVES.encode() not in words:
                found.append(int(path.parent.name))
    return found


def test_a_child_that_left_its_session_and_environment_ends_with_its_killed_shim(
    shared: SchedulerProcess,
) -> None:
    mark = f"left-{os.getpid()}"
    job = shared.submit(python(LEAVES, mark))
    eventually(lambda: len(processes_with(mark)) == 1)
    shim = int((attempt_folder(shared, job) / "lock").read_text())
    os.kill(shim, signal.SIGKILL)
    assert shared.wait_for(job, "failed")["reason"] == "its shim was killed"
    assert processes_with(mark) == []


def test_waiting_commands_survive_a_restart_of_the_scheduler(tmp_path: Path) -> None:
    slow = (
        "import time; print('before', flush=True)\nwhile not __import__('os').path.exists({!r}):\n"
    )
    slow += "    time.sleep(0.05)\nprint('after')"
    go_on = tmp_path / "go on"
    script = tmp_path / "slow.py"
    script.write_text(slow.format(str(go_on)))
    command = [sys.executable, "-m", "headway"]
    with running_scheduler(tmp_path / "state") as one, contextlib.ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [*command, *words[:1], "--folder", str(one.folder), *words[1:]],
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        waits = start("submit", "--wait", str(script))
        assert waits.stdout is not None
        job = waits.stdout.readline().strip()
        one.wait_for(job, "running")
        follows = start("logs", "-f", job)
        assert follows.stdout is not None
        assert follows.stdout.readline() == "before\n"
        one.kill()
        one.start()
        go_on.touch()
        assert waits.wait(60) == 0
        assert follows.communicate(timeout=60)[0] == "after\n"
        assert follows.returncode == 0


def test_the_error_itself_is_the_reason_of_a_failed_job(shared: SchedulerProcess) -> None:
    script = (
        "import sys; sys.stderr.write('''[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "train.py", line 3, in main\n'
        "[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer\n\n"
        "[rank0]: At:\n[rank0]:   torch.py(186): <lambda>\n\n'''); sys.exit(1)"
    )
    found = shared.wait_for(shared.submit(python(script)), "failed")
    assert found["reason"] == (
        "rank 0 exited with 1: RuntimeError: [pair.cc:553] Connection closed by peer"
    )


def test_an_address_that_others_reach_without_a_certificate_is_warned_of(tmp_path: Path) -> None:
    with running_scheduler(tmp_path / "state", 'api_host = "0.0.0.0"\n') as one:
        warnings = one.wait_for_entries(1, level="warning")
        assert [(line["setting"], line["host"]) for line in warnings] == [("api_host", "0.0.0.0")]


def test_a_scheduler_without_file_descriptors_says_so_a_few_times_only(tmp_path: Path) -> None:
    with running_scheduler(tmp_path / "state") as one:
        job = one.submit(python(SLEEPS))
        one.wait_for(job, "running")
        words = ["prlimit", f"--pid={one.process.pid}", "--nofile=64:"]
        if subprocess.run(words, check=False).returncode != 0:
            pytest.skip("prlimit is not permitted")
        url = urlsplit(one.client._address.url)
        with contextlib.ExitStack() as stack:
            deadline_s = time.monotonic() + 6
            while time.monotonic() < deadline_s:
                with contextlib.suppress(OSError):
                    connection = socket.create_connection((str(url.hostname), url.port), 1)
                    stack.callback(connection.close)
                time.sleep(0.02)
            lines = one.wait_for_entries(1, level="error")
        assert 1 <= len(lines) <= 5, lines
        assert "trace" not in lines[0]
        assert lines[0]["problem"] == "Too many open files"
        words = ["prlimit", f"--pid={one.process.pid}", "--nofile=4096:"]
        subprocess.run(words, check=True)
        eventually(one._responds)
        assert one.client.job(job)["state"] == "running"


FLOODS = """
import os, socket, time
from headway.gate import frames
from headway.gate.environment import WorkerEnvironment
from headway.gate.protocol import encode
from headway.worker.handshake import connect, say_hello
# Before it connects: it answers no ping while it makes them.
flood = b"".join(encode(frames.Iteration(n, 0, 0, 0)) for n in range(1, 200_001))
environment = WorkerEnvironment.from_variables(os.environ)
connection = connect(environment)
say_hello(connection, environment, 0)
connection.settimeout(None)
print("flooding", flush=True)
connection.sendall(flood)
print("sent", flush=True)
time.sleep(600)
"""


def test_a_flood_of_frames_is_slowed_down_and_leaves_the_log_to_others(
    shared: SchedulerProcess,
) -> None:
    began = time.monotonic()
    job = shared.submit(python(FLOODS), environment=PATH)

    def handled() -> int:
        iterations: int = shared.client.job(job)["iterations"]
        return iterations if iterations > 2 * FRAMES_BURST else 0

    # Far fewer than it could send; everybody else is served meanwhile.
    frames = eventually(handled)
    assert frames < FRAMES_BURST + MAX_FRAMES_PER_S * (time.monotonic() - began)
    assert shared.wait_for(shared.submit(python(PRINTS)), "done", "failed")["state"] == "done"
    shared.client.cancel(job)
    shared.wait_for(job, "cancelled")


ASKS_AND_MEASURES = """
import os, sys, time
from headway.gate.environment import WorkerEnvironment
from headway.worker.client import GateClient
gate = GateClient(WorkerEnvironment.from_variables(os.environ))
gate.wait_for_first_try(30)
times = []
while not os.path.exists(sys.argv[1]):
    began = time.perf_counter()
    request = gate.message_ready(1, 1)
    gate.wait_for_grant(request)
    times.append(time.perf_counter() - began)
    gate.message_done(request)
    if len(times) in (1, 200):
        open(sys.argv[1] + f".{len(times)}", "w").close()
    time.sleep(0.005)
times.sort()
print(len(times), times[len(times) * 99 // 100] * 1000, flush=True)
"""


def test_busy_readers_of_the_api_do_not_hold_up_grants(
    shared: SchedulerProcess, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    job = shared.submit(python(ASKS_AND_MEASURES, str(stop)), environment=PATH)
    # It may take long to start.
    eventually(stop.with_name("stop.1").exists)
    waits = [shared.submit(python(PRINTS), gpus=4) for _ in range(50)]
    running = threading.Event()
    running.set()

    def read() -> None:
        while running.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                request_raw(shared, "/v1/jobs")

    readers = [threading.Thread(target=read) for _ in range(100)]
    for reader in readers:
        reader.start()
    time.sleep(5)
    eventually(stop.with_name("stop.200").exists)
    running.clear()
    for reader in readers:
        reader.join()
    for one in waits:
        shared.client.cancel(one)
    stop.touch()
    assert shared.wait_for(job, "done", "failed")["state"] == "done"
    count, slowest_ms = b"".join(shared.client.logs(job)).decode().split()
    assert int(count) > 100
    assert float(slowest_ms) < 200
