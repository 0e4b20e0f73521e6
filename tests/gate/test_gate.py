"""The gate among workers that behave."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate.gates import Raw, Running, address, eventually, hello, make_certificate, running_gate
from headway.domain.errors import InputError, MachineError
from headway.gate.protocol import Bye, Done, Grant, Iteration, Ready, Refused, Welcome, encode
from headway.worker.address import Address
from headway.worker.client import GateClient


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def running(path: Path) -> Iterator[Running]:
    with running_gate(unix=path) as made:
        yield made


@pytest.fixture(params=["unix", "tcp", "tcp on IPv6", "tls"])
def reached(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Running, Address]]:
    """Return a gate, and a worker's way to it."""
    if request.param == "unix":
        with running_gate(unix=tmp_path / "gate") as made:
            yield made, address(made, tmp_path / "gate")
    elif request.param == "tls":
        certificate, key = make_certificate(tmp_path)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        with running_gate(tcp=("127.0.0.1", 0), ssl=context) as made:
            yield made, address(made, certificate=str(certificate))
    else:
        host = "::1" if "6" in request.param else "127.0.0.1"
        with running_gate(tcp=(host, 0)) as made:
            yield made, address(made, host=host)


def test_a_worker_asks_and_is_told_when_to_start(reached: tuple[Running, Address]) -> None:
    running, where = reached
    client = GateClient(where)
    try:
        client.wait_for_first_try(30)
        assert running.hears("attached", "j", 1, 0)
        for size in (10, 20):
            request = client.ask(size, 30)
            assert client.wait(request)
            client.done(request)
        client.iterated(Iteration(1, 2, 3, 4))
        assert running.hears("iteration", "j", 1, 1, 2, 3, 4)
    finally:
        client.close()
    assert running.hears("lost", "j", 1, 0)
    assert running.recorder.heard == [
        ("attached", "j", 1, 0),
        ("ready", "j", 1, 1, 10, 30),
        ("done", "j", 1, 1),
        ("ready", "j", 1, 2, 20, 30),
        ("done", "j", 1, 2),
        ("iteration", "j", 1, 1, 2, 3, 4),
        ("lost", "j", 1, 0),
    ]
    assert running.gate.connected == 0


def test_a_grant_goes_to_the_worker_that_asked_and_once(running: Running, path: Path) -> None:
    running.recorder.holding = True
    with Raw(path) as one, Raw(path) as other:
        for attempt, raw in ((1, one), (2, other)):
            raw.say(hello(attempt=attempt) + encode(Ready(7, 1, 1)) + encode(Ready(8, 1, 1)))
            assert raw.hear() == Welcome()
            assert running.hears("ready", "j", attempt, 8, 1, 1)
        gate = running.gate
        assert gate.connected == 2
        assert not running.call(lambda: gate.grant("j", 3, 7))
        assert not running.call(lambda: gate.grant("j", 1, 9))
        assert running.call(lambda: gate.grant("j", 1, 8))
        assert not running.call(lambda: gate.grant("j", 1, 8))
        assert running.call(lambda: gate.grant("j", 2, 7))
        assert [one.hear(), other.hear()] == [Grant(8), Grant(7)]


def test_every_rank_may_compute_when_it_is_told_and_has_its_own_connection(
    running: Running, path: Path
) -> None:
    running.recorder.holding = True
    clients = [GateClient(address(running, path, rank=rank)) for rank in range(2)]
    try:
        for rank, client in enumerate(clients):
            client.wait_for_first_try(30)
            assert running.hears("attached", "j", 1, rank)
            assert client.ask_to_compute() == 1
            assert running.hears("compute", "j", 1, rank, 1)
        gate = running.gate
        assert gate.connected == 2
        assert running.call(lambda: gate.grant("j", 1, 1, 1))
        assert clients[1].wait(1)
        clients[1].computed(1)
        assert running.hears("computed", "j", 1, 1, 1)
        assert running.call(lambda: gate.grant("j", 1, 1, 0))
        assert clients[0].wait(1)
        # The numbers of messages and of computations are one sequence.
        assert clients[0].ask(5, 5) == 2
        assert running.hears("ready", "j", 1, 2, 5, 5)
    finally:
        for client in clients:
            client.close()
    for rank in range(2):
        assert running.hears("lost", "j", 1, rank)


def test_a_rank_or_a_whole_attempt_is_told_that_it_is_not_wanted(
    running: Running, path: Path
) -> None:
    with Raw(path) as zero, Raw(path) as one, Raw(path) as two:
        for rank, raw in enumerate((zero, one, two)):
            raw.say(hello(rank=rank))
            assert raw.hear() == Welcome()
        running.call(lambda: running.gate.refuse("j", 1, "no slot", 1))
        assert one.hear() == Refused("no slot")
        assert running.gate.connected == 2
        running.call(lambda: running.gate.refuse("j", 1, "over"))
        assert zero.hear() == two.hear() == Refused("over")
        assert running.gate.connected == 0
    assert running.recorder.words() == ["attached"] * 3


def test_a_worker_that_comes_again_takes_the_place_of_its_first_connection(
    running: Running, path: Path
) -> None:
    with Raw(path) as one, Raw(path) as other:
        one.say(hello())
        assert one.hear() == Welcome()
        other.say(hello())
        assert other.hear() == Welcome()
        assert one.hear() is None
        assert running.recorder.words() == ["attached", "lost", "attached"]
        other.say(encode(Ready(1, 1, 1)))
        assert other.hear() == Grant(1)


def test_a_worker_that_says_goodbye_is_gone(running: Running, path: Path) -> None:
    with Raw(path) as raw:
        raw.say(hello() + encode(Ready(1, 1, 1)) + encode(Done(1)) + encode(Bye()))
        assert running.hears("lost", "j", 1, 0)


def test_a_worker_that_is_not_wanted_is_told_why(running: Running, path: Path) -> None:
    with Raw(path) as raw:
        raw.say(hello())
        assert raw.hear() == Welcome()
        running.call(lambda: running.gate.refuse("j", 1, "this attempt has ended"))
        running.call(lambda: running.gate.refuse("j", 2, "nobody has this number"))
        assert raw.hear() == Refused("this attempt has ended")
        assert raw.hear() is None
    assert running.recorder.words() == ["attached"]


WORKER = """
import os, sys, time
from headway.worker.address import address_from
from headway.worker.client import GateClient
client = GateClient(address_from(os.environ))
client.wait_for_first_try(30)
request = client.ask(1, 1)
assert client.wait(request)
if os.fork() == 0:
    print("granted", flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_worker_that_is_killed_is_gone_even_while_its_child_lives(
    running: Running, path: Path
) -> None:
    where = address(running, path)
    environment = {
        "HEADWAY_GATE": str(where),
        "HEADWAY_JOB": "j",
        "HEADWAY_ATTEMPT": "1",
        "HEADWAY_JOB_TOKEN": where.token,
    }
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "granted\n"
        assert running.recorder.words() == ["attached", "ready"]
        worker.kill()
        # Heartbeats would need at least three seconds.
        assert running.hears("lost", "j", 1, 0)
        assert running.recorder.words() == ["attached", "ready", "lost"]
        os.killpg(worker.pid, 0)
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.communicate()


def test_the_socket_is_its_owners_alone_and_goes_with_the_gate(path: Path) -> None:
    with running_gate(unix=path):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


def test_the_socket_of_a_gate_that_was_killed_is_replaced(path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with running_gate(unix=path), Raw(path) as raw:
        raw.say(hello())
        assert raw.hear() == Welcome()


def test_a_path_that_cannot_be_a_socket_is_refused(running: Running, path: Path) -> None:
    other = path.with_name("file")
    other.touch()
    long = path.with_name("x" * 200)
    nowhere = path.with_name("none") / "gate"
    problems = [
        (path, "another gate listens"),
        (other, "is not a socket"),
        (long, "at most 107 bytes, and this one"),
        (nowhere, "No such file"),
    ]
    for one, problem in problems:
        with pytest.raises(InputError, match=problem), running_gate(unix=one):
            pass
    assert other.exists()
    with Raw(path) as raw:
        raw.say(hello())
        assert raw.hear() == Welcome()


def test_a_port_that_is_taken_is_refused_and_nothing_stays_behind(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(
                MachineError, match=f"cannot listen on 127.0.0.1:{port}: Address already"
            ),
            running_gate(unix=path, tcp=("127.0.0.1", port)),
        ):
            pass
    assert not path.exists()


def test_a_gate_on_no_address_is_refused() -> None:
    with pytest.raises(InputError, match="needs a Unix socket"), running_gate():
        pass


def test_a_closed_gate_lets_everybody_go_and_says_nothing(path: Path) -> None:
    with running_gate(unix=path) as running:
        with Raw(path) as raw:
            raw.say(hello())
            assert raw.hear() == Welcome()
            running.wait(running.gate.close())
            assert raw.hear() is None
        assert eventually(lambda: running.gate.connected == 0)
        assert running.recorder.words() == ["attached"]
