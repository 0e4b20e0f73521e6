"""A worker's side of the gate: nothing stops training for longer than a living gate wants."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate.gates import address, eventually, make_certificate, running_gate
from headway.domain.errors import InputError
from headway.gate.protocol import Ping, Welcome, encode
from headway.worker import client as module
from headway.worker.address import Address, address_from
from headway.worker.client import GateClient

ENVIRONMENT = {
    "HEADWAY_GATE": "unix:/run/gate",
    "HEADWAY_JOB": "j",
    "HEADWAY_ATTEMPT": "3",
    "HEADWAY_JOB_TOKEN": "t",
}


@contextlib.contextmanager
def worker(where: Address) -> Iterator[GateClient]:
    client = GateClient(where)
    try:
        client.wait_for_first_try(30)
        yield client
    finally:
        client.close()
        client._thread.join(30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def test_the_environment_says_where_the_gate_is() -> None:
    assert address_from({}) is None
    assert address_from(ENVIRONMENT) == Address("j", 3, "t", unix="/run/gate")
    tcp = ENVIRONMENT | {"HEADWAY_GATE": "tcp:[::1]:7078", "HEADWAY_GATE_CERT": "ca.pem"}
    assert address_from(tcp) == Address("j", 3, "t", host="::1", port=7078, certificate="ca.pem")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEADWAY_GATE", "gate"),
        ("HEADWAY_GATE", "unix:"),
        ("HEADWAY_GATE", "tcp:host"),
        ("HEADWAY_GATE", "tcp::1"),
        ("HEADWAY_GATE", "tcp:host:http"),
        ("HEADWAY_ATTEMPT", ""),
        ("HEADWAY_ATTEMPT", "-1"),
        ("HEADWAY_JOB", ""),
        ("HEADWAY_JOB_TOKEN", ""),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{name}: must"):
        address_from(ENVIRONMENT | {name: value})


def test_without_a_gate_nobody_waits(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    where = Address("j", 1, "t", unix=str(path))
    with worker(where) as client:
        request = client.ask(1, 1)
        assert not client.wait(request)
        client.done(request)
        assert not client.connected
    assert "no gate at unix:" in caplog.text
    assert "goes on unasked" in caplog.text


def test_a_grant_may_take_its_time(path: Path) -> None:
    with running_gate(unix=path) as running, worker(address(running, path)) as client:
        running.recorder.holding = True
        requests = [client.ask(1, 2), client.ask(1, 1)]
        assert running.hears("ready", "j", 1, 2, 1, 1)
        answers: list[bool] = []
        waiting = threading.Thread(target=lambda: answers.append(client.wait(requests[0])))
        waiting.start()
        running.call(lambda: running.gate.grant("j", 1, requests[1]))
        assert client.wait(requests[1])
        assert waiting.is_alive()
        running.call(lambda: running.gate.grant("j", 1, requests[0]))
        waiting.join()
        assert answers == [True]


def test_a_gate_that_ends_lets_those_that_wait_go_on_and_is_found_again(path: Path) -> None:
    with running_gate(unix=path) as running:
        client = GateClient(address(running, path))
        client.wait_for_first_try(30)
        running.recorder.holding = True
        request = client.ask(1, 1)
        answers: list[bool] = []
        waiting = threading.Thread(target=lambda: answers.append(client.wait(request)))
        waiting.start()
        assert running.hears("ready", "j", 1, request, 1, 1)
    waiting.join()
    assert answers == [False]
    with running_gate(unix=path) as again:
        assert again.hears("attached", "j", 1, 0)
        client.done(request)
        assert eventually(lambda: client.connected)
        request = client.ask(1, 1)
        assert client.wait(request)
        client.close()
        assert again.hears("lost", "j", 1, 0)
        assert ("done", "j", 1, 1) not in again.recorder.heard


def test_a_worker_that_was_let_go_comes_back(path: Path) -> None:
    with running_gate(unix=path) as running, worker(address(running, path)) as client:
        connection = next(iter(running.gate._workers.values()))
        running.call(connection.end)
        assert eventually(lambda: running.recorder.words() == ["attached", "lost", "attached"])
        assert eventually(lambda: client.connected)
        assert client.wait(client.ask(1, 1))


def test_a_worker_that_is_refused_goes_on_unasked(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_gate(unix=path) as running:
        with worker(address(running, path, token="wrong")) as client:
            assert not client.wait(client.ask(1, 1))
            assert eventually(lambda: "it refuses: the token" in caplog.text)
        assert running.recorder.heard == []


class Mute:
    """A server that greets, and then says what the test wants: nothing, by default."""

    def __init__(self, path: Path, after: bytes) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._after = after
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(encode(Welcome()) + self._after)
            while connection.recv(4096):
                pass

    def __enter__(self) -> Mute:
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.join()
        self._listening.close()


def test_a_gate_that_says_nothing_any_more_is_gone(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.1)
    with Mute(path, b""), worker(Address("j", 1, "t", unix=str(path))) as client:
        assert not client.wait(client.ask(1, 1))
        assert eventually(lambda: "it said nothing for 0.1 s" in caplog.text)


@pytest.mark.parametrize("after", [b"\xff" * 40, encode(Ping())[:-1] + b"\x01", encode(Welcome())])
def test_a_gate_that_talks_nonsense_is_gone(path: Path, after: bytes) -> None:
    with Mute(path, after), worker(Address("j", 1, "t", unix=str(path))) as client:
        assert not client.wait(client.ask(1, 1))


def test_a_gate_with_a_certificate_of_somebody_else_is_not_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import ssl

    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    certificate, key = make_certificate(tmp_path / "theirs")
    ours, _ = make_certificate(tmp_path / "ours")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with running_gate(tcp=("127.0.0.1", 0), ssl=context) as running:
        for file in (str(ours), str(tmp_path / "none.pem"), ""):
            with worker(address(running, certificate=file)) as client:
                assert not client.wait(client.ask(1, 1))
        assert running.recorder.heard == []
    assert "certificate verify failed" in caplog.text
    assert "No such file" in caplog.text


def test_many_threads_share_a_connection(path: Path) -> None:
    with running_gate(unix=path) as running, worker(address(running, path)) as client:
        granted: list[bool] = []

        def ask_often() -> None:
            for _ in range(100):
                request = client.ask(1, 1)
                granted.append(client.wait(request))
                client.done(request)

        threads = [threading.Thread(target=ask_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert granted == [True] * 400


def test_a_worker_needs_neither_msgspec_nor_anything_but_the_standard_library() -> None:
    script = """
import sys
import headway.worker.session
heavy = {"msgspec", "numba", "polars", "numpy", "fastapi", "typer", "rich", "torch", "ray"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
