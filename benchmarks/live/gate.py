"""What the gate adds to an all-reduce that nobody contends with, and how many grants it gives.

    python benchmarks/live/gate.py [--requests 5000] [--jobs 100] [--seconds 3] [--processes 2]

The gate runs in a process of its own and grants at once. Latency: one worker asks and waits,
through the client that training uses, while all other jobs are connected and idle. Throughput: all
jobs ask as fast as they are answered, from a few processes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import resource
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from headway.live.gate import Gate
from headway.live.protocol import VERSION, Done, Frames, Grant, Hello, Ping, Pong, Ready, encode
from headway.live.tokens import job_token
from headway.worker.address import Address
from headway.worker.client import GateClient

SECRET = "benchmark" * 8
SPAWN = multiprocessing.get_context("spawn")


class AtOnce:
    """A listener that grants at once."""

    gate: Gate

    def worker_attached(self, job: str, attempt: int, rank: int) -> None: ...

    def message_ready(
        self, job: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        self.gate.grant(job, attempt, request)

    def message_done(self, job: str, attempt: int, request: int) -> None: ...

    def compute_ready(self, job: str, attempt: int, rank: int, request: int) -> None: ...

    def compute_done(self, job: str, attempt: int, rank: int, request: int) -> None: ...

    def iteration_done(
        self,
        job: str,
        attempt: int,
        iterations: int,
        forward_ns: int,
        backward_ns: int,
        gradient_bytes: int,
    ) -> None: ...

    def worker_lost(self, job: str, attempt: int, rank: int) -> None: ...


def serve(path: str, ready: Connection) -> None:
    """Run a gate until the parent ends."""

    async def run() -> None:
        listener = AtOnce()
        listener.gate = Gate(listener, SECRET)
        await listener.gate.start(unix=path, tcp=("127.0.0.1", 0))
        ready.send(listener.gate.port)
        asyncio.get_running_loop().add_reader(ready.fileno(), done.set)
        await done.wait()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        ready.send(usage.ru_utime + usage.ru_stime)
        await listener.gate.close()

    done = asyncio.Event()
    asyncio.run(run())


@contextlib.contextmanager
def gate() -> Iterator[tuple[str, int]]:
    """Run a gate in a process; give its path and its port."""
    with tempfile.TemporaryDirectory() as folder:
        here, there = SPAWN.Pipe()
        path = str(Path(folder, "gate"))
        process = SPAWN.Process(target=serve, args=(path, there), daemon=True)
        process.start()
        try:
            yield path, here.recv()
        finally:
            here.send(None)
            process.join()


def address(job: int, kind: str, path: str, port: int) -> Address:
    """Return a job's way to the gate."""
    name = f"job {job}"
    token = job_token(SECRET, name, 1)
    if kind == "unix":
        return Address(name, 1, token, unix=path)
    return Address(name, 1, token, host="127.0.0.1", port=port)


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


def latencies_us(kind: str, jobs: int, requests: int) -> list[float]:
    """Return what each request took, in microseconds."""
    with gate() as (path, port):
        others = [address(job, kind, path, port) for job in range(1, jobs)]
        with conversation(others, 600, asks=False) as idle:
            idle.send("go")
            client = GateClient(address(0, kind, path, port))
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


def grants_per_s(kind: str, jobs: int, processes: int, seconds: float) -> float:
    """Return how many requests are granted a second."""
    with gate() as (path, port), contextlib.ExitStack() as stack:
        places = [address(job, kind, path, port) for job in range(jobs)]
        parts = [places[start::processes] for start in range(processes)]
        talks = [stack.enter_context(conversation(part, seconds, asks=True)) for part in parts]
        for talk in talks:
            talk.send("go")
        grants: int = sum(talk.recv() for talk in talks)
        return grants / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, {given.jobs} jobs connected")
    print("| socket | median, µs | p99, µs | grants/s |")
    print("|---|---|---|---|")
    for kind in ("unix", "tcp"):
        took = latencies_us(kind, given.jobs, given.requests)
        p99 = statistics.quantiles(took, n=100)[98]
        rate = grants_per_s(kind, given.jobs, given.processes, given.seconds)
        print(f"| {kind} | {statistics.median(took):.0f} | {p99:.0f} | {rate:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
