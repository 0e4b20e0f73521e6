"""Measures what open pages cost the gate, and how old what they show is.

    python benchmarks/live/live_pages.py [--nodes N] [--jobs N] [--changes N] [--pages N]
                                         [--seconds N]

A scheduler in its own process, with real API and gate, and an executor that starts nothing: its
nodes have 8 slots, and each job has 12 slots to itself, so that neighbours contend. Latency: one
worker asks to send and waits for the grants with the client that training uses, every 2 ms.
Changes: a process sends messages and reports iterations for all other jobs; each start and end of a
message and each iteration is a change. Pages: a process reads `/v1/live` as so many pages would,
and asks `/v1/past` about the latest minutes when they open, and every 20 s. Iterations are numbered
by the time of their report: a reader sees how old that is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import json
import multiprocessing
import os
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gate_latency import connect
from scheduler_process import START_TIMEOUT_S, responding, wait_until

from headway.gate import frames, tokens
from headway.gate.address import GateAddress
from headway.gate.environment import WorkerEnvironment
from headway.gate.protocol import FrameReader, encode
from headway.gate.sockets import bind_tcp
from headway.live.api.client import Client
from headway.live.assembly import Scheduler
from headway.live.core.events import JobSpec, Slot
from headway.live.daemon.recovery import Unknown
from headway.live.daemon.settings import LOOPBACK, ServeSettings
from headway.live.daemon.state_folder import locked_folder
from headway.live.daemon.state_store import StateStore
from headway.live.executors import Attempt, ExecutorHandler, ExecutorNode, LaunchedAttempt
from headway.worker.client import GateClient

SLOTS = 8
RANKS = 12
MESSAGE_BYTES = 2**20
SENDING_S = 0.1
SETTLE_S = 3.0
PAST_S, PAST_EVERY_S = 128, 20
"""Stretches of the past that pages ask for, and how often."""
SPAWN = multiprocessing.get_context("spawn")


class NoProcesses:
    """An executor whose attempts are no processes; see `headway.live.executors.Executor`."""

    def __init__(self, nodes: int) -> None:
        self._nodes = [
            ExecutorNode(f"node{number}", LOOPBACK, SLOTS, 2**30) for number in range(nodes)
        ]

    async def start(self, handler: ExecutorHandler) -> Sequence[ExecutorNode]:
        return self._nodes

    async def find_unknown(self, known: Collection[Attempt]) -> Sequence[LaunchedAttempt]:
        return []

    async def recover(self, known: Sequence[Attempt]) -> Sequence[Attempt]:
        return []

    async def launch(
        self, attempt: Attempt, spec: JobSpec, slots: Sequence[Slot], environment: Mapping[str, str]
    ) -> None:
        pass

    async def stop(self, attempt: Attempt) -> None:
        pass

    def log(self, attempt: Attempt, rank: int) -> Path:
        return Path(os.devnull)

    async def close(self) -> None:
        pass


def serve(path: Path, nodes: int, policy: str) -> None:
    """Run a scheduler until SIGTERM."""
    with locked_folder(path) as folder, contextlib.closing(bind_tcp(LOOPBACK, 0)) as listening:
        token, store = tokens.create(folder.token), StateStore(folder.database)
        settings = ServeSettings(folder=path, policy=policy)
        scheduler = Scheduler(settings, folder, token, policy, store, NoProcesses(nodes))
        asyncio.run(scheduler.run(listening, None, False, Unknown.FORGET))


@dataclass(frozen=True)
class Served:
    """A scheduler and its jobs."""

    process: int
    gate: str
    secret: str
    jobs: list[str]
    api: tuple[str, int]
    began_s: float

    def worker(self, number: int) -> WorkerEnvironment:
        """Return the environment of rank 0 of a job."""
        job, gate = self.jobs[number], GateAddress(path=self.gate)
        return WorkerEnvironment(gate, job, 1, tokens.job_token(self.secret, job, 1))


@contextlib.contextmanager
def scheduler(nodes: int, jobs: int, policy: str) -> Iterator[Served]:
    """Run a scheduler with this many nodes and jobs."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "state")
        process = SPAWN.Process(target=serve, args=(folder, nodes, policy))
        process.start()
        began_s = time.monotonic()
        wait_until(lambda: responding(folder), START_TIMEOUT_S, "the scheduler did not start")
        client = responding(folder)
        assert client is not None
        assert process.pid is not None
        spec = {"command": ["train"], "folder": "/", "gpus": RANKS}
        ids = [str(client.submit(spec)["job_id"]) for _ in range(jobs)]
        wait_until(lambda: running(client) == jobs, START_TIMEOUT_S, "not all jobs started")
        address = urlsplit(json.loads((folder / "address.json").read_text())["url"])
        api = str(address.hostname), int(address.port or 0)
        secret = tokens.read(folder / "token")
        try:
            yield Served(process.pid, str(folder / "gate.sock"), secret, ids, api, began_s)
        finally:
            process.terminate()
            process.join()


def running(client: Client) -> int:
    count: int = client.status()["jobs"]["running"]
    return count


def milliseconds() -> int:
    """Return a time that all processes share and no iteration count reaches."""
    return time.monotonic_ns() // 10**6


def change(workers: list[WorkerEnvironment], changes_per_s: float, control: Connection) -> None:
    """Send messages and report iterations until told to stop; send the number of changes."""
    selector = selectors.DefaultSelector()
    idle: list[tuple[socket.socket, int]] = []
    due: list[tuple[float, int, socket.socket, int]] = []
    changes = 0
    for worker in workers:
        connection = connect(worker)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, FrameReader())
        idle.append((connection, 1))
    idle.reverse()
    control.send("connected")
    control.recv()
    began_s, asked = time.monotonic(), 0
    while not control.poll():
        now_s = time.monotonic()
        while idle and asked < (now_s - began_s) * changes_per_s / 3:
            connection, request = idle.pop()
            connection.send(encode(frames.Ready(request, MESSAGE_BYTES, MESSAGE_BYTES)))
            asked += 1
        while due and due[0][0] <= now_s:
            _, _, connection, request = heapq.heappop(due)
            iteration = frames.Iteration(milliseconds(), 0, 0, 0)
            connection.send(encode(frames.Done(request)) + encode(iteration))
            changes += 2
            idle.insert(0, (connection, request + 1))
        for key, _ in selector.select(0.002):
            connection, reader = key.fileobj, key.data  # type: ignore[assignment]
            reader.feed(connection.recv(4096))
            while (frame := reader.next()) is not None:
                if isinstance(frame, frames.Grant):
                    changes += 1
                    number = connection.fileno()
                    heapq.heappush(due, (now_s + SENDING_S, number, connection, frame.request))
                elif isinstance(frame, frames.Ping):
                    connection.send(encode(frames.Pong()))
    control.send(changes / (time.monotonic() - began_s))


def read_pages(served: Served, pages: int, control: Connection) -> None:
    """Read as this many pages until told to stop; send what was seen."""
    ages_ms: list[float] = []
    counts = {"events": 0, "bytes": 0, "ended": 0, "snapshot_bytes": 0, "past": 0}

    async def read(number: int) -> None:
        reader, writer = await asyncio.open_connection(*served.api, limit=2**26)
        head = f"GET /v1/live HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.secret}\r\n\r\n"
        writer.write(head.encode())
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size = int((await reader.readuntil(b"\r\n")).strip(), 16)
                data = (await reader.readexactly(size + 2))[:-2]
                counts["bytes"] += size
                if data.startswith(b"retry"):
                    counts["snapshot_bytes"] = size
                elif data.startswith(b"event: changes"):
                    counts["events"] += 1
                    if number == 0:
                        take(json.loads(data.partition(b"data: ")[2]))
        counts["ended"] += 1

    async def ask_past() -> None:
        """Ask for the latest minutes as a page does."""
        while True:
            now_s = int(time.monotonic() - served.began_s)
            for number in range(max(0, now_s // PAST_S - 1), now_s // PAST_S + 1):
                reader, writer = await asyncio.open_connection(*served.api)
                times = f"from_ns={number * PAST_S * 10**9}&to_ns={(number + 1) * PAST_S * 10**9}"
                writer.write(
                    f"GET /v1/past?{times} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
                    f"authorization: Bearer {served.secret}\r\n\r\n".encode()
                )
                assert (await reader.read()).startswith(b"HTTP/1.1 200")
                writer.close()
                counts["past"] += 1
            await asyncio.sleep(PAST_EVERY_S)

    def take(values: dict[str, Any]) -> None:
        now = milliseconds()
        ages_ms.extend(now - job["iterations"] for job in values.get("jobs", ()))

    async def main() -> None:
        tasks = [asyncio.create_task(read(number)) for number in range(pages)]
        tasks += [asyncio.create_task(ask_past()) for _ in range(pages)]
        began_s = time.monotonic()
        while not control.poll():
            await asyncio.sleep(0.1)
        seconds = time.monotonic() - began_s
        for task in tasks:
            task.cancel()
        control.send({"ages_ms": ages_ms, "seconds": seconds, **counts})

    control.send("connected")
    control.recv()
    asyncio.run(main())


@contextlib.contextmanager
def helper(target: Any, *arguments: Any) -> Iterator[Connection]:
    """Run a function in a process until the end of the block; it sends its findings then."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=target, args=(*arguments, there), daemon=True)
    process.start()
    assert here.recv() == "connected"
    here.send("go")
    yield here
    process.join()


def latencies_us(worker: WorkerEnvironment, seconds: float) -> list[float]:
    """Return the latencies of requests that are granted at once, in microseconds."""
    client = GateClient(worker)
    client.wait_for_first_try(10)
    found, end_s = [], time.monotonic() + seconds
    while time.monotonic() < end_s:
        begin_ns = time.perf_counter_ns()
        request = client.message_ready(1, 1)
        assert client.wait_for_grant(request)
        found.append((time.perf_counter_ns() - begin_ns) / 1e3)
        client.message_done(request)
        time.sleep(0.002)
    client.close()
    return found


def cpu_s(process: int) -> tuple[float, float]:
    """Return the CPU time of a process, and that of its first thread, which runs the gate."""
    times = []
    for path in (f"/proc/{process}/stat", f"/proc/{process}/task/{process}/stat"):
        fields = Path(path).read_text().rpartition(")")[2].split()
        times.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    return times[0], times[1]


def measure(served: Served, changes: float, pages: int, seconds: float) -> str:
    """Return a row of the table."""
    with contextlib.ExitStack() as stack:
        others = [served.worker(number) for number in range(1, len(served.jobs))]
        changing = stack.enter_context(helper(change, others, changes)) if changes else None
        reading = stack.enter_context(helper(read_pages, served, pages)) if pages else None
        time.sleep(SETTLE_S)
        before, began_s = cpu_s(served.process), time.monotonic()
        latencies = latencies_us(served.worker(0), seconds)
        elapsed_s = time.monotonic() - began_s
        shares = [
            100 * (after - one) / elapsed_s
            for after, one in zip(cpu_s(served.process), before, strict=True)
        ]
        stream = ["", "", ""]
        if reading is not None:
            reading.send("end")
            seen = reading.recv()
            rate = seen["events"] / seen["seconds"] / pages
            size = (seen["bytes"] - pages * seen["snapshot_bytes"]) / max(1, seen["events"])
            stream[0] = f"{rate:.1f} of {size / 1e3:.0f} kB"
            if ages := sorted(seen["ages_ms"]):
                stream[1] = f"{statistics.median(ages):.0f}"
                stream[2] = f"{ages[len(ages) * 99 // 100]:.0f}"
            assert not seen["ended"], "a page was dropped"
            assert seen["past"], "no page got the past"
        made = 0.0
        if changing is not None:
            changing.send("end")
            made = changing.recv()
    p99 = statistics.quantiles(latencies, n=100)[98]
    median = statistics.median(latencies)
    figures = [f"{median:.0f}", f"{p99:.0f}", *stream, *(f"{share:.0f}%" for share in shares)]
    return f"| {made:,.0f} | {pages} | {' | '.join(figures)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--changes", type=float, default=2000.0)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--policy", default="ff+srsf+ada-dual")
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, {given.nodes} nodes, {given.jobs} jobs, policy {given.policy}")
    print(
        "| changes/s | pages | grant, median, µs | p99, µs | events/s of each page "
        "| age, median, ms | p99, ms | scheduler's CPU | of that the gate's |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with scheduler(given.nodes, given.jobs, given.policy) as served:
        for changes in (0.0, given.changes):
            for pages in (0, 1, given.pages):
                print(measure(served, changes, pages, given.seconds), flush=True)


if __name__ == "__main__":
    main()
