"""The rate controller lowers a host's rate while messages contend."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headway import testbed as testbeds
from headway.domain.errors import InputError, MachineError
from headway.testbed import processes, state
from headway.testbed.rate_client import message_on_network
from testbed.machine import inside, leftovers, rates_mbit
from waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]

FULL = [100.0, 100.0]


def lowered(k: int) -> Any:
    """Return the rates of a link that carries k messages, with a penalty of half of b."""
    return pytest.approx([100 * k / (k + (k - 1) * 0.5)] * 2, rel=1e-6)


@pytest.fixture
def penalized(name: str) -> testbeds.Testbed:
    """Return a testbed of two hosts at 100 Mbit/s with a penalty of half of b."""
    testbed = testbeds.Testbed(name, hosts=2, rate_mbit=100, eta=0.5)
    assert testbeds.up(testbed)
    return testbed


@pytest.fixture
def client(penalized: testbeds.Testbed) -> Iterator[socket.socket]:
    """Return a new connection to the rate controller."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(penalized.socket))
        connection.settimeout(20)
        yield connection


def report(client: socket.socket, steps: bytes, answers: int) -> None:
    client.sendall(steps)
    for _ in range(answers):
        assert client.recv(1) == b"."


def test_the_rate_falls_with_each_message_and_recovers(
    penalized: testbeds.Testbed, client: socket.socket
) -> None:
    report(client, b"2\n+", 1)
    assert rates_mbit(penalized, 2) == FULL
    report(client, b"+", 1)
    assert rates_mbit(penalized, 2) == lowered(2)
    report(client, b"+", 1)
    assert rates_mbit(penalized, 2) == lowered(3)
    assert rates_mbit(penalized, 1) == FULL
    assert testbeds.status(penalized.name).healthy
    report(client, b"--", 2)
    assert rates_mbit(penalized, 2) == FULL
    report(client, b"-", 1)
    assert rates_mbit(penalized, 2) == FULL


def test_messages_of_different_clients_add_up_and_end_with_their_connection(
    penalized: testbeds.Testbed, client: socket.socket
) -> None:
    report(client, b"1\n+", 1)
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(penalized.socket))
        report(other, b"1\n++", 2)
        assert rates_mbit(penalized, 1) == lowered(3)
    eventually(lambda: rates_mbit(penalized, 1) == FULL)


@pytest.mark.parametrize("words", [b"3\n", b"0\n", b"x\n", b"1\n-", b"1\n+--", b"1\n?", b"9" * 99])
def test_a_client_that_breaks_the_protocol_is_disconnected_and_others_are_not(
    penalized: testbeds.Testbed, client: socket.socket, words: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as broken:
        broken.connect(str(penalized.socket))
        broken.settimeout(20)
        broken.sendall(words)
        while broken.recv(1):
            pass
    report(client, b"1\n++", 2)
    assert rates_mbit(penalized, 1) == lowered(2)


MESSAGES = """
import sys
from contextlib import ExitStack
from headway.testbed.rate_client import message_on_network
with ExitStack() as running:
    for _ in range(3):
        running.enter_context(message_on_network())
    print("sending", flush=True)
    sys.stdin.readline()
print("sent", flush=True)
sys.stdin.readline()
"""


def test_a_process_in_a_host_reports_its_messages(penalized: testbeds.Testbed) -> None:
    with inside(penalized, 1, MESSAGES) as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        assert sender.stdout.readline() == "sending\n"
        assert rates_mbit(penalized, 1) == lowered(3)
        sender.stdin.write("\n")
        sender.stdin.flush()
        assert sender.stdout.readline() == "sent\n"
        assert rates_mbit(penalized, 1) == FULL


def test_the_messages_of_a_killed_process_have_ended(penalized: testbeds.Testbed) -> None:
    with inside(penalized, 1, MESSAGES) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline() == "sending\n"
        sender.kill()
    eventually(lambda: rates_mbit(penalized, 1) == FULL)
    assert testbeds.down(penalized.name)
    assert leftovers(penalized.name) == []


def test_the_connection_of_a_killed_process_does_not_survive_in_its_child(
    penalized: testbeds.Testbed,
) -> None:
    forking = MESSAGES.replace(
        "    print(",
        "    import os, time\n    if os.fork() == 0:\n        time.sleep(60)\n    print(",
    )
    with inside(penalized, 1, forking) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline() == "sending\n"
        sender.kill()
        eventually(lambda: rates_mbit(penalized, 1) == FULL)
        testbeds.down(penalized.name)


def test_outside_a_testbed_messages_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_TESTBED_SOCKET", raising=False)
    with message_on_network():
        pass


def test_a_missing_rate_controller_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_TESTBED_SOCKET", "/nowhere/controller.sock")
    monkeypatch.setenv("HEADWAY_TESTBED_HOST", "1")
    with pytest.raises(MachineError, match="rate controller at /nowhere"), message_on_network():
        pass
    monkeypatch.setenv("HEADWAY_TESTBED_HOST", "one")
    with pytest.raises(InputError, match="HEADWAY_TESTBED_HOST"), message_on_network():
        pass


def test_down_ends_the_rate_controller_and_up_replaces_a_killed_one(
    penalized: testbeds.Testbed,
) -> None:
    record = state.read(penalized.name)
    assert record is not None
    assert record.rate_controller is not None
    os.kill(record.rate_controller.pid, signal.SIGKILL)
    eventually(lambda: "the rate controller has ended" in testbeds.status(penalized.name).problems)
    assert testbeds.up(penalized)
    again = state.read(penalized.name)
    assert again is not None
    assert again.rate_controller is not None
    assert again.rate_controller.alive()
    assert testbeds.down(penalized.name)
    assert not again.rate_controller.alive()
    assert leftovers(penalized.name) == []


def test_a_rate_controller_ends_when_its_testbed_is_gone(penalized: testbeds.Testbed) -> None:
    record = state.read(penalized.name)
    assert record is not None
    controller = record.rate_controller
    assert controller is not None
    path = state.path_of(penalized.name)
    aside = path.with_suffix(".aside")
    path.rename(aside)
    try:
        eventually(lambda: not controller.alive())
    finally:
        aside.rename(path)


def test_a_rate_controller_that_cannot_set_rates_ends(
    penalized: testbeds.Testbed, client: socket.socket
) -> None:
    for pid in processes.inside([penalized.namespace(1)])[penalized.namespace(1)]:
        os.kill(pid, signal.SIGKILL)
    client.sendall(b"1\n++")
    while client.recv(1):
        pass
    eventually(lambda: "the rate controller has ended" in testbeds.status(penalized.name).problems)


def test_a_rate_controller_that_is_never_started_ends(penalized: testbeds.Testbed) -> None:
    words = [sys.executable, "-m", "headway.testbed.rate_controller", penalized.name]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert starter.wait() == 0
    eventually(lambda: not os.path.exists(f"/proc/{pid}/ns/net"))
    assert testbeds.status(penalized.name).healthy
