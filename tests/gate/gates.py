"""Gates to test against: in a thread of the test's process, with what they heard."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from headway.gate.protocol import VERSION, Frames, Hello, Message, encode
from headway.gate.server import Gate
from headway.gate.tokens import job_token
from headway.worker.address import Address

SECRET = "0123456789abcdef" * 4
PATIENCE_S = 30.0


class Recorder:
    """A listener that writes down what it hears, and grants at once unless it holds."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.holding = False
        self.gate: Gate | None = None

    def worker_attached(self, job: str, attempt: int, rank: int) -> None:
        self.heard.append(("attached", job, attempt, rank))

    def message_ready(
        self, job: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        self.heard.append(("ready", job, attempt, request, message_bytes, unsent_bytes))
        if not self.holding:
            assert self.gate is not None
            self.gate.grant(job, attempt, request)

    def message_done(self, job: str, attempt: int, request: int) -> None:
        self.heard.append(("done", job, attempt, request))

    def compute_ready(self, job: str, attempt: int, rank: int, request: int) -> None:
        self.heard.append(("compute", job, attempt, rank, request))
        if not self.holding:
            assert self.gate is not None
            self.gate.grant(job, attempt, request, rank)

    def compute_done(self, job: str, attempt: int, rank: int, request: int) -> None:
        self.heard.append(("computed", job, attempt, rank, request))

    def iteration_done(
        self,
        job: str,
        attempt: int,
        iterations: int,
        forward_ns: int,
        backward_ns: int,
        gradient_bytes: int,
    ) -> None:
        numbers = (iterations, forward_ns, backward_ns, gradient_bytes)
        self.heard.append(("iteration", job, attempt, *numbers))

    def worker_lost(self, job: str, attempt: int, rank: int) -> None:
        self.heard.append(("lost", job, attempt, rank))

    def words(self) -> list[str]:
        """Return the first word of all that was heard."""
        return [one[0] for one in self.heard]


class Running:
    """A gate, its listener, and the thread that runs both."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.gate = Gate(self.recorder, SECRET)
        self.recorder.gate = self.gate
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def call(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns in the loop's thread."""

        async def inside() -> Any:
            return function()

        return self.wait(inside())

    def wait(self, what: Awaitable[Any]) -> Any:
        """Return what something awaitable comes to in the loop's thread."""

        async def inside() -> Any:
            return await what

        return asyncio.run_coroutine_threadsafe(inside(), self.loop).result(PATIENCE_S)

    def hears(self, *what: Any) -> bool:
        """Wait until the listener has heard something."""
        return eventually(lambda: what in self.recorder.heard)

    def end(self) -> None:
        """Close the gate and its loop."""
        self.wait(self.gate.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@contextlib.contextmanager
def running_gate(**where: Any) -> Iterator[Running]:
    """Run a gate in a thread."""
    running = Running()
    try:
        running.wait(running.gate.start(**where))
        yield running
    finally:
        running.end()


def address(running: Running, path: Path | None = None, **others: Any) -> Address:
    """Return how the worker of job j, attempt 1, reaches a gate."""
    fields: dict[str, Any] = {"job": "j", "attempt": 1, "token": job_token(SECRET, "j", 1)}
    if path is not None:
        fields["unix"] = str(path)
    else:
        fields |= {"host": "127.0.0.1", "port": running.gate.port}
    return Address(**fields | others)


def hello(job: str = "j", attempt: int = 1, **others: Any) -> bytes:
    """Return a worker's first frame."""
    fields: dict[str, Any] = {
        "version": VERSION,
        "job": job,
        "attempt": attempt,
        "rank": 0,
        "token": job_token(SECRET, job, attempt),
    }
    return encode(Hello(**fields | others))


class Raw:
    """A connection that says whatever it is told to."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        self._frames = Frames()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    def say(self, data: bytes) -> None:
        """Send bytes, as far as anybody takes them."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def hear(self) -> Message | None:
        """Return the next message; None if the gate has closed."""
        while (message := self._frames.take()) is None:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames.feed(data)
        return message


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait until something holds; False when that takes far too long."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that signs itself; return it and its key."""
    certificate, key = folder / "gate.pem", folder / "gate.key"
    line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    words = ["-subj", "/CN=gate", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*line.split(), *words, *files], check=True, capture_output=True)
    return certificate, key
