"""A worker's side of the gate: ask first, and go on unasked when nobody answers.

A thread keeps the connection: it connects again when it breaks, and answers the gate's pings while
nobody waits for a grant. Whoever waits reads from the connection itself, which saves the way from
one thread to another. Nothing here waits for the network but `wait`, and that ends with the
connection: a gate that is gone stops nobody.
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

from headway.gate.protocol import (
    Bye,
    Compute,
    Computed,
    Done,
    Frames,
    Grant,
    Iteration,
    Message,
    Ping,
    Pong,
    ProtocolError,
    Ready,
    Refused,
    encode,
)
from headway.worker.address import Address, RefusedError, connect, greet

SILENCE_S = 5.0
"""How long a gate that sends a ping every second may send nothing before it counts as gone."""

FIRST_RETRY_S = 0.2
LAST_RETRY_S = 5.0

REST_S = 0.25
"""How long after a wait for a grant the thread leaves the connection to the next one."""

_PONG = encode(Pong())
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_log = logging.getLogger("headway")


class GateClient:
    """A worker's connection to the gate, made again whenever it breaks."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._set_locks()
        # All this and the socket belong to whoever holds the lock: TLS allows one thread at a time.
        # Nobody waits for the network while holding it.
        self._connection: socket.socket | None = None
        self._frames = Frames()
        self._poll = select.poll()
        self._reading = False
        self._waited_s = float("-inf")
        self._requests = 0
        self._asked: set[int] = set()
        self._granted: set[int] = set()
        self._lost = ""
        self._refused = False

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
        with self._lock:
            self._requests += 1
            request = self._requests
            if self._send(encode(Ready(request, message_bytes, unsent_bytes))):
                self._asked.add(request)
        return request

    def ask_to_compute(self) -> int:
        """Ask for a turn to compute and return the number of the request; never waits."""
        with self._lock:
            self._requests += 1
            request = self._requests
            if self._send(encode(Compute(request))):
                self._asked.add(request)
        return request

    def wait(self, request: int) -> bool:
        """Wait for a grant; False as soon as there is nobody who could give it."""
        with self._lock:
            while request in self._asked and request not in self._granted:
                self._waited_s = time.monotonic()
                if self._reading:
                    self._heard.wait()
                else:
                    self._read()
            granted = request in self._granted
            self._granted.discard(request)
        return granted

    def done(self, request: int) -> None:
        """Say that a message has ended, to the gate that knows of it."""
        self._end(request, Done(request))

    def computed(self, request: int) -> None:
        """Say that a computation has ended, to the gate that knows of it."""
        self._end(request, Computed(request))

    def iterated(self, iteration: Iteration) -> bool:
        """Say how many iterations are done; False if nobody heard it."""
        with self._lock:
            return self._send(encode(iteration))

    def close(self) -> None:
        """Say goodbye; whoever waits goes on."""
        self._closing.set()
        with self._lock:
            self._send(encode(Bye()))
            self._drop("this worker has ended")

    def _end(self, request: int, message: Message) -> None:
        with self._lock:
            if request in self._asked:
                self._asked.discard(request)
                self._granted.discard(request)
                self._send(encode(message))

    def _set_locks(self) -> None:
        self._lock = threading.Lock()
        self._heard = threading.Condition(self._lock)
        self._broken = threading.Condition(self._lock)

    def _forget(self) -> None:
        """Close the copy that a fork made, so that the connection ends with its own process."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        # Another thread may have held a lock at the fork: nobody would ever let go of it.
        self._set_locks()
        self._closing = threading.Event()
        self._closing.set()
        self._asked, self._granted = set(), set()

    def _send(self, frame: bytes) -> bool:
        """Send a small frame at once; a gate that reads nothing any more counts as gone."""
        if self._connection is None:
            return False
        try:
            if self._connection.send(frame) == len(frame):
                return True
            self._drop("it does not read")
        except _WOULD_BLOCK:
            self._drop("it does not read")
        except OSError as error:
            self._drop(str(error))
        return False

    def _drop(self, reason: str) -> None:
        """Be without a gate: every request is void, and whoever waits wakes up."""
        if self._connection is None:
            return
        with contextlib.suppress(OSError):
            # Wakes whoever reads from it; the thread closes it.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection = None
        self._lost = reason
        self._asked.clear()
        self._granted.clear()
        self._heard.notify_all()
        self._broken.notify_all()

    def _read(self) -> None:
        """Wait for the gate's next words without holding the lock, and heed them."""
        connection, self._reading = self._connection, True
        self._lock.release()
        try:
            came = self._poll.poll(SILENCE_S * 1000)
        finally:
            self._lock.acquire()
            self._reading = False
            self._heard.notify_all()
        if connection is None or self._connection is not connection:
            return
        if not came:
            self._drop(f"it said nothing for {SILENCE_S:g} s")
            return
        try:
            # More than a record of TLS holds: nothing stays behind where poll would not see it.
            data = connection.recv(65536)
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self._drop(str(error))
            return
        if data:
            self._frames.feed(data)
            self._heed_all()
        else:
            self._drop("it closed the connection")

    def _heed_all(self) -> None:
        """Do as the gate has said so far."""
        try:
            while self._connection is not None and (message := self._frames.take()) is not None:
                self._heed(message)
        except ProtocolError as error:
            self._drop(str(error))

    def _heed(self, message: Message) -> None:
        if isinstance(message, Grant):
            if message.request in self._asked:
                self._granted.add(message.request)
        elif isinstance(message, Ping):
            self._send(_PONG)
        elif isinstance(message, Refused):
            self._refused = True
            self._drop(f"it refuses: {message.text}")
        else:
            raise ProtocolError(f"it sent a {type(message).__name__}")

    def _keep(self) -> None:
        """Connect, keep the connection until it breaks, and again."""
        retry_s = FIRST_RETRY_S
        while not self._closing.is_set():
            self._refused = False
            try:
                with contextlib.closing(connect(self._address)) as connection:
                    frames = greet(connection, self._address)
                    self._use(connection, frames)
                    reason, retry_s = self._lost, FIRST_RETRY_S
            except RefusedError as refusal:
                reason, self._refused = f"it refuses: {refusal}", True
            except (OSError, ProtocolError) as error:
                reason = str(error) or type(error).__name__
            self._warn(reason)
            self._tried.set()
            if self._refused:
                retry_s = LAST_RETRY_S
            self._closing.wait(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    def _use(self, connection: socket.socket, frames: Frames) -> None:
        """Let requests go through a connection until it breaks."""
        connection.setblocking(False)
        if self._warned:
            _log.warning("headway: attached to the gate at %s again", self._address)
            self._warned = False
        with self._lock:
            if self._closing.is_set():
                return
            self._connection, self._frames, self._poll = connection, frames, select.poll()
            self._poll.register(connection, select.POLLIN)
            self._tried.set()
            self._heed_all()
            while self._connection is connection:
                if self._reading or time.monotonic() < self._waited_s + REST_S:
                    self._broken.wait(REST_S)
                else:
                    self._read()
            while self._reading:
                self._heard.wait()

    def _warn(self, reason: str) -> None:
        """Say once that there is no gate, until there is one again."""
        if not self._warned and not self._closing.is_set():
            _log.warning(
                "headway: no gate at %s (%s): training goes on unasked, and tries again",
                self._address,
                reason,
            )
            self._warned = True
