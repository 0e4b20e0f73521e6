"""Measures the latency that the gate adds to an uncontended all-reduce, and grants per second.

    python benchmarks/live/gate_latency.py [--requests N] [--jobs N] [--seconds N] [--processes N]
                                           [--readers N]

A real scheduler in its own process runs all the jobs, each on two nodes of its own, so that the
policy is asked about every message. Latency: one worker sends requests and waits for the grants
with the client that training uses, while all other jobs are connected and idle. Throughput: a few
processes send requests for all jobs, each as soon as the previous one is granted. With readers,
the latency is measured again while so many clients with the token ask the API for all jobs and for
the status, each again as soon as it has an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from scheduler_process import START_TIMEOUT_S, running_scheduler, wait_until

from headway.gate import frames, tokens
from headway.gate.address import GateAddress
from headway.gate.environment import WorkerEnvironment
from headway.gate.protocol import VERSION, FrameReader, encode
from headway.gate.tokens import job_token
from headway.worker.client import GateClient

NODES_PER_JOB = 2
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
    """A scheduler and its jobs, which only sleep: the benchmark connects as their workers."""

    path: str
    port: int
    secret: str
    jobs: list[str]
    api: tuple[str, int]

    def environment(self, number: int, kind: str) -> WorkerEnvironment:
        """Return the environment of a job's worker."""
        job = self.jobs[number]
        unix, tcp = GateAddress(path=self.path), GateAddress(host="127.0.0.1", port=self.port)
        gate = unix if kind == "unix" else tcp
        return WorkerEnvironment(gate, job, 1, job_token(self.secret, job, 1))


@contextlib.contextmanager
def scheduler(jobs: int, policy: str) -> Iterator[Served]:
    """Run a scheduler with this many jobs, each on two nodes of its own."""
    with tempfile.TemporaryDirectory() as parent:
        folder, port = Path(parent, "state"), _free_port()
        settings = _SETTINGS.format(
            folder=folder, policy=policy, port=port, nodes=jobs * NODES_PER_JOB
        )
        with running_scheduler(folder, settings, "--log-level", "error") as client:
            spec = {"command": ["sleep", "3600"], "folder": "/", "gpus": NODES_PER_JOB}
            ids = [str(client.submit(spec)["job_id"]) for _ in range(jobs)]
            wait_until(
                lambda: client.status()["jobs"].get("running") == jobs,
                START_TIMEOUT_S,
                "not all jobs started",
            )
            address = urlsplit(json.loads((folder / "address.json").read_text())["url"])
            api = str(address.hostname), int(address.port or 0)
            yield Served(str(folder / "gate.sock"), port, tokens.read(folder / "token"), ids, api)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def connect(environment: WorkerEnvironment) -> socket.socket:
    """Return a connection that the gate has accepted."""
    gate = environment.gate
    if gate.path:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(gate.path)
    else:
        connection = socket.create_connection((gate.host, gate.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(encode(frames.Hello(VERSION, environment.job_id, 1, 0, environment.token)))
    connection.recv(5, socket.MSG_WAITALL)
    return connection


def converse(
    workers: list[WorkerEnvironment], seconds: float, sends_requests: bool, control: Connection
) -> None:
    """Hold connections and answer pings; optionally send a request after each grant."""
    selector = selectors.DefaultSelector()
    for worker in workers:
        connection = connect(worker)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, FrameReader())
    control.send("connected")
    control.recv()
    grants, request = 0, 1
    for key in selector.get_map().values() if sends_requests else ():
        connection = key.fileobj  # type: ignore[assignment]
        connection.send(encode(frames.Ready(request, 1, 1)))
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (control.poll() and not sends_requests):
        for key, _ in selector.select(0.1):
            connection, reader = key.fileobj, key.data  # type: ignore[assignment]
            reader.feed(connection.recv(4096))
            while (frame := reader.next()) is not None:
                if isinstance(frame, frames.Grant):
                    grants += 1
                    done = frames.Done(frame.request)
                    connection.send(encode(done) + encode(frames.Ready(frame.request + 1, 1, 1)))
                elif isinstance(frame, frames.Ping):
                    connection.send(encode(frames.Pong()))
    control.send(grants)


@contextlib.contextmanager
def conversation(
    workers: list[WorkerEnvironment], seconds: float, *, sends_requests: bool
) -> Iterator[Connection]:
    """Run `converse` in a process; its connections exist when this is entered."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(
        target=converse, args=(workers, seconds, sends_requests, there), daemon=True
    )
    process.start()
    assert here.recv() == "connected"
    yield here
    process.join()


def latencies_us(served: Served, kind: str, requests: int) -> list[float]:
    """Return the latency of each request, in microseconds."""
    others = [served.environment(job, kind) for job in range(1, len(served.jobs))]
    with conversation(others, 600, sends_requests=False) as idle:
        idle.send("go")
        client = GateClient(served.environment(0, kind))
        client.wait_for_first_try(10)
        latencies = []
        for _ in range(requests):
            begin = time.perf_counter_ns()
            request = client.message_ready(1, 1)
            assert client.wait_for_grant(request)
            latencies.append((time.perf_counter_ns() - begin) / 1e3)
            client.message_done(request)
            time.sleep(0.0005)
        client.close()
        idle.send("end")
        idle.recv()
    return latencies


def read_api(served: Served, readers: int, control: Connection) -> None:
    """Ask the API with this many clients until told to stop; send the number of answers."""
    counts = [0]

    async def read(path: str) -> None:
        host, port = served.api
        text = f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.secret}\r\n\r\n"
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(host, port, limit=2**24)
                while True:
                    writer.write(text.encode())
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = re.search(rb"content-length: (\d+)", head)
                    assert length is not None
                    await reader.readexactly(int(length[1]))
                    counts[0] += 1

    async def main() -> None:
        paths = ("/v1/jobs", "/v1/status")
        tasks = [asyncio.create_task(read(paths[one % 2])) for one in range(readers)]
        while not control.poll():
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()

    control.send("reading")
    asyncio.run(main())
    control.send(counts[0])


def latencies_with_readers_us(
    served: Served, requests: int, readers: int
) -> tuple[list[float], float]:
    """Return the latencies on the Unix socket, and the API's answers per second."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=read_api, args=(served, readers, there), daemon=True)
    process.start()
    assert here.recv() == "reading"
    time.sleep(2)
    began = time.monotonic()
    latencies = latencies_us(served, "unix", requests)
    here.send("end")
    answers: int = here.recv()
    process.join()
    return latencies, answers / (time.monotonic() - began + 2)


def grants_per_s(served: Served, kind: str, processes: int, seconds: float) -> float:
    """Return how many requests are granted per second."""
    with contextlib.ExitStack() as stack:
        workers = [served.environment(job, kind) for job in range(len(served.jobs))]
        parts = [workers[start::processes] for start in range(processes)]
        talks = [
            stack.enter_context(conversation(part, seconds, sends_requests=True)) for part in parts
        ]
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
    parser.add_argument("--readers", type=int, default=0)
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, {given.jobs} jobs connected, policy {given.policy}")
    print("| socket | median, µs | p99, µs | grants/s |")
    print("|---|---|---|---|")
    with scheduler(given.jobs, given.policy) as served:
        for kind in ("unix", "tcp"):
            latencies = latencies_us(served, kind, given.requests)
            p99 = statistics.quantiles(latencies, n=100)[98]
            rate = grants_per_s(served, kind, given.processes, given.seconds)
            median = statistics.median(latencies)
            print(f"| {kind} | {median:.0f} | {p99:.0f} | {rate:,.0f} |", flush=True)
        if given.readers:
            latencies, rate = latencies_with_readers_us(served, given.requests, given.readers)
            p99 = statistics.quantiles(latencies, n=100)[98]
            median = statistics.median(latencies)
            print(f"| unix, {given.readers} readers | {median:.0f} | {p99:.0f} | |")
            print(f"\nThe API gave {rate:,.0f} answers/s.")


if __name__ == "__main__":
    main()
