"""The HTTP API of a real scheduler: authentication, errors and streams."""

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
from prometheus_client.parser import text_string_to_metric_families

from headway.domain.errors import InputError
from headway.live.api.client import Client, find
from headway.live.api.server import MAX_IDLE_CONNECTIONS
from headway.live.daemon.state_folder import ApiAddress, StateFolder, read_address
from live.scheduler_process import PRINTS, SchedulerProcess, python, running_scheduler

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    """Return the scheduler that these tests share."""
    with running_scheduler(tmp_path_factory.mktemp("api") / "state") as one:
        yield one


def api_address(one: SchedulerProcess) -> tuple[str, int]:
    parts = urlsplit(read_address(StateFolder(one.folder)).url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def token(one: SchedulerProcess) -> str:
    return (one.folder / "token").read_text().strip()


def send(
    one: SchedulerProcess, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any]:
    """Send a request; return the status and the JSON or text of the response."""
    connection = http.client.HTTPConnection(*api_address(one), timeout=60)
    try:
        given = {"authorization": f"Bearer {token(one)}"} | headers
        connection.request(method, path, body, {k: v for k, v in given.items() if v})
        response = connection.getresponse()
        data = response.read()
    finally:
        connection.close()
    if response.headers["content-type"] == "application/json":
        return response.status, json.loads(data)
    return response.status, data.decode()


PATHS = [
    ("GET", "/v1/status"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/1"),
    ("POST", "/v1/jobs"),
    ("POST", "/v1/jobs/1/cancel"),
    ("GET", "/v1/jobs/1/logs"),
    ("PUT", "/v1/jobs/1/priority"),
    ("GET", "/v1/nodes"),
    ("GET", "/v1/state"),
    ("POST", "/v1/what-if"),
    ("POST", "/v1/nodes/x/drain"),
    ("GET", "/v1/policy"),
    ("PUT", "/v1/policy"),
    ("GET", "/v1/events"),
    ("GET", "/v1/live"),
    ("POST", "/v1/sign-in"),
    ("POST", "/v1/sign-out"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/nothing"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_every_request_needs_the_token(shared: SchedulerProcess, method: str, path: str) -> None:
    assert send(shared, method, path, authorization="") == (401, {"error": "a token is required."})
    wrong = (401, {"error": "the token is wrong."})
    assert send(shared, method, path, authorization="Bearer x") == wrong
    assert send(shared, method, path, authorization=f"Bearer {token(shared)}x") == wrong
    assert send(shared, method, path, authorization=f"Basic {token(shared)}") == wrong


def test_a_jobs_own_token_is_refused(shared: SchedulerProcess) -> None:
    script = "import os; print(os.environ['HEADWAY_JOB_TOKEN'])"
    job = shared.submit(python(script))
    shared.wait_for(job, "done")
    own = b"".join(shared.client.logs(job)).decode().strip()
    assert len(own) >= 32
    assert send(shared, "GET", "/v1/status", authorization=f"Bearer {own}")[0] == 401


BODIES = {
    "nothing": (b"", 400, "the body must be a JSON object: "),
    "garbage": (b"\xff\x00{", 400, "the body must be a JSON object: "),
    "a list": (b"[]", 400, "expected object, got array."),
    "a wrong field": (b'{"command": ["a"], "gpus": "2"}', 400, "gpus: expected int, got str."),
    "deep nesting": (b"[" * 100_000, 400, ""),
    "too much": (b"x" * (2**20 + 1), 413, "the body is larger than 1,048,576 bytes."),
}


@pytest.mark.parametrize("name", BODIES)
def test_an_invalid_body_is_refused_in_one_sentence(shared: SchedulerProcess, name: str) -> None:
    body, status, message = BODIES[name]
    found = send(shared, "POST", "/v1/jobs", body)
    assert found[0] == status
    assert found[1]["error"].startswith(message)
    assert "\n" not in found[1]["error"]


METRICS = {
    "headway_queue_length": "gauge",
    "headway_jobs": "gauge",
    "headway_jobs_stuck": "gauge",
    "headway_jobs_ungated": "gauge",
    "headway_slots": "gauge",
    "headway_slots_free": "gauge",
    "headway_jobs_ended": "counter",
    "headway_jct_seconds": "histogram",
    "headway_node_messages": "gauge",
    "headway_node_waiting": "gauge",
    "headway_grants": "counter",
    "headway_turns": "counter",
    "headway_gate_latency_seconds": "histogram",
    "headway_admission_wait_seconds": "histogram",
    "headway_events": "counter",
    "headway_ignored_events": "counter",
    "headway_policy_failures": "counter",
    "headway_storage_works": "gauge",
    "headway_forecast_error_ratio": "histogram",
    "headway_forecasts": "counter",
    "headway_forecast_cpu_seconds": "counter",
}
"""Type of each metric in the reference; the parser leaves out `_total`."""

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
def test_an_invalid_request_is_refused_in_one_sentence(shared: SchedulerProcess, name: str) -> None:
    method, path, body, status, message = REQUESTS[name]
    found = send(shared, method, path, body)
    assert found[0] == status
    assert found[1]["error"].startswith(message)
    assert "\n" not in found[1]["error"]


def test_an_unknown_rank_is_refused(shared: SchedulerProcess) -> None:
    job = shared.submit(python(PRINTS), gpus=2)
    with pytest.raises(InputError, match="rank: must be at most 1, not 2"):
        list(shared.client.logs(job, rank=2))
    shared.wait_for(job, "done")


def test_jobs_are_listed_unfinished_first_and_by_state(shared: SchedulerProcess) -> None:
    done = shared.submit(python(PRINTS))
    shared.wait_for(done, "done")
    waits = shared.submit(python(PRINTS), gpus=1000)
    later = shared.submit(python(PRINTS))
    shared.wait_for(later, "done")
    names = [job["job_id"] for job in shared.client.jobs()]
    assert names.index(waits) < names.index(later) < names.index(done)
    status, found = send(shared, "GET", "/v1/jobs?state=done&limit=1")
    assert (status, [job["job_id"] for job in found["jobs"]]) == (200, [later])
    assert found["left_out"] >= 1
    shared.client.cancel(waits)


def test_openapi_describes_every_path_and_the_fields_of_a_job(
    shared: SchedulerProcess,
) -> None:
    status, found = send(shared, "GET", "/openapi.json")
    assert status == 200
    assert set(found["paths"]) == {
        "/v1/status",
        "/v1/jobs",
        "/v1/jobs/{job}",
        "/v1/jobs/{job}/cancel",
        "/v1/jobs/{job}/logs",
        "/v1/jobs/{job}/priority",
        "/v1/nodes",
        "/v1/state",
        "/v1/past",
        "/v1/what-if",
        "/v1/nodes/{node}/drain",
        "/v1/nodes/{node}/undrain",
        "/v1/policy",
        "/v1/events",
        "/v1/live",
        "/v1/sign-in",
        "/v1/sign-out",
        "/metrics",
    }
    body = found["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert {"command", "gpus", "folder"} <= set(body["schema"]["properties"])
    responses = found["paths"]["/v1/jobs"]["post"]["responses"]
    assert {"201", "400", "401", "408", "413", "503", "507"} <= set(responses)
    assert "503" in found["paths"]["/v1/events"]["get"]["responses"]


def test_metrics_are_what_the_reference_promises(shared: SchedulerProcess) -> None:
    shared.wait_for(shared.submit(python(PRINTS)), "done")
    status, text = send(shared, "GET", "/metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name: family.type for name, family in families.items()} == METRICS
    value = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert not [name for name, *_ in value if name.endswith("_created")]
    assert value["headway_queue_length",] == 0
    assert value["headway_jobs", "done"] >= 1
    assert value["headway_jobs_ended_total", "done"] >= 1
    assert value["headway_jct_seconds_count",] >= 1
    assert value["headway_jct_seconds_bucket", "+Inf"] == value["headway_jct_seconds_count",]
    assert value["headway_node_messages", "localhost"] == 0
    assert value["headway_node_waiting", "localhost"] == 0
    assert value["headway_events_total",] >= 3
    assert value["headway_policy_failures_total",] == 0
    assert value["headway_storage_works",] == 1
    assert value["headway_slots",] == 4
    assert value["headway_slots_free",] <= 4


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version="),
    ],
    ids=["plain text", "OpenMetrics"],
)
def test_metrics_come_in_the_format_that_prometheus_asks_for(
    shared: SchedulerProcess, accept: str, content_type: str
) -> None:
    connection = http.client.HTTPConnection(*api_address(shared), timeout=60)
    headers = {"authorization": f"Bearer {token(shared)}", "accept": accept}
    connection.request("GET", "/metrics", headers=headers)
    response = connection.getresponse()
    assert response.headers["content-type"].startswith(content_type)
    assert b"headway_queue_length 0.0\n" in response.read()
    connection.close()


class ChangeReader:
    """Reads `/v1/events` over a bare socket."""

    def __init__(self, one: SchedulerProcess, window_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if window_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        self.socket.settimeout(60)
        self.socket.connect(api_address(one))
        head = f"GET /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token(one)}\r\n\r\n"
        self.socket.sendall(head.encode())
        self.data = b""
        while b": changes follow" not in self.data:
            self.data += self.socket.recv(4096)

    def read_to(self, text: bytes) -> None:
        """Read up to this text."""
        while text not in self.data:
            more = self.socket.recv(2**20)
            assert more, "the stream has ended"
            self.data = self.data[-1000:] + more


def test_changes_are_streamed_as_they_happen(shared: SchedulerProcess) -> None:
    reader = ChangeReader(shared)
    job = shared.submit(python(PRINTS), name="streamed")
    for state in ("queued", "starting", "running", "done"):
        reader.read_to(b'"state":"%s"' % state.encode())
    node = shared.client.nodes()[0]["node"]
    shared.client.drain(node)
    reader.read_to(b'event: node\ndata: {"node":"%s","up":true,"draining":true}' % node.encode())
    shared.client.drain(node, draining=False)
    shared.client.set_policy("ff+srsf:2")
    reader.read_to(b'event: policy\ndata: {"policy":"ff+srsf:2"}')
    reader.socket.close()
    shared.wait_for(job, "done")


def test_a_subscriber_that_stops_reading_is_dropped_and_delays_nobody(
    shared: SchedulerProcess,
) -> None:
    slow, quick = ChangeReader(shared, window_bytes=4096), ChangeReader(shared)
    for number in range(60):
        spec = {"environment": {"A": "x" * 90_000}, "gpus": 1000, "name": f"n{number}"}
        job = shared.submit(python(PRINTS), **spec)
        quick.read_to(b'"name":"n%d"' % number)
        shared.client.cancel(job)
    quick.socket.close()
    while slow.socket.recv(2**20):
        pass  # What was already sent arrives, then the end.
    slow.socket.close()
    ChangeReader(shared).socket.close()


def test_many_idle_connections_delay_nobody(shared: SchedulerProcess) -> None:
    idle = [socket.create_connection(api_address(shared)) for _ in range(300)]
    for one in idle[::2]:
        one.sendall(b"GET /v1/status HT")
    assert shared.client.status()["nodes"] == 1
    for one in idle:
        one.close()


def closed(connection: socket.socket) -> bool:
    """Wait until the server has closed a connection."""
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_an_idle_connection_is_closed(shared: SchedulerProcess) -> None:
    idle, slow = (socket.create_connection(api_address(shared)) for _ in range(2))
    slow.sendall(b"GET /v1/status HTTP/1.1\r\nhost: x\r\nauthor")
    for one in (idle, slow):
        assert closed(one)
        one.close()


def test_beyond_the_limit_the_oldest_idle_connection_is_closed(
    shared: SchedulerProcess,
) -> None:
    reader = ChangeReader(shared)
    idle = [socket.create_connection(api_address(shared)) for _ in range(MAX_IDLE_CONNECTIONS + 1)]
    assert closed(idle[0])
    shared.client.set_policy("ff+srsf:1")
    reader.read_to(b'event: policy\ndata: {"policy":"ff+srsf:1"}')
    for one in (*idle, reader.socket):
        one.close()


def test_a_body_that_never_arrives_delays_nobody(shared: SchedulerProcess) -> None:
    with socket.create_connection(api_address(shared)) as slow:
        head = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token(shared)}\r\n"
        slow.sendall(f"{head}content-length: 100\r\n\r\n{{".encode())
        shared.wait_for(shared.submit(python(PRINTS)), "done")


def test_with_a_certificate_the_api_accepts_only_tls(tmp_path: Path) -> None:
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
    with running_scheduler(tmp_path / "state", settings) as one:
        assert find(one.folder).status()["nodes"] == 1
        url = read_address(StateFolder(one.folder)).url
        assert url.startswith("https://127.0.0.1:")
        with pytest.raises(InputError, match="did not respond: "):
            Client(ApiAddress(url), token(one)).status()
        with pytest.raises(InputError, match="did not respond: "):
            Client(ApiAddress(url.replace("https", "http")), token(one)).status()
        words = ("status", "--server", url, "--token-file", str(one.folder / "token"))
        for trust, code in ((("--certificate", str(certificate)), 0), ((), 2)):
            line = [sys.executable, "-m", "headway", *words, *trust]
            done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, "1 nodes" in done.stdout) == (code, code == 0), done.stderr
        link = find(one.folder).sign_in()
        assert link.startswith(f"{url}/?token=")
        page = http.client.HTTPSConnection(
            *api_address(one), context=ssl.create_default_context(cafile=str(certificate))
        )
        page.request("GET", link.removeprefix(url))
        assert "; Secure" in (page.getresponse().headers["set-cookie"] or "")
        page.close()


def test_the_name_in_a_certificate_is_verified() -> None:
    client = Client(ApiAddress("https://127.0.0.1:1"), "x" * 32)
    assert client.tls is not None
    assert client.tls.verify_mode == ssl.CERT_REQUIRED
    assert client.tls.check_hostname
