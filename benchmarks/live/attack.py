"""Attacks a live scheduler with real processes, and prints what was expected and what was seen.

python benchmarks/live/attack.py [NAME ...]

Each attack runs against a scheduler of its own: hung ranks, floods, full disks, lost databases,
hostile clients. Full disks need root. Exits 1 if anything was seen that was not expected.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from scheduler_process import becomes_true, responding

from headway.domain.errors import InputError
from headway.live.api.client import Client

PATIENCE_S = 60.0
SETTINGS = """[serve]
folder = "state"
api_port = 0
policy = "ff+srsf:1"
lease_s = 2
end_stuck_after_s = 5

[executor]
kind = "local"
nodes = 2
slots = 2
memory_mb = 1024
"""

SLEEPS = "import time; print('sleeping', flush=True); time.sleep(600)"
ASKS = """
import os, sys, time
from headway.gate.environment import WorkerEnvironment
from headway.worker.client import GateClient
print(os.getpid(), flush=True)
if os.environ["RANK"] != "0":
    time.sleep(600)
gate = GateClient(WorkerEnvironment.from_variables(os.environ))
gate.wait_for_first_try(30)
hold_s = float(sys.argv[1])
while True:
    began = time.perf_counter()
    request = gate.message_ready(2**20, 2**20)
    gate.wait_for_grant(request)
    sys.stdout.write(f"granted {time.perf_counter() - began}\\n")
    time.sleep(hold_s)
    gate.message_done(request)
"""
FLOODS = """
import os, time
from headway.gate import frames
from headway.gate.environment import WorkerEnvironment
from headway.gate.protocol import encode
from headway.worker.handshake import connect, say_hello
environment = WorkerEnvironment.from_variables(os.environ)
connection = connect(environment)
say_hello(connection, environment, 0)
connection.settimeout(None)
flood = b"".join(encode(frames.Iteration(1, 0, 0, 0)) for _ in range(10_000))
while True:
    connection.sendall(flood)
"""
REPLACES_ITS_LOG = """
import os, time
path = os.path.join(os.environ["HEADWAY_ATTEMPT_FOLDER"], "rank-0.log")
os.unlink(path)
os.mkfifo(path)
time.sleep(600)
"""
ESCAPES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        sleeps = "import time; time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-c", sleeps, sys.argv[1]], {})
    os._exit(0)
time.sleep(600)
"""


class Seen(NamedTuple):
    """What happened, and whether that was expected."""

    text: str
    good: bool


class Target:
    """A scheduler under attack."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        self.log = folder / "log"
        self.config = folder / "serve.toml"
        self.config.write_text(SETTINGS)
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "headway", "serve", "--config", str(self.config), *options]

    def start(self, *options: str) -> int | None:
        """Start it and wait until it responds; return its exit code if it ends instead."""
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(self.command(*options), stderr=stream)
        ended = self.process.poll
        becomes_true(lambda: ended() is not None or responding(self.state), PATIENCE_S)
        return ended()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @property
    def client(self) -> Client:
        found = responding(self.state)
        if found is None:
            raise InputError("the scheduler does not respond.")
        return found

    def submit(self, script: str, *words: str, **fields: Any) -> str:
        spec = {
            "command": [sys.executable, "-c", script, *words],
            "folder": "/",
            "environment": {"PYTHONPATH": os.pathsep.join(sys.path)},
            "memory_bytes": 2**20,
        }
        return str(self.client.submit(spec | fields)["job_id"])

    def wait_for(self, job: str, *states: str) -> str:
        becomes_true(lambda: self.client.job(job)["state"] in states, PATIENCE_S)
        return str(self.client.job(job)["state"])

    def output(self, job: str, rank: int = 0, attempt: int = 1) -> str:
        path = self.state / "attempts" / f"{job}.{attempt}" / f"rank-{rank}.log"
        return path.read_text() if path.exists() else ""

    def grants(self, job: str) -> list[float]:
        """Return how long each of a job's requests waited, in seconds."""
        lines = self.output(job).split("\n")[:-1]  # The last may not be whole yet.
        return [float(line.split()[1]) for line in lines if line.startswith("granted ")]

    def clear(self) -> None:
        """End everything."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                text = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
                if os.fsencode(self.folder) in text and int(path.name) != os.getpid():
                    os.kill(int(path.name), signal.SIGKILL)


def _two_jobs(target: Target) -> list[str]:
    """Start two jobs that ask for the same network in turn."""
    target.start()
    jobs = [target.submit(ASKS, "0.01", gpus=3, retries=1) for _ in range(2)]
    becomes_true(lambda: all(len(target.grants(job)) > 5 for job in jobs), PATIENCE_S)
    return jobs


def hung_rank(target: Target) -> Seen:
    stopped, other = _two_jobs(target)
    os.kill(int(target.output(stopped).split()[0]), signal.SIGSTOP)
    began_s, before = time.monotonic(), len(target.grants(other))
    going = becomes_true(lambda: len(target.grants(other)) > before + 20, PATIENCE_S)
    waited_s = max(target.grants(other)[before:], default=0.0)
    retried = becomes_true(lambda: target.client.job(stopped)["attempts"] == 2, PATIENCE_S)
    took_s = time.monotonic() - began_s
    text = f"the other job waited {waited_s:.1f} s; retried after {took_s:.0f} s: {retried}"
    return Seen(text, going and retried and waited_s < 15)


def flood_of_frames(target: Target) -> Seen:
    target.start()
    target.submit(FLOODS)
    becomes_true(lambda: target.client.status()["events"] > 20_000, PATIENCE_S)
    before = target.client.status()["events"]
    time.sleep(3)
    rate = (target.client.status()["events"] - before) / 3
    return Seen(f"{rate:,.0f} events/s", rate < 4_000)


def log_is_a_pipe(target: Target) -> Seen:
    target.start()
    job = target.submit(REPLACES_ITS_LOG)
    path = target.state / "attempts" / f"{job}.1" / "rank-0.log"
    becomes_true(path.is_fifo, PATIENCE_S)
    readers = [
        threading.Thread(target=lambda: list(target.client.logs(job)), daemon=True)
        for _ in range(40)
    ]
    for reader in readers:
        reader.start()
    state = target.wait_for(target.submit("print(1)"), "done", "failed")
    return Seen(f"another job is {state}", state == "done")


def busy_readers(target: Target) -> Seen:
    target.start()
    job = target.submit(ASKS, "0.005")
    becomes_true(lambda: len(target.grants(job)) > 5, PATIENCE_S)
    for _ in range(50):
        target.submit("print(1)", gpus=4, memory_bytes=0)
    going, url = threading.Event(), target.client._address.url
    token = (target.state / "token").read_text().strip()

    def read() -> None:
        while not going.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                _request(url, "/v1/jobs", authorization=f"Bearer {token}")

    threads = [threading.Thread(target=read) for _ in range(500)]
    before = len(target.grants(job))
    for thread in threads:
        thread.start()
    time.sleep(5)
    going.set()
    for thread in threads:
        thread.join()
    waits = sorted(target.grants(job)[before:])
    slow_ms = waits[len(waits) * 99 // 100] * 1000 if waits else float("inf")
    return Seen(f"{slow_ms:.1f} ms at the 99th percentile of {len(waits)}", slow_ms < 50)


def _request(url: str, path: str, **headers: str) -> http.client.HTTPResponse:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        response.read()
        return response
    finally:
        connection.close()


def foreign_host(target: Target) -> Seen:
    target.start()
    token = (target.state / "token").read_text().strip()
    url = target.client._address.url
    response = _request(url, "/v1/status/", host="evil.com", authorization=f"Bearer {token}")
    return Seen(
        f"{response.status}, location {response.getheader('location')}", response.status == 404
    )


def no_token(target: Target) -> Seen:
    target.start()
    url = target.client._address.url
    found = {
        _request(url, path, authorization=value).status
        for path in ("/v1/status", "/v1/jobs", "/metrics", "/openapi.json", "/nothing")
        for value in ("", "Bearer", "Bearer x", "Basic eDp5")
    }
    return Seen(f"{found}", found == {401})


@contextlib.contextmanager
def _small_disk(target: Target) -> Iterator[bool]:
    target.state.mkdir(mode=0o700)
    words = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(target.state)]
    mounted = subprocess.run(words, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        target.clear()
        if mounted:
            subprocess.run(["umount", "-l", str(target.state)], check=True)


def _fill(target: Target) -> None:
    with contextlib.suppress(OSError), (target.state / "large").open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass


def full_disk(target: Target) -> Seen:
    with _small_disk(target) as mounted:
        if not mounted:
            return Seen("not tried: this needs root", True)
        target.start()
        job = target.submit(SLEEPS)
        becomes_true(lambda: target.output(job), PATIENCE_S)
        drained = False
        for _ in range(100):
            _fill(target)
            try:
                target.client.drain("node1", not drained)
                drained = not drained
            except InputError as error:
                refusal = str(error)
                break
        else:
            return Seen("drains were never refused", False)
        target.kill()
        _fill(target)
        code = target.start()
        if code is not None:
            return Seen(f"the next scheduler ended with {code}", False)
        kept = target.client.nodes()[0]["draining"] is drained
        state = target.client.job(job)["state"]
        text = f"'{refusal[:40]}…'; after a restart on the full disk the job is {state}"
        return Seen(text, kept and state == "running" and "cannot be written" in refusal)


def lost_database(target: Target) -> Seen:
    target.start()
    job = target.submit(SLEEPS)
    target.wait_for(job, "running")
    target.kill()
    for path in target.state.glob("state.db*"):
        path.unlink()
    code = target.start()
    adopted = target.start("--adopt")
    state = target.client.job(job)["state"] if adopted is None else "lost"
    return Seen(f"exit code {code}; adopted, it is {state}", (code, state) == (2, "running"))


def garbled_database(target: Target) -> Seen:
    target.start()
    for _ in range(20):
        target.submit(SLEEPS, gpus=4, memory_bytes=0)
    assert target.process is not None
    target.process.terminate()
    target.process.wait()
    # Without running jobs, and without the log of what is being written.
    target.clear()
    good, dice = (target.state / "state.db").read_bytes(), random.Random(0)
    bad = 0
    for _ in range(12):
        data = bytearray(good)
        start = dice.randrange(0, len(data) - 512, 256)
        data[start : start + 512] = dice.randbytes(512)
        for path in target.state.glob("state.db*"):
            path.unlink()
        (target.state / "state.db").write_bytes(data)
        with subprocess.Popen(
            target.command(), stderr=subprocess.PIPE, text=True, env=os.environ
        ) as process:
            started = becomes_true(partial(_is_decided, process, target), PATIENCE_S)
            process.terminate()
            _, printed = process.communicate(timeout=PATIENCE_S)
        bad += not started or "Traceback" in printed or process.returncode not in (0, 2)
    return Seen(f"{bad} of 12 garbled databases caused anything else", bad == 0)


def _is_decided(process: subprocess.Popen[str], target: Target) -> bool:
    """Return whether a scheduler responds or has ended."""
    return process.poll() is not None or responding(target.state) is not None


def deleted_socket(target: Target) -> Seen:
    target.start()
    (target.state / "gate.sock").unlink()
    renewed = becomes_true((target.state / "gate.sock").exists, 10)
    job = target.submit(ASKS, "0.01")
    asked = becomes_true(lambda: len(target.grants(job)) > 3, PATIENCE_S)
    granted = target.client.status()["grants"]
    return Seen(f"bound again: {renewed}, {granted} grants", renewed and asked and granted > 0)


def escaped_child(target: Target) -> Seen:
    target.start()
    mark = f"escaped-{os.getpid()}-{time.monotonic_ns()}"

    def alive() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if mark.encode() in words and ESCAPES.encode() not in words:
                    found.append(path.parent.name)
        return found

    job = target.submit(ESCAPES, mark)
    becomes_true(lambda: len(alive()) == 1, PATIENCE_S)
    shim = int((target.state / "attempts" / f"{job}.1" / "lock").read_text())
    os.kill(shim, signal.SIGKILL)
    state = target.wait_for(job, "failed", "done")
    left = alive()
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    return Seen(f"the job is {state}, {len(left)} processes left", (state, left) == ("failed", []))


def no_file_descriptors(target: Target) -> Seen:
    target.start()
    assert target.process is not None
    limit = ["prlimit", f"--pid={target.process.pid}"]
    url = urlsplit(target.client._address.url)
    subprocess.run([*limit, "--nofile=64:"], check=True)
    with contextlib.ExitStack() as stack:
        until_s = time.monotonic() + 5
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                one = socket.create_connection((str(url.hostname), url.port), 1)
                stack.callback(one.close)
            time.sleep(0.01)
    subprocess.run([*limit, "--nofile=4096:"], check=True)
    back = becomes_true(lambda: responding(target.state), PATIENCE_S)
    text = target.log.read_text()
    errors, traces = text.count('"level": "error"'), text.count("Traceback")
    seen = f"{errors} lines, {traces} tracebacks; responds again: {back}"
    return Seen(seen, back and errors <= 5 and traces == 0)


ATTACKS: dict[str, tuple[str, str, Callable[[Target], Seen]]] = {
    "hung-rank": (
        "stop rank 0 of one of two jobs (SIGSTOP)",
        "the other waits a few seconds; the job is retried",
        hung_rank,
    ),
    "frames": ("a worker sends frames as fast as it can", "2,000 events/s", flood_of_frames),
    "log-pipe": ("a job replaces its log by a pipe, 40 readers", "others run", log_is_a_pipe),
    "readers": ("500 clients list jobs all the time", "grants within 50 ms", busy_readers),
    "host": ("Host: evil.com and a trailing slash", "404", foreign_host),
    "token": ("requests without the token", "401", no_token),
    "full-disk": ("drain on a full disk, kill, restart", "507; the job runs on", full_disk),
    "lost-database": ("kill, delete state.db, restart", "exit 2; --adopt", lost_database),
    "garbled-database": ("random bytes in state.db", "one line, or it starts", garbled_database),
    "socket": ("delete gate.sock", "bound again", deleted_socket),
    "escape": ("a child leaves session and environment; kill the shim", "none left", escaped_child),
    "descriptors": ("no file descriptors left for 5 s", "a few lines", no_file_descriptors),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ATTACKS))
    names = parser.parse_args().names or list(ATTACKS)
    if unknown := [name for name in names if name not in ATTACKS]:
        parser.error(f"unknown attack {unknown[0]}; one of {', '.join(ATTACKS)}")
    # Policies as plain Python start at once and decide the same.
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    failed = 0
    print("| attack | expected | seen | |\n|---|---|---|---|")
    for name in names:
        title, expected, attack = ATTACKS[name]
        with tempfile.TemporaryDirectory(prefix="attack-") as folder:
            target = Target(Path(folder))
            try:
                seen = attack(target)
            except Exception as error:
                seen = Seen(f"{type(error).__name__}: {error}", False)
            finally:
                target.clear()
        failed += not seen.good
        print(
            f"| {title} | {expected} | {seen.text} | {'' if seen.good else 'WRONG'} |", flush=True
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
