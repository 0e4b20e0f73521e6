"""A worker's side of the gate: ask before a message, and go on unasked when nobody answers.

A thread keeps the connection: it answers the gate's pings, takes its grants, and connects again
when the connection breaks. Nothing here waits for the network but `wait`, and that ends with the
connection: a gate that is gone stops nobody. Only the standard library is needed.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from headway.domain.errors import InputError, shown
from headway.live.protocol import (
    VERSION,
    Bye,
    Done,
    Frames,
    Grant,
    Hello,
    Iteration,
    Message,
    Ping,
    Pong,
    ProtocolError,
    Ready,
    Refused,
    Welcome,
    encode,
)
from headway.live.sockets import prefer

CONNECT_S = 5.0
"""How long the gate may take to accept a connection and to answer its hello."""

SILENCE_S = 5.0
"""How long a gate that sends a ping every second may send nothing before it counts as gone."""

FIRST_RETRY_S = 0.2
LAST_RETRY_S = 5.0

_PONG = encode(Pong())
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_log = logging.getLogger("headway")


@dataclass(frozen=True)
class Address:
    """Where the gate is, and who asks: `unix` is a path, else `host` and `port` are for TCP.

    With `certificate`, a file of the authorities to trust, TCP is encrypted.
    """

    job: str
    attempt: int
    token: str
    unix: str = ""
    host: str = ""
    port: int = 0
    certificate: str = ""

    def __str__(self) -> str:
        return f"unix:{self.unix}" if self.unix else f"tcp:{self.host}:{self.port}"


def address_from(environment: Mapping[str, str]) -> Address | None:
    """Return what the environment says about the gate; None if it does not say where it is."""
    place = environment.get("HEADWAY_GATE", "")
    if not place:
        return None
    attempt = environment.get("HEADWAY_ATTEMPT", "")
    if not (attempt.isascii() and attempt.isdigit() and len(attempt) < 10):
        raise InputError(f"must be a number, not {shown(attempt)}.", source="HEADWAY_ATTEMPT")
    job, token = environment.get("HEADWAY_JOB", ""), environment.get("HEADWAY_JOB_TOKEN", "")
    if not 0 < len(job) <= 1024:
        raise InputError(f"must name a job, not {shown(job)}.", source="HEADWAY_JOB")
    if not 0 < len(token) <= 1024:
        raise InputError("must hold the job's token.", source="HEADWAY_JOB_TOKEN")
    kind, _, rest = place.partition(":")
    if kind == "unix" and rest:
        return Address(job, int(attempt), token, unix=rest)
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or not host or not (port.isascii() and port.isdigit() and len(port) < 6):
        raise InputError(
            f"must be unix:PATH or tcp:HOST:PORT, not {shown(place)}.", source="HEADWAY_GATE"
        )
    certificate = environment.get("HEADWAY_GATE_CERT", "")
    host = host.removeprefix("[").removesuffix("]")
    return Address(job, int(attempt), token, "", host, int(port), certificate)


class GateClient:
    """A worker's connection to the gate, made again whenever it breaks."""

    def __init__(self, address: Address) -> None:
        self._address = address
        # Guards all below, and the socket: TLS allows one thread at a time. Nobody waits for the
        # network while holding it.
        self._changed = threading.Condition(threading.Lock())
        self._connection: socket.socket | None = None
        self._requests = 0
        self._asked: set[int] = set()
        self._granted: set[int] = set()
        self._closing = threading.Event()
        self._tried = threading.Event()
        self._warned = False
        self._thread = threading.Thread(target=self._keep, name="headway-gate", daemon=True)
        self._thread.start()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    @property
    def connected(self) -> bool:
        """Tell whether there is a gate to ask."""
        return self._connection is not None

    def wait_for_first_try(self, timeout_s: float) -> None:
        """Wait until the first attempt to connect has succeeded or failed."""
        self._tried.wait(timeout_s)

    def ask(self, message_bytes: int, unsent_bytes: int) -> int:
        """Ask for a message and return the number of the request; never waits."""
        with self._changed:
            self._requests += 1
            request = self._requests
            if self._send(encode(Ready(request, message_bytes, unsent_bytes))):
                self._asked.add(request)
        return request

    def wait(self, request: int) -> bool:
        """Wait for a grant; False as soon as there is nobody who could give it."""
        with self._changed:
            self._changed.wait_for(lambda: request in self._granted or request not in self._asked)
            granted = request in self._granted
            self._granted.discard(request)
        return granted

    def done(self, request: int) -> None:
        """Say that a message has ended, to the gate that knows of it."""
        with self._changed:
            if request in self._asked:
                self._asked.discard(request)
                self._granted.discard(request)
                self._send(encode(Done(request)))

    def iterated(self, iteration: Iteration) -> bool:
        """Say how many iterations are done; False if nobody heard it."""
        with self._changed:
            return self._send(encode(iteration))

    def close(self) -> None:
        """Say goodbye; whoever waits goes on."""
        self._closing.set()
        with self._changed:
            self._send(encode(Bye()))
            self._drop()

    def _send(self, frame: bytes) -> bool:
        """Send a small frame at once; a gate that reads nothing any more counts as gone."""
        if self._connection is None:
            return False
        try:
            if self._connection.send(frame) == len(frame):
                return True
        except (*_WOULD_BLOCK, OSError):
            pass
        self._drop()
        return False

    def _drop(self) -> None:
        """Be without a gate: every request is void, and its thread wakes up."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                # Wakes the thread that reads, which closes it.
                self._connection.shutdown(socket.SHUT_RDWR)
        self._connection = None
        self._asked.clear()
        self._granted.clear()
        self._changed.notify_all()

    def _forget(self) -> None:
        """Close the copy that a fork made, so that the connection ends with its own process."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        # Another thread may have held the lock at the fork: nobody would ever let go of it.
        self._changed = threading.Condition(threading.Lock())
        self._closing = threading.Event()
        self._closing.set()
        self._asked, self._granted = set(), set()

    def _keep(self) -> None:
        """Connect, read until the connection breaks, and again."""
        retry_s = FIRST_RETRY_S
        while not self._closing.is_set():
            try:
                with contextlib.closing(_connect(self._address)) as connection:
                    frames = _greet(connection, self._address)
                    retry_s = FIRST_RETRY_S
                    reason = self._use(connection, frames)
            except _RefusedError as refusal:
                reason, retry_s = f"it refuses: {refusal}", LAST_RETRY_S
            except (OSError, ProtocolError) as error:
                reason = str(error) or type(error).__name__
            self._warn(reason)
            self._tried.set()
            self._closing.wait(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    def _use(self, connection: socket.socket, frames: Frames) -> str:
        """Let requests go through a connection until it breaks; return why it did."""
        connection.setblocking(False)
        with self._changed:
            if not self._closing.is_set():
                self._connection = connection
        self._tried.set()
        if self._warned:
            _log.warning("headway: attached to the gate at %s again", self._address)
            self._warned = False
        try:
            return self._read(connection, frames)
        finally:
            with self._changed:
                self._drop()

    def _read(self, connection: socket.socket, frames: Frames) -> str:
        """Take what the gate sends until the connection breaks; return why it did."""
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        while True:
            with self._changed:
                if self._connection is not connection:
                    return "it does not read"
                while (message := frames.take()) is not None:
                    self._hear(message)
                try:
                    data = connection.recv(4096)
                except _WOULD_BLOCK:
                    data = None
            if data == b"":
                return "it closed the connection"
            if data is not None:
                frames.feed(data)
            elif not poll.poll(SILENCE_S * 1000):
                return f"it said nothing for {SILENCE_S:g} s"

    def _hear(self, message: Message) -> None:
        if isinstance(message, Grant):
            if message.request in self._asked:
                self._granted.add(message.request)
                self._changed.notify_all()
        elif isinstance(message, Ping):
            self._send(_PONG)
        elif isinstance(message, Refused):
            raise _RefusedError(message.text)
        else:
            raise ProtocolError(f"it sent a {type(message).__name__}")

    def _warn(self, reason: str) -> None:
        """Say once that there is no gate, until there is one again."""
        if not self._warned and not self._closing.is_set():
            _log.warning(
                "headway: no gate at %s (%s): training goes on unasked, and tries again",
                self._address,
                reason,
            )
            self._warned = True


class _RefusedError(Exception):
    """The gate said no."""


def _connect(address: Address) -> socket.socket:
    """Return a connection to the gate, encrypted where a certificate is given."""
    if address.unix:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(CONNECT_S)
            connection.connect(address.unix)
        except BaseException:
            connection.close()
            raise
        return connection
    connection = socket.create_connection((address.host, address.port), CONNECT_S)
    try:
        prefer(connection)
        if address.certificate:
            context = ssl.create_default_context(cafile=address.certificate)
            return context.wrap_socket(connection, server_hostname=address.host)
    except BaseException:
        connection.close()
        raise
    return connection


def _greet(connection: socket.socket, address: Address) -> Frames:
    """Prove who this is; return what the gate has said after its welcome."""
    hello = Hello(VERSION, address.job, address.attempt, 0, address.token)
    connection.sendall(encode(hello))
    frames, end = Frames(), time.monotonic() + CONNECT_S
    while (answer := frames.take()) is None:
        connection.settimeout(max(end - time.monotonic(), 0.001))
        data = connection.recv(4096)
        if not data:
            raise ConnectionResetError("it closed the connection")
        frames.feed(data)
    if isinstance(answer, Refused):
        raise _RefusedError(answer.text)
    if not isinstance(answer, Welcome):
        raise ProtocolError(f"it answered with a {type(answer).__name__}")
    return frames
