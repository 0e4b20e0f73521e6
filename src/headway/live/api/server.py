"""The API's server: whoever has not said what it wants has little time, and few can do so."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 5.0
"""How long a connection may take for its handshake, and then for the head of its first request.

The token is in the head: whoever has sent one without it is answered and let go.
"""

MOST_STRANGERS = 256
"""Connections without a request; one more, and the oldest of them is closed."""

_ACCEPTS_A_TURN = 16
_WAITING_CONNECTIONS = 1024


class ApiServer(uvicorn.Server):
    """A server on one socket that leaves signals to the scheduler."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept; the server's own way has no limit for handshakes."""
        assert sockets is not None
        (listening,) = sockets
        strangers: dict[_Connection, None] = {}
        secure = self.config.ssl is not None
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self.config, self.server_state, strangers),
            sock=listening,
            ssl=self.config.ssl,
            ssl_handshake_timeout=HEAD_S if secure else None,
            backlog=_ACCEPTS_A_TURN,
        )
        # The loop accepts as many in one turn as may wait: more may wait than it should accept.
        listening.listen(_WAITING_CONNECTIONS)
        self.servers = [server]
        self.started = True


class _Connection(H11Protocol):
    """A connection, of a stranger until its first request."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: uvicorn.server.ServerState,
        strangers: dict[_Connection, None],
    ) -> None:
        super().__init__(config, state, {})
        self._strangers = strangers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: whoever it is has a few seconds for a request."""
        super().connection_made(transport)
        self._strangers[self] = None
        self._timer = self.loop.call_later(HEAD_S, transport.abort)
        if len(self._strangers) > MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            oldest._known()
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what has come; with the head of a request it is no stranger any more."""
        super().data_received(data)
        if self.cycle is not None:
            self._known()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end, whoever made it."""
        self._known()
        super().connection_lost(exc)

    def _known(self) -> None:
        self._timer.cancel()
        self._strangers.pop(self, None)
