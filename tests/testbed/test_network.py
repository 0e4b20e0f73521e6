"""The network of the hosts: its reach, its rate, its congestion control."""

from __future__ import annotations

import subprocess

import pytest

from headway import testbed as testbeds
from headway.testbed.shaping import CONGESTION
from testbed.machine import inside
from waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]

RECEIVE = """
import socket, time
port, flows = {port}, {flows}
server = socket.create_server(("0.0.0.0", port))
print("ready", flush=True)
connections = [server.accept()[0] for _ in range(flows)]
total = 0
import selectors
selector = selectors.DefaultSelector()
for one in connections:
    selector.register(one, selectors.EVENT_READ)
while selector.get_map():
    for key, _ in selector.select():
        got = len(key.fileobj.recv(1 << 20))
        if not got:
            selector.unregister(key.fileobj)
        else:
            total += got
            end = time.monotonic()
print(total, end)
"""

SEND = """
import contextlib, socket, sys, threading, time
address = sys.stdin.readline().strip()
with contextlib.ExitStack() as open_flows:
    flows = [
        open_flows.enter_context(socket.create_connection((address, {port})))
        for _ in range({flows})
    ]
    control = flows[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).decode()
    data = bytes({each})
    threads = [threading.Thread(target=flow.sendall, args=(data,)) for flow in flows]
    start = time.monotonic()
    for one in threads: one.start()
    for one in threads: one.join()
print(control.rstrip(chr(0)), start)
"""


@pytest.mark.parametrize("flows", [1, 4])
def test_tcp_reaches_the_rate_of_the_link(plain: testbeds.Testbed, flows: int) -> None:
    port, each = 5000 + flows, 10_000_000 // flows

    def measured_mbit() -> float:
        with inside(plain, 2, RECEIVE.format(port=port, flows=flows)) as receiver:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "ready\n"
            with inside(plain, 1, SEND.format(port=port, flows=flows, each=each)) as sender:
                out, _ = sender.communicate(f"{plain.address(2)}\n")
            total, end = receiver.stdout.readline().split()
        control, start = out.split()
        assert (control, int(total)) == (CONGESTION, flows * each)
        mbit = 8 * int(total) / 1e6 / (float(end) - float(start))
        assert mbit < 1.1 * plain.rate_mbit
        return mbit

    # Retried: a process that waits for a processor makes the rate lower, never higher.
    eventually(lambda: measured_mbit() > 0.9 * plain.rate_mbit)


def test_a_host_reaches_itself_and_nothing_outside(plain: testbeds.Testbed) -> None:
    script = (
        "import errno, socket\n"
        "with socket.create_server(('127.0.0.1', 0)) as own:\n"
        "    socket.create_connection(own.getsockname()).close()\n"
        "for address in ('192.0.2.1', '10.78.0.1'):\n"
        "    try:\n"
        "        socket.create_connection((address, 80), timeout=5)\n"
        "    except OSError as error:\n"
        "        print(errno.errorcode[error.errno])\n"
    )
    with inside(plain, 1, script) as looking:
        assert looking.communicate()[0].split() == ["ENETUNREACH", "ENETUNREACH"]


def test_no_host_has_a_default_route(plain: testbeds.Testbed) -> None:
    for namespace in plain.namespaces:
        line = ["ip", "-n", namespace, "route", "show", "default"]
        assert subprocess.run(line, capture_output=True, check=True).stdout == b""
    line = ["ip", "-n", plain.switch, "-4", "address", "show"]
    assert subprocess.run(line, capture_output=True, check=True).stdout == b""


def test_the_network_of_the_machine_is_unchanged(name: str) -> None:
    def own() -> bytes:
        line = ["ip", "-o", "link", "show"]
        return subprocess.run(line, capture_output=True, check=True).stdout

    before = own()
    testbeds.up(testbeds.Testbed(name, hosts=2))
    assert own() == before
