"""One connection to the gate: its frames, its heartbeat and its end."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple, Protocol, cast

from headway.gate import frames
from headway.gate.frames import Frame
from headway.gate.protocol import MAX_OPEN_REQUESTS, FrameReader, ProtocolError, encode
from headway.gate.sockets import prioritize

HELLO_TIMEOUT_S = 5.0
"""How long a new connection may take to send its Hello."""

PING_INTERVAL_S = 1.0
MAX_UNANSWERED_PINGS = 5
"""Pings in a row that a worker may leave unanswered. Pings are counted, not seconds: an event loop
that was blocked has sent none, so no worker is disconnected for it."""

REFUSAL_DELAY_S = 1.0
"""How long the answer to an invalid token is delayed, to slow down guessing."""

MAX_UNREAD_BYTES = 64 * 1024
"""Bytes that may wait for a worker to read them; a grant has 13."""

MAX_FRAMES_PER_S = 2_000
FRAMES_BURST = 20_000
"""Frames that a worker may send on average, and at once. One that sends more is not read for a
while: every request is in the event log, where a flood would push out the history of others."""

FRAMES_PER_TURN = 16
"""Frames of one connection that are handled before other connections get a turn."""

_PING = encode(frames.Ping())


class WorkerId(NamedTuple):
    """One rank of one attempt at a job."""

    job_id: str
    attempt: int
    rank: int


class ConnectionHandler(Protocol):
    """What a connection reports to its gate."""

    def connection_opened(self, connection: Connection) -> None:
        """A connection was accepted; it has not said who it is."""

    def connection_closed(self, connection: Connection) -> None:
        """A connection has ended."""

    def hello_received(self, connection: Connection, hello: frames.Hello) -> str:
        """Welcome a worker and return "", or return why it is refused."""

    def frame_received(self, connection: Connection, frame: Frame) -> bool:
        """Handle a worker's frame; False if a worker may not send it."""


class Connection(asyncio.Protocol):
    """A connection, anonymous (`worker` is None) until `welcome`.

    `open_requests` holds the requests that have not ended, and whether each has been granted.
    """

    def __init__(self, handler: ConnectionHandler) -> None:
        self.worker: WorkerId | None = None
        self.open_requests: dict[int, bool] = {}
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._unanswered_pings = 0
        self._frames = 0.0  # handled, less those that were allowed since
        self._frames_since_s = self._loop.time()
        self._rescheduled = False
        self.hung = False
        """Whether it was ended because its worker had stopped answering."""
        self._refused = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout for the Hello."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)
        self._timer = self._loop.call_later(HELLO_TIMEOUT_S, self.end)
        self._handler.connection_opened(self)
        try:
            prioritize(transport.get_extra_info("socket"))
        except OSError:
            self.end()

    def data_received(self, data: bytes) -> None:
        """Handle the frames that are complete."""
        self._unanswered_pings = 0
        self._reader.feed(data)
        if not self._rescheduled:
            self._handle_frames()

    def pause_writing(self) -> None:
        """Disconnect a worker that does not read.

        Not at once: asyncio may call this inside `send`, and so inside a call of the gate's user.
        """
        self._loop.call_soon(self.end)

    def connection_lost(self, _error: Exception | None) -> None:
        """End, whichever side closed the connection."""
        self.end()

    def welcome(self, worker: WorkerId) -> None:
        """Become the connection of a worker, and start its heartbeat."""
        self.worker = worker
        self.send(encode(frames.Welcome()))
        self._timer.cancel()
        # A random phase: workers that connect together are not pinged together.
        self._timer = self._loop.call_later(random.random() * PING_INTERVAL_S, self._ping)

    def open_request(self, request: int) -> bool:
        """Record a request; False if it is open already or too many are."""
        if request in self.open_requests or len(self.open_requests) >= MAX_OPEN_REQUESTS:
            return False
        self.open_requests[request] = False
        return True

    def send(self, data: bytes) -> None:
        """Send an encoded frame, or drop it if the connection has ended."""
        if not self._ended:
            self._transport.write(data)

    def refuse(self, text: str) -> None:
        """Send the reason for a refusal, and end."""
        self.send(encode(frames.Refused(text)))
        self._transport.close()
        self.end()

    def end(self) -> None:
        """Close the connection now; bytes that are not yet read or sent are dropped."""
        if self._ended:
            return
        self._ended = True
        self._timer.cancel()
        self._handler.connection_closed(self)
        # A transport that is closing with an empty buffer has sent everything; do not abort it.
        if not self._transport.is_closing() or self._transport.get_write_buffer_size() > 0:
            self._transport.abort()

    def _handle_frames(self) -> None:
        """Handle a few frames, and reschedule the rest so that other connections get a turn."""
        was_rescheduled, self._rescheduled = self._rescheduled, False
        try:
            for _ in range(FRAMES_PER_TURN):
                if self._ended or self._refused:
                    return
                frame = self._reader.next()
                if frame is None and self._frames <= FRAMES_BURST:
                    if was_rescheduled:
                        self._transport.resume_reading()
                    return
                if frame is None:
                    break
                self._handle(frame)
                self._frames += 1
        except ProtocolError:
            self.end()
            return
        except BaseException:
            self.end()
            raise
        self._rescheduled = True
        if not was_rescheduled and not self._ended:
            self._transport.pause_reading()
        if (pause_s := self._excess_s()) > 0:
            self._loop.call_later(pause_s, self._handle_frames)
        else:
            self._loop.call_soon(self._handle_frames)

    def _excess_s(self) -> float:
        """Return for how long not to read, because too many frames have come; usually 0."""
        if self._frames <= FRAMES_BURST:
            return 0.0
        now_s = self._loop.time()
        earned = (now_s - self._frames_since_s) * MAX_FRAMES_PER_S
        self._frames = max(0.0, self._frames - earned)
        self._frames_since_s = now_s
        return max(0.0, (self._frames - FRAMES_BURST) / MAX_FRAMES_PER_S)

    def _handle(self, frame: Frame) -> None:
        if isinstance(frame, frames.Pong):
            return
        if isinstance(frame, frames.Bye):
            self.end()
        elif self.worker is not None:
            if not self._handler.frame_received(self, frame):
                raise ProtocolError(f"unexpected {type(frame).__name__} from a worker")
        elif isinstance(frame, frames.Hello):
            refusal = self._handler.hello_received(self, frame)
            if refusal:
                self._refused = True
                self._transport.pause_reading()
                self._timer.cancel()
                self._timer = self._loop.call_later(REFUSAL_DELAY_S, self.refuse, refusal)
        else:
            raise ProtocolError("the first frame must be a Hello")

    def _ping(self) -> None:
        """Send a ping, or disconnect a worker that has left too many unanswered."""
        if self._unanswered_pings == MAX_UNANSWERED_PINGS:
            self.hung = True
            self.end()
            return
        self._unanswered_pings += 1
        self.send(_PING)
        self._timer = self._loop.call_later(PING_INTERVAL_S, self._ping)
