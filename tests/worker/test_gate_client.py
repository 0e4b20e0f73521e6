"""A worker's side of the gate: only a live gate can make training wait."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate.threaded_gate import (
    RawConnection,
    hello,
    make_certificate,
    tcp_environment,
    threaded_gate,
    unix_environment,
)
from headway.domain.errors import InputError
from headway.gate.address import GateAddress
from headway.gate.environment import WorkerEnvironment
from headway.gate.frames import Ping, Welcome
from headway.gate.protocol import encode
from headway.worker import client as module
from headway.worker.client import GateClient
from waiting import PATIENCE_S, eventually

VARIABLES = {
    "HEADWAY_GATE": "unix:/run/gate",
    "HEADWAY_JOB": "j",
    "HEADWAY_ATTEMPT": "3",
    "HEADWAY_JOB_TOKEN": "t",
}


@contextlib.contextmanager
def worker(environment: WorkerEnvironment) -> Iterator[GateClient]:
    client = GateClient(environment)
    try:
        client.wait_for_first_try(PATIENCE_S)
        yield client
    finally:
        client.close()
        client.join(PATIENCE_S)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate"


def test_a_worker_reads_its_gate_from_environment_variables() -> None:
    assert WorkerEnvironment.from_variables({}) is None
    unix = WorkerEnvironment(GateAddress(path="/run/gate"), "j", 3, "t")
    assert WorkerEnvironment.from_variables(VARIABLES) == unix
    assert unix.variables() == VARIABLES
    variables = VARIABLES | {"HEADWAY_GATE": "tcp:[::1]:7078", "HEADWAY_GATE_CERT": "ca.pem"}
    tcp = WorkerEnvironment(GateAddress(host="::1", port=7078), "j", 3, "t", "ca.pem")
    assert WorkerEnvironment.from_variables(variables) == tcp
    assert tcp.variables() == variables


@pytest.mark.parametrize("text", ["unix:/a:b", "tcp:host:1", "tcp:10.0.0.1:65535", "tcp:[::1]:80"])
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(GateAddress.parse(text)) == text


def test_an_ipv6_address_needs_no_brackets() -> None:
    assert GateAddress.parse("tcp:::1:80") == GateAddress(host="::1", port=80)


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
def test_an_invalid_variable_is_an_error_that_names_it(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"{name}: must"):
        WorkerEnvironment.from_variables(VARIABLES | {name: value})


def test_without_a_gate_nothing_waits(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with worker(unix_environment(path)) as client:
        request = client.message_ready(1, 1)
        assert not client.wait_for_grant(request)
        client.message_done(request)
        assert not client.connected
    assert "no gate at unix:" in caplog.text
    assert "training continues ungated" in caplog.text


def test_a_live_gate_may_delay_a_grant(path: Path) -> None:
    with threaded_gate(unix=path) as running, worker(unix_environment(path)) as client:
        running.recorder.holding = True
        requests = [client.message_ready(1, 2), client.message_ready(1, 1)]
        running.wait_for_call("ready", "j", 1, 2, 1, 1)
        answers: list[bool] = []
        waiting = threading.Thread(
            target=lambda: answers.append(client.wait_for_grant(requests[0]))
        )
        waiting.start()
        running.call(lambda: running.gate.grant("j", 1, requests[1]))
        assert client.wait_for_grant(requests[1])
        assert waiting.is_alive()
        running.call(lambda: running.gate.grant("j", 1, requests[0]))
        waiting.join()
        assert answers == [True]


def test_a_wait_for_a_grant_may_have_an_end(path: Path) -> None:
    with threaded_gate(unix=path) as running, worker(unix_environment(path)) as client:
        running.recorder.holding = True
        request = client.message_ready(1, 1)
        began_s = time.monotonic()
        assert not client.wait_for_grant(request, began_s + 0.2)
        assert time.monotonic() >= began_s + 0.2
        assert client.connected
        # The end of an ungranted message is reported like any other.
        client.message_done(request)
        running.wait_for_call("done", "j", 1, request)


def test_a_gate_that_ends_releases_waiting_requests_and_is_found_again(path: Path) -> None:
    with threaded_gate(unix=path) as running:
        client = GateClient(unix_environment(path))
        client.wait_for_first_try(30)
        running.recorder.holding = True
        request = client.message_ready(1, 1)
        answers: list[bool] = []
        waiting = threading.Thread(target=lambda: answers.append(client.wait_for_grant(request)))
        waiting.start()
        running.wait_for_call("ready", "j", 1, request, 1, 1)
    waiting.join()
    assert answers == [False]
    with threaded_gate(unix=path) as again:
        again.wait_for_call("attached", "j", 1, 0)
        client.message_done(request)
        eventually(lambda: client.connected)
        request = client.message_ready(1, 1)
        assert client.wait_for_grant(request)
        client.close()
        again.wait_for_call("lost", "j", 1, 0)
        assert ("done", "j", 1, 1) not in again.recorder.calls


def test_a_worker_that_is_disconnected_reconnects(path: Path) -> None:
    with threaded_gate(unix=path) as running, worker(unix_environment(path)) as client:
        with RawConnection(path) as other:
            other.send(hello())
            assert other.receive() == Welcome()  # The gate has disconnected the first one.
        kinds = ["attached", "lost", "attached", "lost", "attached"]
        eventually(lambda: running.recorder.kinds() == kinds)
        eventually(lambda: client.connected)
        assert client.wait_for_grant(client.message_ready(1, 1))


def test_a_refused_worker_continues_ungated(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with threaded_gate(unix=path) as running:
        with worker(unix_environment(path, token="wrong")) as client:
            assert not client.wait_for_grant(client.message_ready(1, 1))
            eventually(lambda: "refused: the token" in caplog.text)
        assert running.recorder.calls == []


class Mute:
    """A server that welcomes a worker, sends the bytes `after`, and then nothing more."""

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


def test_a_gate_that_falls_silent_counts_as_gone(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SILENCE_TIMEOUT_S", 0.1)
    with Mute(path, b""), worker(unix_environment(path)) as client:
        assert not client.wait_for_grant(client.message_ready(1, 1))
        eventually(lambda: "it sent nothing for 0.1 s" in caplog.text)


@pytest.mark.parametrize("after", [b"\xff" * 40, encode(Ping())[:-1] + b"\x01", encode(Welcome())])
def test_a_gate_that_breaks_the_protocol_counts_as_gone(path: Path, after: bytes) -> None:
    with Mute(path, after), worker(unix_environment(path)) as client:
        assert not client.wait_for_grant(client.message_ready(1, 1))


def test_a_gate_without_a_trusted_certificate_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import ssl

    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    certificate, key = make_certificate(tmp_path / "theirs")
    ours, _ = make_certificate(tmp_path / "ours")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with threaded_gate(tcp=("127.0.0.1", 0), ssl=context) as running:
        for file in (str(ours), str(tmp_path / "none.pem"), ""):
            with worker(tcp_environment(running, certificate=file)) as client:
                assert not client.wait_for_grant(client.message_ready(1, 1))
        assert running.recorder.calls == []
    assert "certificate verify failed" in caplog.text
    assert "No such file" in caplog.text


def test_threads_share_a_connection(path: Path) -> None:
    with threaded_gate(unix=path), worker(unix_environment(path)) as client:
        granted: list[bool] = []

        def ask_often() -> None:
            for _ in range(100):
                request = client.message_ready(1, 1)
                granted.append(client.wait_for_grant(request))
                client.message_done(request)

        threads = [threading.Thread(target=ask_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert granted == [True] * 400


def test_a_worker_needs_only_the_standard_library() -> None:
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
