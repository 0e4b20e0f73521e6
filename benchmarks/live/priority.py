"""Measures requests to the gate while gradients saturate the link, with and without packet marks.

    sudo python benchmarks/live/priority.py [--requests 1000] [--rate-mbit 200]

On a testbed of two hosts, the gate runs on host 1 and grants immediately; a worker on host 2 sends
requests with the client that training uses. Two jobs with a process on each host saturate the link
both ways with all-reduces of 32 MB. Without marks, the gate's packets have no priority.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from asyncio.trsock import TransportSocket
from collections.abc import Iterator

from headway import testbed as testbeds
from headway.domain.errors import HeadwayError
from headway.gate import connections
from headway.gate.address import GateAddress
from headway.gate.environment import WorkerEnvironment
from headway.gate.frames import Profile
from headway.gate.server import Gate
from headway.gate.sockets import prioritize
from headway.gate.tokens import job_token
from headway.interrupts import handle_signals
from headway.testbed.shaping import DATA
from headway.testbed.system import check_prerequisites, query
from headway.worker import handshake
from headway.worker.client import GateClient

SECRET = "benchmark" * 8
JOBS = 2
MESSAGE_BYTES = 32_000_000
FIRST_PORT = 29500
PAUSE_S = 0.002
"""Between requests, so that no two of them wait in the same queue."""


class GrantAll:
    """A gate's handler that grants every request at once."""

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

    def profiled(self, job: str, attempt: int, profile: Profile) -> None: ...

    def worker_lost(self, job: str, attempt: int, rank: int, hung: bool) -> None: ...


def prioritize_nothing(connection: socket.socket | TransportSocket) -> None:
    """Do as `prioritize`, and remove the marks again."""
    prioritize(connection)
    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 0)


def serve(host: str) -> None:
    """Run a gate on host 1 until this process is killed."""

    async def run() -> None:
        handler = GrantAll()
        handler.gate = Gate(handler, SECRET)
        await handler.gate.start(GateAddress(host=host))
        print(handler.gate.port, flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


def ask(host: str, port: int, requests: int) -> None:
    """Send requests from host 2 and print their latencies in milliseconds."""
    gate = GateAddress(host=host, port=port)
    client = GateClient(WorkerEnvironment(gate, "job", 1, job_token(SECRET, "job", 1)))
    client.wait_for_first_try(30)
    took = []
    for _ in range(requests):
        begin = time.perf_counter_ns()
        request = client.message_ready(1, 1)
        if not client.wait_for_grant(request):
            sys.exit("the gate is gone")
        took.append((time.perf_counter_ns() - begin) / 1e6)
        client.message_done(request)
        time.sleep(PAUSE_S)
    client.close()
    print(json.dumps(took), flush=True)


def fill(host: str, port: int, rank: int) -> None:
    """Run all-reduces on either host without end, as one of a job's two processes."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://{host}:{port}", rank=rank, world_size=2)
    gradients = torch.zeros(MESSAGE_BYTES // 4)
    dist.all_reduce(gradients)
    print("filling", flush=True)
    # One of the two processes is killed before the other.
    with contextlib.suppress(RuntimeError):
        while True:
            dist.all_reduce(gradients)


@contextlib.contextmanager
def running(
    testbed: testbeds.Testbed, host: int, *words: object
) -> Iterator[subprocess.Popen[str]]:
    """Run a part of this script on a host."""
    line = [sys.executable, __file__, "--part", *map(str, words)]
    with subprocess.Popen(
        testbeds.command(testbed, host, line),
        # torch would warn that the hosts have no names.
        env=os.environ | testbed.environment(host) | {"TORCH_CPP_LOG_LEVEL": "ERROR"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def filled(testbed: testbeds.Testbed) -> Iterator[None]:
    """Saturate the link between the hosts in both directions."""
    with contextlib.ExitStack() as stack:
        parts = [
            stack.enter_context(
                running(testbed, rank + 1, "fill", testbed.address(1), FIRST_PORT + job, rank)
            )
            for job in range(JOBS)
            for rank in range(2)
        ]
        for part in parts:
            said(part)
        yield


def said(process: subprocess.Popen[str]) -> str:
    """Return a process's next line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit("a process on a host has exited, see above")
    return line


def sent_bytes(testbed: testbeds.Testbed, host: int) -> int:
    """Return the bytes a host has sent, without control traffic."""
    words = ("-statistics", "class", "show", "dev", "eth0", "classid", DATA)
    found = re.search(r"Sent (\d+) bytes", query("tc", *words, namespace=testbed.namespace(host)))
    assert found is not None
    return int(found[1])


def row(testbed: testbeds.Testbed, link: str, marks: str, requests: int) -> None:
    """Measure and print a row of the table."""
    with running(testbed, 1, "serve", marks, testbed.address(1)) as gate:
        port = int(said(gate))
        before, begin = [sent_bytes(testbed, host) for host in testbed.numbers], time.monotonic()
        with running(testbed, 2, "ask", marks, testbed.address(1), port, requests) as worker:
            took = json.loads(said(worker))
        span_s = time.monotonic() - begin
        after = [sent_bytes(testbed, host) for host in testbed.numbers]
    p99 = statistics.quantiles(took, n=100)[98]
    least = min(b - a for a, b in zip(before, after, strict=True)) * 8 / 1e6 / span_s
    print(
        f"| {link} | {marks} | {statistics.median(took):.2f} | {p99:.2f} | {least:.0f} |",
        flush=True,
    )


def part(words: list[str]) -> None:
    """Run the part of this script that runs on a host."""
    name, *rest = words
    if name == "fill":
        fill(rest[0], int(rest[1]), int(rest[2]))
        return
    marks, host, *numbers = rest
    if marks == "no":
        for module in (connections, handshake):
            module.prioritize = prioritize_nothing  # type: ignore[attr-defined]
    if name == "serve":
        serve(host)
    else:
        ask(host, *map(int, numbers))


def measure(testbed: testbeds.Testbed, requests: int) -> None:
    """Print the table, measured on a new testbed."""
    try:
        testbeds.up(testbed)
        print(f"{os.cpu_count()} cores, {testbed}")
        print("| link | marks | median, ms | p99, ms | gradients each way, Mbit/s |")
        print("|---|---|---|---|---|")
        row(testbed, "idle", "yes", requests)
        with filled(testbed):
            row(testbed, "full", "yes", requests)
            row(testbed, "full", "no", requests)
    finally:
        testbeds.down(testbed.name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rate-mbit", type=int, default=200)
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        part(given.part)
        return
    if given.requests < 2:
        parser.error("--requests: at least 2")
    handle_signals()
    try:
        check_prerequisites()
        name = f"prio-{os.getpid()}"
        measure(testbeds.Testbed(name, hosts=2, rate_mbit=given.rate_mbit), given.requests)
    except HeadwayError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
