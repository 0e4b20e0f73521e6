"""Marked packets, which the gate's are, pass those that wait in a full queue."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from headway import testbed as testbeds
from testbed.looking import PATIENCE_S, counters, ends, eventually, inside

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
from headway.gate.server import Gate
from gate.gates import SECRET, Recorder

async def serve():
    recorder = Recorder()
    recorder.gate = Gate(recorder, SECRET)
    await recorder.gate.start(tcp=("0.0.0.0", 0))
    print(recorder.gate.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""

WORKER = f"""
import sys
from headway.gate.tokens import job_token
from headway.worker.address import Address
from headway.worker.client import GateClient
from gate.gates import PATIENCE_S, SECRET

host, port = sys.stdin.readline().split()
client = GateClient(Address("job", 1, job_token(SECRET, "job", 1), "", host, int(port)))
client.wait_for_first_try(PATIENCE_S)
print("connected", client.connected, flush=True)
for _ in range({ASKED}):
    sys.stdin.readline()
    print("granted", client.wait(client.ask(1, 1)), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def slow(name: str) -> testbeds.Testbed:
    """Return a testbed of two hosts whose links take most of a second for all packets."""
    testbed = testbeds.Testbed(name, hosts=2, rate_mbit=1)
    assert testbeds.up(testbed)
    return testbed


def place_of_the_last(testbed: testbeds.Testbed, tos: int) -> int:
    """Send packets at once, the last with a type of service; return how many came before it."""
    with inside(testbed, 2, RECEIVE) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        with inside(testbed, 1, SEND.format(packets=PACKETS, tos=tos)) as sender:
            sender.communicate(f"{testbed.address(2)}\n")
        assert sender.returncode == 0
        return receiver.stdout.readline().split().index("1")


def test_a_marked_packet_overtakes_those_that_wait(slow: testbeds.Testbed) -> None:
    # Of those before it none waits any more if the sender itself had to wait for a processor.
    assert eventually(lambda: place_of_the_last(slow, 0xC0) < PACKETS)


def test_an_unmarked_packet_waits_for_its_turn(slow: testbeds.Testbed) -> None:
    assert place_of_the_last(slow, 0) == PACKETS


def packets(testbed: testbeds.Testbed, classid: str) -> list[int]:
    """Return how many packets of a class have left each end of both links."""
    found = [
        re.search(r"Sent \d+ bytes (\d+) pkt", counters(namespace, device, classid))
        for host in (1, 2)
        for namespace, device in ends(testbed, host)
    ]
    return [int(one[1]) for one in found if one is not None]


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{words}\n")
    process.stdin.flush()


def test_what_workers_and_the_gate_say_is_marked_all_the_way(
    plain: testbeds.Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with inside(plain, 1, GATE) as gate, inside(plain, 2, WORKER) as worker:
        try:
            tell(worker, f"{plain.address(1)} {hear(gate)}")
            assert hear(worker) == "connected True"
            control, data = packets(plain, "1:10"), packets(plain, "1:20")
            for _ in range(ASKED):
                tell(worker, "")
                assert hear(worker) == "granted True"
            control_after, data_after = packets(plain, "1:10"), packets(plain, "1:20")
        finally:
            gate.kill()
            worker.kill()
    assert all(b - a >= ASKED for a, b in zip(control, control_after, strict=True))
    # What a host says of its own accord, to find another's address, is not marked.
    assert all(b - a < ASKED for a, b in zip(data, data_after, strict=True))
