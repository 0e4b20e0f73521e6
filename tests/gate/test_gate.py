"""The gate with well-behaved workers."""

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

from gate.threaded_gate import (
    PROFILE,
    RawConnection,
    ThreadedGate,
    hello,
    make_certificate,
    tcp_environment,
    threaded_gate,
    unix_environment,
)
from headway.domain.errors import InputError, MachineError
from headway.gate.environment import WorkerEnvironment
from headway.gate.frames import Bye, Done, Grant, Iteration, Ready, Refused, Welcome
from headway.gate.protocol import encode
from headway.worker.client import GateClient
from waiting import eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def running(path: Path) -> Iterator[ThreadedGate]:
    with threaded_gate(unix=path) as made:
        yield made


@pytest.fixture(params=["unix", "tcp", "tcp on IPv6", "tls"])
def reached(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[ThreadedGate, WorkerEnvironment]]:
    """Return a gate, and the environment of its worker."""
    if request.param == "unix":
        with threaded_gate(unix=tmp_path / "gate") as made:
            yield made, unix_environment(tmp_path / "gate")
    elif request.param == "tls":
        certificate, key = make_certificate(tmp_path)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        with threaded_gate(tcp=("127.0.0.1", 0), ssl=context) as made:
            yield made, tcp_environment(made, certificate=str(certificate))
    else:
        host = "::1" if "6" in request.param else "127.0.0.1"
        with threaded_gate(tcp=(host, 0)) as made:
            yield made, tcp_environment(made, host)


def test_a_worker_asks_and_waits_for_the_grant(
    reached: tuple[ThreadedGate, WorkerEnvironment],
) -> None:
    running, environment = reached
    client = GateClient(environment)
    try:
        client.wait_for_first_try(30)
        running.wait_for_call("attached", "j", 1, 0)
        for size in (10, 20):
            request = client.message_ready(size, 30)
            assert client.wait_for_grant(request)
            client.message_done(request)
        client.report(Iteration(1, 2, 3, 4))
        running.wait_for_call("iteration", "j", 1, 1, 2, 3, 4)
        client.report(PROFILE)
        running.wait_for_call("profile", "j", 1, PROFILE)
    finally:
        client.close()
    running.wait_for_call("lost", "j", 1, 0)
    assert running.recorder.calls == [
        ("attached", "j", 1, 0),
        ("ready", "j", 1, 1, 10, 30),
        ("done", "j", 1, 1),
        ("ready", "j", 1, 2, 20, 30),
        ("done", "j", 1, 2),
        ("iteration", "j", 1, 1, 2, 3, 4),
        ("profile", "j", 1, PROFILE),
        ("lost", "j", 1, 0),
    ]
    assert running.gate.connected == 0


def test_a_grant_is_sent_once_to_the_worker_that_asked(running: ThreadedGate, path: Path) -> None:
    running.recorder.holding = True
    with RawConnection(path) as one, RawConnection(path) as other:
        for attempt, raw in ((1, one), (2, other)):
            raw.send(hello(attempt=attempt) + encode(Ready(7, 1, 1)) + encode(Ready(8, 1, 1)))
            assert raw.receive() == Welcome()
            running.wait_for_call("ready", "j", attempt, 8, 1, 1)
        gate = running.gate
        assert gate.connected == 2
        assert not running.call(lambda: gate.grant("j", 3, 7))
        assert not running.call(lambda: gate.grant("j", 1, 9))
        assert running.call(lambda: gate.grant("j", 1, 8))
        assert not running.call(lambda: gate.grant("j", 1, 8))
        assert running.call(lambda: gate.grant("j", 2, 7))
        assert [one.receive(), other.receive()] == [Grant(8), Grant(7)]


def test_every_rank_has_its_own_connection_and_its_own_turns(
    running: ThreadedGate, path: Path
) -> None:
    running.recorder.holding = True
    clients = [GateClient(unix_environment(path), rank) for rank in range(2)]
    try:
        for rank, client in enumerate(clients):
            client.wait_for_first_try(30)
            running.wait_for_call("attached", "j", 1, rank)
            assert client.compute_ready() == 1
            running.wait_for_call("compute", "j", 1, rank, 1)
        gate = running.gate
        assert gate.connected == 2
        assert running.call(lambda: gate.grant("j", 1, 1, 1))
        assert clients[1].wait_for_grant(1)
        clients[1].compute_done(1)
        running.wait_for_call("computed", "j", 1, 1, 1)
        assert running.call(lambda: gate.grant("j", 1, 1, 0))
        assert clients[0].wait_for_grant(1)
        # Messages and computations share one sequence of request numbers.
        assert clients[0].message_ready(5, 5) == 2
        running.wait_for_call("ready", "j", 1, 2, 5, 5)
    finally:
        for client in clients:
            client.close()
    for rank in range(2):
        running.wait_for_call("lost", "j", 1, rank)


def test_a_single_rank_or_a_whole_attempt_can_be_refused(running: ThreadedGate, path: Path) -> None:
    with RawConnection(path) as zero, RawConnection(path) as one, RawConnection(path) as two:
        for rank, raw in enumerate((zero, one, two)):
            raw.send(hello(rank=rank))
            assert raw.receive() == Welcome()
        running.call(lambda: running.gate.refuse("j", 1, "no slot", 1))
        assert one.receive() == Refused("no slot")
        assert running.gate.connected == 2
        running.call(lambda: running.gate.refuse("j", 1, "over"))
        assert zero.receive() == two.receive() == Refused("over")
        assert running.gate.connected == 0
    assert running.recorder.kinds() == ["attached"] * 3


def test_a_second_connection_of_a_worker_replaces_the_first(
    running: ThreadedGate, path: Path
) -> None:
    with RawConnection(path) as one, RawConnection(path) as other:
        one.send(hello())
        assert one.receive() == Welcome()
        other.send(hello())
        assert other.receive() == Welcome()
        assert one.receive() is None
        assert running.recorder.kinds() == ["attached", "lost", "attached"]
        other.send(encode(Ready(1, 1, 1)))
        assert other.receive() == Grant(1)


def test_a_worker_that_says_bye_is_lost_at_once(running: ThreadedGate, path: Path) -> None:
    with RawConnection(path) as raw:
        raw.send(hello() + encode(Ready(1, 1, 1)) + encode(Done(1)) + encode(Bye()))
        running.wait_for_call("lost", "j", 1, 0)


def test_a_refused_worker_receives_the_reason(running: ThreadedGate, path: Path) -> None:
    with RawConnection(path) as raw:
        raw.send(hello())
        assert raw.receive() == Welcome()
        running.call(lambda: running.gate.refuse("j", 1, "this attempt has ended"))
        running.call(lambda: running.gate.refuse("j", 2, "nobody has this number"))
        assert raw.receive() == Refused("this attempt has ended")
        assert raw.receive() is None
    assert running.recorder.kinds() == ["attached"]


WORKER = """
import os, sys, time
from headway.gate.environment import WorkerEnvironment
from headway.worker.client import GateClient
client = GateClient(WorkerEnvironment.from_variables(os.environ))
client.wait_for_first_try(30)
request = client.message_ready(1, 1)
assert client.wait_for_grant(request)
if os.fork() == 0:
    print("granted", flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_killed_worker_is_lost_at_once_even_if_its_child_lives(
    running: ThreadedGate, path: Path
) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env=os.environ | unix_environment(path).variables(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "granted\n"
        assert running.recorder.kinds() == ["attached", "ready"]
        worker.kill()
        # Heartbeats would need at least three seconds.
        running.wait_for_call("lost", "j", 1, 0)
        assert running.recorder.kinds() == ["attached", "ready", "lost"]
        os.killpg(worker.pid, 0)
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.communicate()


def test_the_socket_is_private_and_removed_with_the_gate(path: Path) -> None:
    with threaded_gate(unix=path):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


def test_the_stale_socket_of_a_killed_gate_is_replaced(path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with threaded_gate(unix=path), RawConnection(path) as raw:
        raw.send(hello())
        assert raw.receive() == Welcome()


def test_a_path_that_cannot_be_bound_is_an_error(running: ThreadedGate, path: Path) -> None:
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
        with pytest.raises(InputError, match=problem), threaded_gate(unix=one):
            pass
    assert other.exists()
    with RawConnection(path) as raw:
        raw.send(hello())
        assert raw.receive() == Welcome()


def test_a_port_in_use_is_an_error_and_leaves_nothing_behind(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(
                MachineError, match=f"cannot listen on 127.0.0.1:{port}: Address already"
            ),
            threaded_gate(unix=path, tcp=("127.0.0.1", port)),
        ):
            pass
    assert not path.exists()


def test_a_gate_without_an_address_is_an_error() -> None:
    with pytest.raises(InputError, match="needs a Unix socket"), threaded_gate():
        pass


def test_closing_a_gate_disconnects_workers_without_calling_the_handler(path: Path) -> None:
    with threaded_gate(unix=path) as running:
        with RawConnection(path) as raw:
            raw.send(hello())
            assert raw.receive() == Welcome()
            running.wait(running.gate.close())
            assert raw.receive() is None
        eventually(lambda: running.gate.connected == 0)
        assert running.recorder.kinds() == ["attached"]
