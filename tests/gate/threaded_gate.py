"""A gate in a thread of the test's process, and a handler that records what workers send."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl as tls
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from headway.gate.address import GateAddress
from headway.gate.environment import WorkerEnvironment
from headway.gate.frames import Frame, Hello, MeasuredBucket, Profile
from headway.gate.protocol import VERSION, FrameReader, encode
from headway.gate.server import Gate
from headway.gate.tokens import job_token
from waiting import PATIENCE_S, eventually

SECRET = "0123456789abcdef" * 4
PROFILE = Profile(5, 6, (MeasuredBucket(7, 8), MeasuredBucket(9, 10)))


class Recorder:
    """A gate's handler that records calls, and grants every request at once unless `holding`."""

    gate: Gate

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.holding = False

    def worker_attached(self, job_id: str, attempt: int, rank: int) -> None:
        self.calls.append(("attached", job_id, attempt, rank))

    def message_ready(
        self, job_id: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        self.calls.append(("ready", job_id, attempt, request, message_bytes, unsent_bytes))
        if not self.holding:
            self.gate.grant(job_id, attempt, request)

    def message_done(self, job_id: str, attempt: int, request: int) -> None:
        self.calls.append(("done", job_id, attempt, request))

    def compute_ready(self, job_id: str, attempt: int, rank: int, request: int) -> None:
        self.calls.append(("compute", job_id, attempt, rank, request))
        if not self.holding:
            self.gate.grant(job_id, attempt, request, rank)

    def compute_done(self, job_id: str, attempt: int, rank: int, request: int) -> None:
        self.calls.append(("computed", job_id, attempt, rank, request))

    def iteration_done(
        self,
        job_id: str,
        attempt: int,
        iterations: int,
        forward_ns: int,
        backward_ns: int,
        gradient_bytes: int,
    ) -> None:
        numbers = (iterations, forward_ns, backward_ns, gradient_bytes)
        self.calls.append(("iteration", job_id, attempt, *numbers))

    def profiled(self, job_id: str, attempt: int, profile: Profile) -> None:
        self.calls.append(("profile", job_id, attempt, profile))

    def worker_lost(self, job_id: str, attempt: int, rank: int, hung: bool) -> None:
        self.calls.append(("lost", job_id, attempt, rank))

    def kinds(self) -> list[str]:
        """Return the kind of each call."""
        return [call[0] for call in self.calls]


class ThreadedGate:
    """A gate, its handler, and the thread that runs both."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.gate = recorder.gate = Gate(recorder, SECRET)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in the loop's thread."""

        async def inside() -> Any:
            return function()

        return self.wait(inside())

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Await something in the loop's thread."""

        async def inside() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(inside(), self.loop).result(PATIENCE_S)

    def wait_for_call(self, *call: Any) -> None:
        """Wait until the handler has recorded a call."""
        eventually(lambda: call in self.recorder.calls)

    def end(self) -> None:
        """Close the gate and its loop."""
        self.wait(self.gate.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@contextlib.contextmanager
def threaded_gate(
    unix: Path | None = None,
    tcp: tuple[str, int] | None = None,
    ssl: tls.SSLContext | None = None,
    recorder: Recorder | None = None,
) -> Iterator[ThreadedGate]:
    """Run a gate in a thread."""
    addresses = [] if unix is None else [GateAddress(path=str(unix))]
    addresses += [] if tcp is None else [GateAddress(host=tcp[0], port=tcp[1])]
    running = ThreadedGate(recorder or Recorder())
    try:
        running.wait(running.gate.start(*addresses, ssl=ssl))
        yield running
    finally:
        running.end()


def unix_environment(path: Path, token: str = "") -> WorkerEnvironment:
    """Return the environment of a worker of job j, attempt 1, at a gate on a Unix socket."""
    return WorkerEnvironment(
        GateAddress(path=str(path)), "j", 1, token or job_token(SECRET, "j", 1)
    )


def tcp_environment(
    running: ThreadedGate, host: str = "127.0.0.1", certificate: str = ""
) -> WorkerEnvironment:
    """Return the environment of a worker of job j, attempt 1, at a gate on TCP."""
    assert running.gate.port is not None
    gate = GateAddress(host=host, port=running.gate.port)
    return WorkerEnvironment(gate, "j", 1, job_token(SECRET, "j", 1), certificate)


def hello(job_id: str = "j", attempt: int = 1, **others: Any) -> bytes:
    """Return a worker's first frame."""
    fields: dict[str, Any] = {
        "version": VERSION,
        "job_id": job_id,
        "attempt": attempt,
        "rank": 0,
        "token": job_token(SECRET, job_id, attempt),
    }
    return encode(Hello(**fields | others))


class RawConnection:
    """A connection that sends any bytes."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self._reader = FrameReader()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes, unless the gate has closed the connection."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def receive(self) -> Frame | None:
        """Return the next frame; None if the gate has closed the connection."""
        while (frame := self._reader.next()) is None:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._reader.feed(data)
        return frame


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Create a self-signed certificate for 127.0.0.1; return it and its key."""
    certificate, key = folder / "gate.pem", folder / "gate.key"
    line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    words = ["-subj", "/CN=gate", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*line.split(), *words, *files], check=True, capture_output=True)
    return certificate, key
