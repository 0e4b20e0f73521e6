"""One connection to the gate: its frames, its heartbeat, and its end."""

from __future__ import annotations

import asyncio
import random
from typing import Protocol, cast

from headway.gate.protocol import (
    MOST_OPEN,
    Bye,
    Frames,
    Hello,
    Message,
    Ping,
    Pong,
    ProtocolError,
    Refused,
    Welcome,
    encode,
)
from headway.gate.sockets import prefer

HELLO_S = 5.0
"""How long a connection may take to say who it is."""

BEAT_S = 1.0
SILENT_BEATS = 5
"""Beats that a worker may leave unanswered. Beats are counted, not seconds: a loop that stood still
has asked nobody, and blames nobody."""

REFUSAL_S = 1.0
"""How long whoever has no valid token waits for the answer, and cannot try another one."""

MOST_UNREAD_BYTES = 64 * 1024
"""What may wait for a worker to read it; grants are 13 bytes."""

FRAMES_A_TURN = 16
"""Frames of one connection before others have their turn."""

_PING = encode(Ping())


class Keeper(Protocol):
    """What a connection needs of its gate."""

    def came(self, connection: Connection) -> None:
        """Take note of a new connection."""

    def left(self, connection: Connection) -> None:
        """Take note of its end."""

    def greet(self, connection: Connection, hello: Hello) -> str:
        """Take a worker, or return why not."""

    def hear(self, connection: Connection, message: Message) -> bool:
        """Pass on what a worker says; False if it makes no sense."""


class Connection(asyncio.Protocol):
    """A connection, of a stranger until `welcome`.

    `worker` is the job, attempt and rank; `open` holds the requests that have not ended, and
    whether each has been granted.
    """

    def __init__(self, gate: Keeper) -> None:
        self.worker: tuple[str, int, int] | None = None
        self.open: dict[int, bool] = {}
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._unanswered = 0
        self._later = False
        self._refused = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: whoever it is has a few seconds to say so."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MOST_UNREAD_BYTES)
        self._timer = self._loop.call_later(HELLO_S, self.end)
        self._gate.came(self)
        try:
            prefer(transport.get_extra_info("socket"))
        except OSError:
            self.end()

    def data_received(self, data: bytes) -> None:
        """Handle what has come."""
        self._unanswered = 0
        self._frames.feed(data)
        if not self._later:
            self._handle_frames()

    def pause_writing(self) -> None:
        """Let go of a worker that does not read.

        Later: this may be called inside `send`, and so inside what the gate's listener does.
        """
        self._loop.call_soon(self.end)

    def connection_lost(self, _error: Exception | None) -> None:
        """Note the end, whoever made it."""
        self.end()

    def welcome(self, worker: tuple[str, int, int]) -> None:
        """Be a worker's connection from now on, and start its heartbeat."""
        self.worker = worker
        self.send(encode(Welcome()))
        self._timer.cancel()
        # Not all at once for those that came at once.
        self._timer = self._loop.call_later(random.random() * BEAT_S, self._beat)

    def ask(self, request: int) -> bool:
        """Take note of a request; False if it is open already, or one too many."""
        if request in self.open or len(self.open) >= MOST_OPEN:
            return False
        self.open[request] = False
        return True

    def send(self, frame: bytes) -> None:
        """Send a frame, or drop it if the connection has ended."""
        if not self._ended:
            self._transport.write(frame)

    def refuse(self, text: str) -> None:
        """Say why not, and end."""
        self.send(encode(Refused(text)))
        self._transport.close()
        self.end()

    def end(self) -> None:
        """Close the connection now; what has not been read from it or sent to it is dropped."""
        if self._ended:
            return
        self._ended = True
        self._timer.cancel()
        self._gate.left(self)
        # A transport that closes with nothing left to send is closed; aborting would cut it off.
        if not self._transport.is_closing() or self._transport.get_write_buffer_size() > 0:
            self._transport.abort()

    def _handle_frames(self) -> None:
        """Handle a few frames, and the others after everybody else's turn."""
        was_later, self._later = self._later, False
        try:
            for _ in range(FRAMES_A_TURN):
                if self._ended or self._refused:
                    return
                message = self._frames.take()
                if message is None:
                    if was_later:
                        self._transport.resume_reading()
                    return
                self._handle(message)
        except ProtocolError:
            self.end()
            return
        except BaseException:
            self.end()
            raise
        self._later = True
        if not was_later and not self._ended:
            self._transport.pause_reading()
        self._loop.call_soon(self._handle_frames)

    def _handle(self, message: Message) -> None:
        if isinstance(message, Pong):
            return
        if isinstance(message, Bye):
            self.end()
        elif self.worker is not None:
            if not self._gate.hear(self, message):
                raise ProtocolError("a worker would not say that")
        elif isinstance(message, Hello):
            refusal = self._gate.greet(self, message)
            if refusal:
                self._refused = True
                self._transport.pause_reading()
                self._timer.cancel()
                self._timer = self._loop.call_later(REFUSAL_S, self.refuse, refusal)
        else:
            raise ProtocolError("a stranger must say who it is")

    def _beat(self) -> None:
        """Ask for a sign of life, or let go of a worker that has given none for too long."""
        if self._unanswered == SILENT_BEATS:
            self.end()
            return
        self._unanswered += 1
        self.send(_PING)
        self._timer = self._loop.call_later(BEAT_S, self._beat)
