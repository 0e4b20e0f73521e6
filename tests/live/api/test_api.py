"""The HTTP API of a real scheduler: who may ask, what is refused, and answers that go on."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headway.domain.errors import InputError
from headway.live.api.client import Client, find
from headway.live.api.server import MOST_STRANGERS
from headway.live.daemon.state_folder import Address, Places, read_address
from live.serving import PRINTS, Served, python, served


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return the scheduler that these tests share."""
    with served(tmp_path_factory.mktemp("api") / "state") as one:
        yield one


def place(one: Served) -> tuple[str, int]:
    parts = urlsplit(read_address(Places(one.folder)).url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def token(one: Served) -> str:
    return (one.folder / "token").read_text().strip()


def ask(
    one: Served, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any]:
    """Send a request; return the status, and the JSON or text."""
    connection = http.client.HTTPConnection(*place(one), timeout=60)
    try:
        given = {"authorization": f"Bearer {token(one)}"} | headers
        connection.request(method, path, body, {k: v for k, v in given.items() if v})
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    if answer.headers["content-type"] == "application/json":
        return answer.status, json.loads(data)
    return answer.status, data.decode()


PATHS = [
    ("GET", "/v1/status"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/1"),
    ("POST", "/v1/jobs"),
    ("POST", "/v1/jobs/1/cancel"),
    ("GET", "/v1/jobs/1/logs"),
    ("GET", "/v1/nodes"),
    ("POST", "/v1/nodes/x/drain"),
    ("GET", "/v1/policy"),
    ("PUT", "/v1/policy"),
    ("GET", "/v1/events"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/nothing"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_nothing_is_told_or_done_without_the_token(shared: Served, method: str, path: str) -> None:
    assert ask(shared, method, path, authorization="") == (401, {"error": "a token is needed."})
    wrong = (401, {"error": "the token is wrong."})
    assert ask(shared, method, path, authorization="Bearer x") == wrong
    assert ask(shared, method, path, authorization=f"Bearer {token(shared)}x") == wrong
    assert ask(shared, method, path, authorization=f"Basic {token(shared)}") == wrong


def test_a_jobs_own_token_opens_nothing(shared: Served) -> None:
    script = "import os; print(os.environ['HEADWAY_JOB_TOKEN'])"
    job = shared.submit(python(script))
    shared.reaches(job, "done")
    own = b"".join(shared.client.logs(job)).decode().strip()
    assert len(own) >= 32
    assert ask(shared, "GET", "/v1/status", authorization=f"Bearer {own}")[0] == 401


BODIES = {
    "nothing": (b"", 400, "the body must be a JSON object: "),
    "garbage": (b"\xff\x00{", 400, "the body must be a JSON object: "),
    "a list": (b"[]", 400, "expected object, got array."),
    "a wrong field": (b'{"command": ["a"], "gpus": "2"}', 400, "gpus: expected int, got str."),
    "deep nesting": (b"[" * 100_000, 400, ""),
    "too much": (b"x" * (2**20 + 1), 413, "the body is larger than 1,048,576 bytes."),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_makes_no_sense_is_refused_in_a_sentence(shared: Served, name: str) -> None:
    body, status, message = BODIES[name]
    found = ask(shared, "POST", "/v1/jobs", body)
    assert found[0] == status
    assert found[1]["error"].startswith(message)
    assert "\n" not in found[1]["error"]


REQUESTS = {
    "an unknown job": ("GET", "/v1/jobs/99999", b"", 404, "there is no job 99999."),
    "a job that is no number": ("GET", "/v1/jobs/..%2fx", b"", 404, ""),
    "an unknown node": ("POST", "/v1/nodes/x/drain", b"", 404, "there is no node x."),
    "an unknown path": ("GET", "/v2", b"", 404, "GET /v2: Not Found."),
    "a wrong method": ("DELETE", "/v1/jobs", b"", 405, "DELETE /v1/jobs: Method Not Allowed."),
    "a rank in words": ("GET", "/v1/jobs/1/logs?rank=x", b"", 400, "rank: "),
    "too long a list": ("GET", "/v1/jobs?limit=10000", b"", 400, "limit: "),
    "no policy": ("PUT", "/v1/policy", b"{}", 400, 'the body must be like {"policy": "paper"}: '),
    "an unknown policy": ("PUT", "/v1/policy", b'{"policy": "x"}', 400, "unknown policy 'x'."),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_cannot_be_done_is_refused_in_a_sentence(shared: Served, name: str) -> None:
    method, path, body, status, message = REQUESTS[name]
    found = ask(shared, method, path, body)
    assert found[0] == status
    assert found[1]["error"].startswith(message)
    assert "\n" not in found[1]["error"]


def test_a_rank_that_the_job_does_not_have_is_refused(shared: Served) -> None:
    job = shared.submit(python(PRINTS), gpus=2)
    with pytest.raises(InputError, match="rank: must be at most 1, not 2"):
        list(shared.client.logs(job, rank=2))
    shared.reaches(job, "done")


def test_jobs_are_listed_unfinished_first_and_by_state(shared: Served) -> None:
    done = shared.submit(python(PRINTS))
    shared.reaches(done, "done")
    waits = shared.submit(python(PRINTS), gpus=1000)
    later = shared.submit(python(PRINTS))
    shared.reaches(later, "done")
    names = [job["job_id"] for job in shared.client.jobs()]
    assert names.index(waits) < names.index(later) < names.index(done)
    status, found = ask(shared, "GET", "/v1/jobs?state=done&limit=1")
    assert (status, [job["job_id"] for job in found["jobs"]]) == (200, [later])
    assert found["left_out"] >= 1
    shared.client.cancel(waits)


def test_the_openapi_description_has_every_path_and_the_fields_of_a_job(shared: Served) -> None:
    status, found = ask(shared, "GET", "/openapi.json")
    assert status == 200
    assert set(found["paths"]) == {
        "/v1/status",
        "/v1/jobs",
        "/v1/jobs/{job}",
        "/v1/jobs/{job}/cancel",
        "/v1/jobs/{job}/logs",
        "/v1/nodes",
        "/v1/nodes/{node}/drain",
        "/v1/nodes/{node}/undrain",
        "/v1/policy",
        "/v1/events",
        "/metrics",
    }
    body = found["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert {"command", "gpus", "folder"} <= set(body["schema"]["properties"])
    answers = found["paths"]["/v1/jobs"]["post"]["responses"]
    assert {"201", "400", "401", "408", "413", "503", "507"} <= set(answers)
    assert "503" in found["paths"]["/v1/events"]["get"]["responses"]


def test_the_figures_are_what_prometheus_reads(shared: Served) -> None:
    shared.reaches(shared.submit(python(PRINTS)), "done")
    status, text = ask(shared, "GET", "/metrics")
    assert status == 200
    values = dict(
        line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")
    )
    assert float(values["headway_queue_length"]) == 0
    assert float(values['headway_jobs{state="done"}']) >= 1
    assert float(values["headway_jct_seconds_count"]) >= 1
    assert values['headway_jct_seconds_bucket{le="+Inf"}'] == values["headway_jct_seconds_count"]
    assert values['headway_node_messages{node="localhost"}'] == "0"
    assert "headway_grants_total" in values
    assert "headway_ignored_events_total" in values
    assert "headway_gate_latency_seconds_count" in values
    assert values["headway_policy_failures_total"] == "0"
    assert values["headway_storage_works"] == "1"


class Listening:
    """A reader of changes, over a bare socket."""

    def __init__(self, one: Served, window_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if window_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        self.socket.settimeout(60)
        self.socket.connect(place(one))
        head = f"GET /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token(one)}\r\n\r\n"
        self.socket.sendall(head.encode())
        self.data = b""
        while b": changes follow" not in self.data:
            self.data += self.socket.recv(4096)

    def reads(self, text: bytes) -> None:
        """Read until this comes; what came before it counts no more."""
        while text not in self.data:
            more = self.socket.recv(2**20)
            assert more, "the stream has ended"
            self.data = self.data[-1000:] + more


def test_changes_are_told_as_they_happen(shared: Served) -> None:
    listening = Listening(shared)
    job = shared.submit(python(PRINTS), name="told")
    for state in ("queued", "starting", "running", "done"):
        listening.reads(b'"state":"%s"' % state.encode())
    node = shared.client.nodes()[0]["node"]
    shared.client.drain(node)
    listening.reads(b'event: node\ndata: {"node":"%s","up":true,"draining":true}' % node.encode())
    shared.client.drain(node, draining=False)
    shared.client.choose_policy("ff+srsf:2")
    listening.reads(b'event: policy\ndata: {"policy":"ff+srsf:2"}')
    listening.socket.close()
    shared.reaches(job, "done")


def test_a_reader_that_stops_reading_is_let_go_and_nobody_waits_for_it(shared: Served) -> None:
    slow, quick = Listening(shared, window_bytes=4096), Listening(shared)
    for number in range(60):
        spec = {"environment": {"A": "x" * 90_000}, "gpus": 1000, "name": f"n{number}"}
        job = shared.submit(python(PRINTS), **spec)
        quick.reads(b'"name":"n%d"' % number)
        shared.client.cancel(job)
    quick.socket.close()
    while slow.socket.recv(2**20):
        pass  # What was on its way comes, and then the end.
    slow.socket.close()
    Listening(shared).socket.close()


def test_many_idle_connections_disturb_nobody(shared: Served) -> None:
    idle = [socket.create_connection(place(shared)) for _ in range(300)]
    for one in idle[::2]:
        one.sendall(b"GET /v1/status HT")
    assert shared.client.status()["nodes"] == 1
    for one in idle:
        one.close()


def closed(connection: socket.socket) -> bool:
    """Wait until the other side has closed a connection."""
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_that_asks_for_nothing_is_closed(shared: Served) -> None:
    idle, slow = (socket.create_connection(place(shared)) for _ in range(2))
    slow.sendall(b"GET /v1/status HTTP/1.1\r\nhost: x\r\nauthor")
    for one in (idle, slow):
        assert closed(one)
        one.close()


def test_of_too_many_connections_that_ask_for_nothing_the_oldest_is_closed(shared: Served) -> None:
    listening = Listening(shared)
    idle = [socket.create_connection(place(shared)) for _ in range(MOST_STRANGERS + 1)]
    assert closed(idle[0])
    shared.client.choose_policy("ff+srsf:1")
    listening.reads(b'event: policy\ndata: {"policy":"ff+srsf:1"}')
    for one in (*idle, listening.socket):
        one.close()


def test_a_body_that_never_comes_holds_up_nobody(shared: Served) -> None:
    with socket.create_connection(place(shared)) as slow:
        head = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token(shared)}\r\n"
        slow.sendall(f"{head}content-length: 100\r\n\r\n{{".encode())
        shared.reaches(shared.submit(python(PRINTS)), "done")


def test_with_a_certificate_the_api_speaks_tls_alone(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    settings = f'certificate = "{certificate}"\nkey = "{key}"\n'
    with served(tmp_path / "state", settings) as one:
        assert find(one.folder).status()["nodes"] == 1
        url = read_address(Places(one.folder)).url
        assert url.startswith("https://127.0.0.1:")
        with pytest.raises(InputError, match="did not answer: "):
            Client(Address(url), token(one)).status()
        with pytest.raises(InputError, match="did not answer: "):
            Client(Address(url.replace("https", "http")), token(one)).status()
        words = ("status", "--server", url, "--token-file", str(one.folder / "token"))
        for trust, code in ((("--certificate", str(certificate)), 0), ((), 2)):
            line = [sys.executable, "-m", "headway", *words, *trust]
            done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, "1 nodes" in done.stdout) == (code, code == 0), done.stderr


def test_the_names_of_a_certificate_are_checked() -> None:
    client = Client(Address("https://127.0.0.1:1"), "x" * 32)
    assert client._context is not None
    assert client._context.verify_mode == ssl.CERT_REQUIRED
    assert client._context.check_hostname
