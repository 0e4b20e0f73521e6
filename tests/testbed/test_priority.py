"""Marked packets, such as the gate's, overtake packets in a full queue."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from headway import testbed as testbeds
from testbed.machine import counters, ends, inside
from waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]

PACKETS = 60
ASKED = 50

RECEIVE = f"""
import socket
with socket.socket(type=socket.SOCK_DGRAM) as receiver:
    receiver.bind(("0.0.0.0", 5000))
    receiver.settimeout({PATIENCE_S})
    print("ready", flush=True)
    print(*(receiver.recv(2000)[0] for _ in range({PACKETS} + 1)))
"""

SEND = """
import socket, sys
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    sender.connect((sys.stdin.readline().strip(), 5000))
    for _ in range({packets}):
        sender.send(bytes(1400))
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, {tos})
    sender.send(b"\\1")
"""

GATE = """
import asyncio
from headway.gate.address import GateAddress
from headway.gate.server import Gate
from gate.threaded_gate import SECRET, Recorder

async def serve():
    recorder = Recorder()
    recorder.gate = Gate(recorder, SECRET)
    await recorder.gate.start(GateAddress(host="0.0.0.0"))
    print(recorder.gate.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""

WORKER = f"""
import sys
from headway.gate.address import GateAddress
from headway.gate.environment import WorkerEnvironment
from headway.gate.tokens import job_token
from headway.worker.client import GateClient
from gate.threaded_gate import SECRET

host, port = sys.stdin.readline().split()
gate = GateAddress(host=host, port=int(port))
client = GateClient(WorkerEnvironment(gate, "job", 1, job_token(SECRET, "job", 1)))
client.wait_for_first_try({PATIENCE_S})
print("connected", client.connected, flush=True)
for _ in range({ASKED}):
    sys.stdin.readline()
    print("granted", client.wait_for_grant(client.message_ready(1, 1)), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def slow(name: str) -> testbeds.Testbed:
    """Return a testbed of two hosts whose links need most of a second for all packets."""
    testbed = testbeds.Testbed(name, hosts=2, rate_mbit=1)
    assert testbeds.up(testbed)
    return testbed


def position_of_the_last(testbed: testbeds.Testbed, tos: int) -> int:
    """Send a burst, the last packet with a type of service; return how many arrive before it."""
    with inside(testbed, 2, RECEIVE) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        with inside(testbed, 1, SEND.format(packets=PACKETS, tos=tos)) as sender:
            sender.communicate(f"{testbed.address(2)}\n")
        assert sender.returncode == 0
        return receiver.stdout.readline().split().index("1")


def test_a_marked_packet_overtakes_waiting_packets(slow: testbeds.Testbed) -> None:
    # Retried: if the sender itself is delayed, no packet waits any more.
    eventually(lambda: position_of_the_last(slow, 0xC0) < PACKETS)


def test_an_unmarked_packet_waits_in_the_queue(slow: testbeds.Testbed) -> None:
    assert position_of_the_last(slow, 0) == PACKETS


def packets(testbed: testbeds.Testbed, classid: str) -> list[int]:
    """Return the number of packets of a class sent by each end of both links."""
    found = [
        re.search(r"Sent \d+ bytes (\d+) pkt", counters(namespace, device, classid))
        for host in (1, 2)
        for namespace, device in ends(testbed, host)
    ]
    return [int(one[1]) for one in found if one is not None]


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def write_line(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{words}\n")
    process.stdin.flush()


def test_packets_of_workers_and_of_the_gate_are_marked_end_to_end(
    plain: testbeds.Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with inside(plain, 1, GATE) as gate, inside(plain, 2, WORKER) as worker:
        try:
            write_line(worker, f"{plain.address(1)} {read_line(gate)}")
            assert read_line(worker) == "connected True"
            control, data = packets(plain, "1:10"), packets(plain, "1:20")
            for _ in range(ASKED):
                write_line(worker, "")
                assert read_line(worker) == "granted True"
            control_after, data_after = packets(plain, "1:10"), packets(plain, "1:20")
        finally:
            gate.kill()
            worker.kill()
    assert all(b - a >= ASKED for a, b in zip(control, control_after, strict=True))
    # A host's ARP packets are not marked.
    assert all(b - a < ASKED for a, b in zip(data, data_after, strict=True))
