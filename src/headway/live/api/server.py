"""The API's HTTP server, which limits how many connections may stay idle and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headway.live import operator_log

HEAD_TIMEOUT_S = 5.0
"""Time for the TLS handshake, and again for the head of the first request.

The token is in the head: a request without it is answered and its connection closed.
"""

MAX_IDLE_CONNECTIONS = 256
"""Connections without a request; beyond that the oldest of them is closed."""

SWITCH_INTERVAL_S = 0.0001
"""How long a thread may run while another wants to: grants must not wait for the API."""

_ACCEPTS_PER_WAKEUP = 16
_BACKLOG = 1024


class ApiServer(uvicorn.Server):
    """A server on one socket that leaves signals to the scheduler."""

    def __init__(
        self,
        config: uvicorn.Config,
        tls: ssl.SSLContext | None,
        *beside: Callable[[], Awaitable[None]],
    ) -> None:
        """Serve as `config` says; all of `beside` run in the server's loop until cancelled."""
        super().__init__(config)
        self._tls = tls
        self._beside = beside

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave all signals alone."""
        yield

    async def serve_in_thread(self, listening: socket.socket) -> None:
        """Serve in a thread with a loop of its own, until `should_exit`."""
        # A busy thread keeps others waiting for this long when they want to run.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def resolve(error: BaseException | None) -> None:
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        def work() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(self._serve_here(listening))
            except BaseException as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(resolve, error)

        threading.Thread(target=work, name="API", daemon=True).start()
        await ended

    async def _serve_here(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().set_exception_handler(operator_log.log_loop_error)
        beside = [asyncio.ensure_future(one()) for one in self._beside]
        try:
            await self.serve([listening])
        finally:
            for one in beside:
                one.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start accepting; uvicorn's own implementation has no timeout for handshakes."""
        assert sockets is not None
        (listening,) = sockets
        idle: dict[_Connection, None] = {}
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self.config, self.server_state, idle),
            sock=listening,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HEAD_TIMEOUT_S,
            backlog=_ACCEPTS_PER_WAKEUP,
        )
        # asyncio accepts up to `backlog` connections per wake-up; the kernel may queue more.
        listening.listen(_BACKLOG)
        self.servers = [server]
        self.started = True


class _Connection(H11Protocol):
    """A connection, idle until its first request."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: uvicorn.server.ServerState,
        idle: dict[_Connection, None],
    ) -> None:
        super().__init__(config, state, {})
        self._idle = idle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._idle[self] = None
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, transport.abort)
        if len(self._idle) > MAX_IDLE_CONNECTIONS:
            oldest = next(iter(self._idle))
            oldest._no_longer_idle()
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process data; with the head of a request the connection is no longer idle."""
        super().data_received(data)
        if self.cycle is not None:
            self._no_longer_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._no_longer_idle()
        super().connection_lost(exc)

    def _no_longer_idle(self) -> None:
        self._timer.cancel()
        self._idle.pop(self, None)
