"""What the gate adds to an all-reduce that nobody contends with, and how many grants it gives.

    python benchmarks/live/gate_latency.py [--requests N] [--jobs N] [--seconds N] [--processes N]

Through a real scheduler in a process of its own, which runs all the jobs, each on two nodes of its
own, so that the policy is asked about every message. Latency: one worker asks and waits, through
the client that training uses, while all other jobs are connected and idle. Throughput: all jobs ask
as fast as they are answered, from a few processes.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from headway.domain.errors import InputError, MachineError
from headway.gate import tokens
from headway.gate.protocol import VERSION, Done, Frames, Grant, Hello, Ping, Pong, Ready, encode
from headway.gate.tokens import job_token
from headway.live.api.client import Client, find
from headway.worker.address import Address
from headway.worker.client import GateClient

NODES_A_JOB = 2
PATIENCE_S = 120.0
SPAWN = multiprocessing.get_context("spawn")

_SETTINGS = """\
[serve]
folder = "{folder}"
policy = "{policy}"
api_port = 0
gate_host = "127.0.0.1"
gate_port = {port}

[executor]
kind = "local"
nodes = {nodes}
slots = 1
"""


@dataclass(frozen=True)
class Served:
    """A scheduler, and the jobs that it runs; these sleep, so that we can be their workers."""

    path: str
    port: int
    secret: str
    jobs: list[str]

    def address(self, number: int, kind: str) -> Address:
        """Return a job's way to the gate."""
        name = self.jobs[number]
        token = job_token(self.secret, name, 1)
        if kind == "unix":
            return Address(name, 1, token, unix=self.path)
        return Address(name, 1, token, host="127.0.0.1", port=self.port)


@contextlib.contextmanager
def scheduler(jobs: int, policy: str) -> Iterator[Served]:
    """Run `headway serve` with so many jobs, each on two nodes of its own."""
    with tempfile.TemporaryDirectory() as parent:
        folder, port = Path(parent, "state"), _free_port()
        config = Path(parent, "serve.toml")
        config.write_text(
            _SETTINGS.format(folder=folder, policy=policy, port=port, nodes=jobs * NODES_A_JOB)
        )
        command = [sys.executable, "-m", "headway", "serve", "--stop-jobs", "--config", str(config)]
        process = subprocess.Popen([*command, "--log-level", "error"])
        try:
            client = _until(lambda: _found(folder))
            spec = {"command": ["sleep", "3600"], "folder": "/", "gpus": NODES_A_JOB}
            names = [str(client.submit(spec)["job_id"]) for _ in range(jobs)]
            _until(lambda: client.status()["jobs"].get("running") == jobs)
            yield Served(str(folder / "gate.sock"), port, tokens.read(folder / "token"), names)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _found(folder: Path) -> Client | None:
    with contextlib.suppress(InputError):
        client = find(folder)
        client.status()
        return client
    return None


def _until(true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := true()):
        if time.monotonic() > deadline:
            raise MachineError("the scheduler did not come up.")
        time.sleep(0.1)
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connect(where: Address) -> socket.socket:
    """Return a connection that has been welcomed."""
    if where.unix:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(where.unix)
    else:
        connection = socket.create_connection((where.host, where.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(encode(Hello(VERSION, where.job, 1, 0, where.token)))
    connection.recv(5, socket.MSG_WAITALL)
    return connection


def converse(places: list[Address], seconds: float, asks: bool, told: Connection) -> None:
    """Hold connections, answering pings; if it asks, ask on each as fast as grants come."""
    selector = selectors.DefaultSelector()
    for place in places:
        connection = connect(place)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, Frames())
    told.send("connected")
    told.recv()
    grants, request = 0, 1
    for key in selector.get_map().values() if asks else ():
        connection = key.fileobj  # type: ignore[assignment]
        connection.send(encode(Ready(request, 1, 1)))
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (told.poll() and not asks):
        for key, _ in selector.select(0.1):
            connection, frames = key.fileobj, key.data  # type: ignore[assignment]
            frames.feed(connection.recv(4096))
            while (message := frames.take()) is not None:
                if isinstance(message, Grant):
                    grants += 1
                    next_one = message.request + 1
                    connection.send(encode(Done(message.request)) + encode(Ready(next_one, 1, 1)))
                elif isinstance(message, Ping):
                    connection.send(encode(Pong()))
    told.send(grants)


@contextlib.contextmanager
def conversation(places: list[Address], seconds: float, asks: bool) -> Iterator[Connection]:
    """Run `converse` in a process, connected."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=converse, args=(places, seconds, asks, there), daemon=True)
    process.start()
    assert here.recv() == "connected"
    yield here
    process.join()


def latencies_us(served: Served, kind: str, requests: int) -> list[float]:
    """Return what each request took, in microseconds."""
    others = [served.address(job, kind) for job in range(1, len(served.jobs))]
    with conversation(others, 600, asks=False) as idle:
        idle.send("go")
        client = GateClient(served.address(0, kind))
        client.wait_for_first_try(10)
        took = []
        for _ in range(requests):
            begin = time.perf_counter_ns()
            request = client.ask(1, 1)
            assert client.wait(request)
            took.append((time.perf_counter_ns() - begin) / 1e3)
            client.done(request)
            time.sleep(0.0005)
        client.close()
        idle.send("end")
        idle.recv()
    return took


def grants_per_s(served: Served, kind: str, processes: int, seconds: float) -> float:
    """Return how many requests are granted a second."""
    with contextlib.ExitStack() as stack:
        places = [served.address(job, kind) for job in range(len(served.jobs))]
        parts = [places[start::processes] for start in range(processes)]
        talks = [stack.enter_context(conversation(part, seconds, asks=True)) for part in parts]
        for talk in talks:
            talk.send("go")
        grants: int = sum(talk.recv() for talk in talks)
        return grants / seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--policy", default="headway")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, {given.jobs} jobs connected, policy {given.policy}")
    print("| socket | median, µs | p99, µs | grants/s |")
    print("|---|---|---|---|")
    with scheduler(given.jobs, given.policy) as served:
        for kind in ("unix", "tcp"):
            took = latencies_us(served, kind, given.requests)
            p99 = statistics.quantiles(took, n=100)[98]
            rate = grants_per_s(served, kind, given.processes, given.seconds)
            middle = statistics.median(took)
            print(f"| {kind} | {middle:.0f} | {p99:.0f} | {rate:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
