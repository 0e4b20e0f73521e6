"""The keeper lowers a host's rate while messages run on it."""

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
from headway.testbed.keeper_client import message_on_network
from testbed.looking import eventually, inside, leftovers, rates_mbit

FULL = [100.0, 100.0]


def lowered(k: int) -> Any:
    """Return the rates of a link that carries k messages, with a penalty of half of b."""
    return pytest.approx([100 * k / (k + (k - 1) * 0.5)] * 2, rel=1e-6)


@pytest.fixture
def penal(name: str) -> testbeds.Testbed:
    """Return a testbed of two hosts at 100 Mbit/s with a penalty of half of b."""
    testbed = testbeds.Testbed(name, hosts=2, rate_mbit=100, eta=0.5)
    assert testbeds.up(testbed)
    return testbed


@pytest.fixture
def worker(penal: testbeds.Testbed) -> Iterator[socket.socket]:
    """Return a connection to the keeper that has not yet said anything."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(penal.socket))
        connection.settimeout(20)
        yield connection


def say(worker: socket.socket, words: bytes, answers: int) -> None:
    worker.sendall(words)
    for _ in range(answers):
        assert worker.recv(1) == b"."


def test_the_rate_falls_with_every_message_and_comes_back(
    penal: testbeds.Testbed, worker: socket.socket
) -> None:
    say(worker, b"2\n+", 1)
    assert rates_mbit(penal, 2) == FULL
    say(worker, b"+", 1)
    assert rates_mbit(penal, 2) == lowered(2)
    say(worker, b"+", 1)
    assert rates_mbit(penal, 2) == lowered(3)
    assert rates_mbit(penal, 1) == FULL
    assert testbeds.status(penal.name).healthy
    say(worker, b"--", 2)
    assert rates_mbit(penal, 2) == FULL
    say(worker, b"-", 1)
    assert rates_mbit(penal, 2) == FULL


def test_messages_of_different_workers_add_up_and_end_with_their_connection(
    penal: testbeds.Testbed, worker: socket.socket
) -> None:
    say(worker, b"1\n+", 1)
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(penal.socket))
        say(other, b"1\n++", 2)
        assert rates_mbit(penal, 1) == lowered(3)
    assert eventually(lambda: rates_mbit(penal, 1) == FULL)


@pytest.mark.parametrize("words", [b"3\n", b"0\n", b"x\n", b"1\n-", b"1\n+--", b"1\n?", b"9" * 99])
def test_a_worker_that_makes_no_sense_is_cut_off_and_others_go_on(
    penal: testbeds.Testbed, worker: socket.socket, words: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as fool:
        fool.connect(str(penal.socket))
        fool.settimeout(20)
        fool.sendall(words)
        while fool.recv(1):
            pass
    say(worker, b"1\n++", 2)
    assert rates_mbit(penal, 1) == lowered(2)


MESSAGES = """
import sys
from contextlib import ExitStack
from headway.testbed.keeper_client import message_on_network
with ExitStack() as running:
    for _ in range(3):
        running.enter_context(message_on_network())
    print("sending", flush=True)
    sys.stdin.readline()
print("sent", flush=True)
sys.stdin.readline()
"""


def test_a_process_in_a_host_tells_of_its_messages(penal: testbeds.Testbed) -> None:
    with inside(penal, 1, MESSAGES) as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        assert sender.stdout.readline() == "sending\n"
        assert rates_mbit(penal, 1) == lowered(3)
        sender.stdin.write("\n")
        sender.stdin.flush()
        assert sender.stdout.readline() == "sent\n"
        assert rates_mbit(penal, 1) == FULL


def test_the_messages_of_a_killed_worker_have_ended(penal: testbeds.Testbed) -> None:
    with inside(penal, 1, MESSAGES) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline() == "sending\n"
        sender.kill()
    assert eventually(lambda: rates_mbit(penal, 1) == FULL)
    assert testbeds.down(penal.name)
    assert leftovers(penal.name) == []


def test_the_connection_of_a_killed_worker_does_not_live_on_in_its_fork(
    penal: testbeds.Testbed,
) -> None:
    forking = MESSAGES.replace(
        "    print(",
        "    import os, time\n    if os.fork() == 0:\n        time.sleep(60)\n    print(",
    )
    with inside(penal, 1, forking) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline() == "sending\n"
        sender.kill()
        assert eventually(lambda: rates_mbit(penal, 1) == FULL)
        testbeds.down(penal.name)


def test_outside_a_testbed_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_TESTBED_SOCKET", raising=False)
    with message_on_network():
        pass


def test_a_keeper_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_TESTBED_SOCKET", "/nowhere/keeper.sock")
    monkeypatch.setenv("HEADWAY_TESTBED_HOST", "1")
    with pytest.raises(MachineError, match="keeper at /nowhere"), message_on_network():
        pass
    monkeypatch.setenv("HEADWAY_TESTBED_HOST", "one")
    with pytest.raises(InputError, match="HEADWAY_TESTBED_HOST"), message_on_network():
        pass


def test_down_ends_the_keeper_and_up_replaces_one_that_was_killed(
    penal: testbeds.Testbed,
) -> None:
    record = state.read(penal.name)
    assert record is not None
    assert record.keeper is not None
    os.kill(record.keeper.pid, signal.SIGKILL)
    assert eventually(lambda: "the keeper has ended" in testbeds.status(penal.name).problems)
    assert testbeds.up(penal)
    again = state.read(penal.name)
    assert again is not None
    assert again.keeper is not None
    assert again.keeper.alive()
    assert testbeds.down(penal.name)
    assert not again.keeper.alive()
    assert leftovers(penal.name) == []


def test_a_keeper_whose_testbed_is_gone_ends_by_itself(penal: testbeds.Testbed) -> None:
    record = state.read(penal.name)
    assert record is not None
    keeper = record.keeper
    assert keeper is not None
    path = state.path_of(penal.name)
    aside = path.with_suffix(".aside")
    path.rename(aside)
    try:
        assert eventually(lambda: not keeper.alive())
    finally:
        aside.rename(path)


def test_a_keeper_that_cannot_set_rates_ends_rather_than_pretend(
    penal: testbeds.Testbed, worker: socket.socket
) -> None:
    for pid in processes.inside([penal.namespace(1)])[penal.namespace(1)]:
        os.kill(pid, signal.SIGKILL)
    worker.sendall(b"1\n++")
    while worker.recv(1):
        pass
    assert eventually(lambda: "the keeper has ended" in testbeds.status(penal.name).problems)


def test_a_keeper_that_is_never_told_to_go_ends(penal: testbeds.Testbed) -> None:
    words = [sys.executable, "-m", "headway.testbed.keeper", penal.name]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        number = int(starter.stdout.readline())
        assert starter.wait() == 0
    assert eventually(lambda: not os.path.exists(f"/proc/{number}/ns/net"))
    assert testbeds.status(penal.name).healthy
