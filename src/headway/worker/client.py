"""A worker's connection to the gate: ask first, and continue ungated when there is no gate.

A thread maintains the connection: it reconnects when the connection breaks, and answers pings while
no caller waits for a grant. A caller that waits for a grant reads from the connection itself, which
saves a switch between threads. Only `wait_for_grant` waits for the network, and it returns when the
connection breaks: a gate that is gone blocks no caller.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import select
import socket
import ssl
import threading
import time

from headway.gate import frames
from headway.gate.environment import WorkerEnvironment
from headway.gate.frames import Frame
from headway.gate.protocol import FrameReader, ProtocolError, encode
from headway.worker.handshake import GateRefusedError, connect, say_hello

SILENCE_TIMEOUT_S = 5.0
"""How long a gate, which pings every second, may send nothing before it counts as gone."""

MIN_RETRY_S = 0.2
MAX_RETRY_S = 5.0

IDLE_S = 0.25
"""How long after a wait for a grant the thread leaves the connection to the next such wait."""

_PONG = encode(frames.Pong())
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_log = logging.getLogger("headway")


class GateClient:
    """A rank's connection to the gate, reopened whenever it breaks."""

    def __init__(self, environment: WorkerEnvironment, rank: int = 0) -> None:
        self._environment, self._rank = environment, rank
        self._create_locks()
        # The fields up to the blank line and the socket belong to the holder of the lock: TLS
        # allows one thread at a time. No thread waits for the network while holding it.
        self._connection: socket.socket | None = None
        self._reader = FrameReader()
        self._poll = select.poll()
        self._reading = False
        self._last_wait_s = float("-inf")
        self._requests = 0
        self._asked: set[int] = set()
        self._granted: set[int] = set()
        self._lost_reason = ""
        self._refused = False

        self._closing = threading.Event()
        self._tried = threading.Event()
        self._warned = False
        self._thread = threading.Thread(target=self._maintain, name="headway-gate", daemon=True)
        self._thread.start()
        os.register_at_fork(after_in_child=self._close_after_fork)
        atexit.register(self.close)

    @property
    def connected(self) -> bool:
        """Whether there is a gate to ask."""
        return self._connection is not None

    def wait_for_first_try(self, timeout_s: float) -> None:
        """Wait until the first attempt to connect has succeeded or failed."""
        self._tried.wait(timeout_s)

    def message_ready(self, message_bytes: int, unsent_bytes: int) -> int:
        """Ask to start a message and return the request's number; never blocks."""
        with self._lock:
            self._requests += 1
            request = self._requests
            if self._send(encode(frames.Ready(request, message_bytes, unsent_bytes))):
                self._asked.add(request)
        return request

    def compute_ready(self) -> int:
        """Ask for a turn to compute and return the request's number; never blocks."""
        with self._lock:
            self._requests += 1
            request = self._requests
            if self._send(encode(frames.Compute(request))):
                self._asked.add(request)
        return request

    def wait_for_grant(self, request: int, until_s: float = math.inf) -> bool:
        """Wait for a grant; False as soon as there is no gate that could give it.

        Also False at the monotonic time `until_s`, whatever the gate intends.
        """
        with self._lock:
            while request in self._asked and request not in self._granted:
                self._last_wait_s = time.monotonic()
                left_s = until_s - self._last_wait_s
                if left_s <= 0:
                    break
                if self._reading:
                    self._data_read.wait(min(left_s, SILENCE_TIMEOUT_S))
                else:
                    self._read(min(left_s, SILENCE_TIMEOUT_S))
            granted = request in self._granted
            self._granted.discard(request)
        return granted

    def message_done(self, request: int) -> None:
        """Report the end of a message to the gate that knows of it."""
        self._end(request, frames.Done(request))

    def compute_done(self, request: int) -> None:
        """Report the end of a computation to the gate that knows of it."""
        self._end(request, frames.Computed(request))

    def report(self, report: frames.Iteration | frames.Profile) -> bool:
        """Report the iterations so far, or the average one; False if there is no gate."""
        with self._lock:
            return self._send(encode(report))

    def close(self) -> None:
        """Disconnect in good order; waits for grants return."""
        self._closing.set()
        with self._lock:
            self._send(encode(frames.Bye()))
            self._drop("this worker has ended")

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, after `close`."""
        self._thread.join(timeout_s)

    def _end(self, request: int, frame: Frame) -> None:
        with self._lock:
            if request in self._asked:
                self._asked.discard(request)
                self._granted.discard(request)
                self._send(encode(frame))

    def _create_locks(self) -> None:
        self._lock = threading.Lock()
        self._data_read = threading.Condition(self._lock)
        self._broken = threading.Condition(self._lock)

    def _close_after_fork(self) -> None:
        """Close the child's copy of the connection, so that it ends with the parent process."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        # A thread of the parent may have held a lock at the fork: the child could never take it.
        self._create_locks()
        self._closing = threading.Event()
        self._closing.set()
        self._asked, self._granted = set(), set()

    def _send(self, data: bytes) -> bool:
        """Send a small frame without blocking; a gate that does not read counts as gone."""
        if self._connection is None:
            return False
        try:
            if self._connection.send(data) == len(data):
                return True
            self._drop("it does not read")
        except _WOULD_BLOCK:
            self._drop("it does not read")
        except OSError as error:
            self._drop(str(error))
        return False

    def _drop(self, reason: str) -> None:
        """Give up the connection: all requests are void, and all waits return."""
        if self._connection is None:
            return
        with contextlib.suppress(OSError):
            # Wakes the thread that reads from it; `_maintain` closes it.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection = None
        self._lost_reason = reason
        self._asked.clear()
        self._granted.clear()
        self._data_read.notify_all()
        self._broken.notify_all()

    def _read(self, timeout_s: float = SILENCE_TIMEOUT_S) -> None:
        """Wait for data without holding the lock, and handle the frames in it."""
        connection, self._reading = self._connection, True
        self._lock.release()
        try:
            ready = self._poll.poll(timeout_s * 1000)
        finally:
            self._lock.acquire()
            self._reading = False
            self._data_read.notify_all()
        if connection is None or self._connection is not connection:
            return
        if not ready:
            if timeout_s == SILENCE_TIMEOUT_S:
                self._drop(f"it sent nothing for {SILENCE_TIMEOUT_S:g} s")
            return
        try:
            # More than a TLS record holds: nothing stays in its buffer, where poll cannot see it.
            data = connection.recv(65536)
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self._drop(str(error))
            return
        if data:
            self._reader.feed(data)
            self._handle_frames()
        else:
            self._drop("it closed the connection")

    def _handle_frames(self) -> None:
        try:
            while self._connection is not None and (frame := self._reader.next()) is not None:
                self._handle(frame)
        except ProtocolError as error:
            self._drop(str(error))

    def _handle(self, frame: Frame) -> None:
        if isinstance(frame, frames.Grant):
            if frame.request in self._asked:
                self._granted.add(frame.request)
        elif isinstance(frame, frames.Ping):
            self._send(_PONG)
        elif isinstance(frame, frames.Refused):
            self._refused = True
            self._drop(f"refused: {frame.text}")
        else:
            raise ProtocolError(f"it sent a {type(frame).__name__}")

    def _maintain(self) -> None:
        """Connect, serve the connection until it breaks, and start over."""
        retry_s = MIN_RETRY_S
        while not self._closing.is_set():
            self._refused = False
            try:
                with contextlib.closing(connect(self._environment)) as connection:
                    reader = say_hello(connection, self._environment, self._rank)
                    self._use(connection, reader)
                    reason, retry_s = self._lost_reason, MIN_RETRY_S
            except GateRefusedError as refusal:
                reason, self._refused = f"refused: {refusal}", True
            except (OSError, ProtocolError) as error:
                reason = str(error) or type(error).__name__
            self._warn(reason)
            self._tried.set()
            if self._refused:
                retry_s = MAX_RETRY_S
            self._closing.wait(retry_s)
            retry_s = min(2 * retry_s, MAX_RETRY_S)

    def _use(self, connection: socket.socket, reader: FrameReader) -> None:
        """Serve requests on a connection until it breaks."""
        connection.setblocking(False)
        if self._warned:
            _log.warning("headway: connected to the gate at %s again", self._environment.gate)
            self._warned = False
        with self._lock:
            if self._closing.is_set():
                return
            self._connection, self._reader, self._poll = connection, reader, select.poll()
            self._poll.register(connection, select.POLLIN)
            self._tried.set()
            self._handle_frames()
            while self._connection is connection:
                if self._reading or time.monotonic() < self._last_wait_s + IDLE_S:
                    self._broken.wait(IDLE_S)
                else:
                    self._read()
            while self._reading:
                self._data_read.wait()

    def _warn(self, reason: str) -> None:
        """Warn that there is no gate, once until there is one again."""
        if not self._warned and not self._closing.is_set():
            _log.warning(
                "headway: no gate at %s (%s): training continues ungated while it reconnects",
                self._environment.gate,
                reason,
            )
            self._warned = True
