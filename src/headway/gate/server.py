"""The gate: workers connect to it, ask before they send or compute, and are told when to start.

It decides nothing: what workers say goes to a listener, and the listener's grants go back. A worker
that stops reading or speaking, or says what no worker says, is let go and nobody else notices.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl as tls
from typing import Protocol

from headway.domain.errors import InputError
from headway.gate import tokens
from headway.gate.connections import HELLO_S, Connection
from headway.gate.listening import UnixAddress, tcp_socket, unix_socket
from headway.gate.protocol import (
    VERSION,
    Compute,
    Computed,
    Done,
    Grant,
    Hello,
    Iteration,
    Ready,
    encode,
)

MOST_STRANGERS = 1024
"""Connections that have not said who they are; one more, and the oldest of them is closed."""

_ACCEPTS_A_TURN = 16
_WAITING_CONNECTIONS = 1024


class Listener(Protocol):
    """Whom a gate tells what workers say; called in the event loop's thread."""

    def worker_attached(self, job: str, attempt: int, rank: int) -> None:
        """A rank of an attempt has proved who it is."""

    def message_ready(
        self, job: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        """A worker asks for a message; `grant` may be called at once or later."""

    def message_done(self, job: str, attempt: int, request: int) -> None:
        """A worker's message has ended."""

    def compute_ready(self, job: str, attempt: int, rank: int, request: int) -> None:
        """A worker asks whether it may compute; `grant` may be called at once or later."""

    def compute_done(self, job: str, attempt: int, rank: int, request: int) -> None:
        """A worker's computation has ended."""

    def iteration_done(
        self,
        job: str,
        attempt: int,
        iterations: int,
        forward_ns: int,
        backward_ns: int,
        gradient_bytes: int,
    ) -> None:
        """A worker has done so many iterations; 0 ns or bytes: unknown."""

    def worker_lost(self, job: str, attempt: int, rank: int) -> None:
        """A rank's connection is gone, and all it asked for."""


class Gate:
    """Listens on a Unix socket, a TCP address or both; `secret` is what job tokens come from."""

    def __init__(self, listener: Listener, secret: str) -> None:
        self._listener = listener
        self._secret = secret
        self._workers: dict[tuple[str, int, int], Connection] = {}
        self._ranks: dict[tuple[str, int], set[int]] = {}  # of each attempt, those in _workers
        self._strangers: dict[Connection, None] = {}
        self._servers: list[tuple[asyncio.Server, socket.socket]] = []
        self._unix: UnixAddress | None = None
        self._port: int | None = None

    @property
    def connected(self) -> int:
        """Return the number of workers that have proved who they are."""
        return len(self._workers)

    @property
    def port(self) -> int | None:
        """Return the TCP port that this gate listens on."""
        return self._port

    async def start(
        self,
        *,
        unix: str | os.PathLike[str] | None = None,
        tcp: tuple[str, int] | None = None,
        ssl: tls.SSLContext | None = None,
    ) -> None:
        """Begin to listen; `ssl` is for TCP alone. Port 0 takes any that is free."""
        await self.bind(unix=unix, tcp=tcp, ssl=ssl)
        await self.accept()

    async def bind(
        self,
        *,
        unix: str | os.PathLike[str] | None = None,
        tcp: tuple[str, int] | None = None,
        ssl: tls.SSLContext | None = None,
    ) -> None:
        """Take the addresses, as `start` does, and let whoever comes wait until `accept`."""
        if unix is None and tcp is None:
            raise InputError("a gate needs a Unix socket, a TCP address or both.")
        try:
            if unix is not None:
                listening, self._unix = unix_socket(unix)
                await self._serve(listening, None)
            if tcp is not None:
                listening = await tcp_socket(*tcp)
                self._port = listening.getsockname()[1]
                await self._serve(listening, ssl)
        except BaseException:
            await self.close()
            raise

    async def accept(self) -> None:
        """Let in whoever waits, and all that come."""
        for server, listening in self._servers:
            await server.start_serving()
            # The loop accepts as many in one turn as may wait: more may wait than it should accept.
            listening.listen(_WAITING_CONNECTIONS)

    def grant(self, job: str, attempt: int, request: int, rank: int = 0) -> bool:
        """Let a worker start what it asked for; False if it waits for no such thing."""
        worker = self._workers.get((job, attempt, rank))
        if worker is None or worker.open.get(request, True):
            return False
        worker.open[request] = True
        worker.send(encode(Grant(request)))
        return True

    def refuse(self, job: str, attempt: int, text: str, rank: int | None = None) -> None:
        """Tell a rank, or all, why it is not wanted, and let it go without `worker_lost`.

        It goes on unasked, and tries again every few seconds.
        """
        for one in [*self._ranks.get((job, attempt), ())] if rank is None else [rank]:
            worker = self._forget((job, attempt, one))
            if worker is not None:
                worker.refuse(text)

    async def close(self) -> None:
        """Let go of every worker and of the sockets; the listener hears nothing of it."""
        for server, _ in self._servers:
            server.close()
        connections = [*self._workers.values(), *self._strangers]
        self._workers, self._ranks, self._strangers, self._servers = {}, {}, {}, []
        for connection in connections:
            connection.end()
        if self._unix is not None:
            self._unix.remove()
        self._unix, self._port = None, None
        await asyncio.sleep(0)  # Transports close in the loop's next turn.

    def came(self, connection: Connection) -> None:
        """Take note of a connection that has said nothing yet."""
        self._strangers[connection] = None
        if len(self._strangers) > MOST_STRANGERS:
            next(iter(self._strangers)).end()

    def left(self, connection: Connection) -> None:
        """Forget a connection that has ended, and tell of it if it was a worker's."""
        self._strangers.pop(connection, None)
        worker = connection.worker
        if worker is not None and self._workers.get(worker) is connection:
            self._forget(worker)
            self._listener.worker_lost(*worker)

    def greet(self, connection: Connection, hello: Hello) -> str:
        """Take a worker that proves who it is; else return why not."""
        if hello.version != VERSION:
            return f"this gate speaks version {VERSION}, not {hello.version}"
        proof = tokens.job_token(self._secret, hello.job, hello.attempt)
        if not tokens.same(hello.token, proof):
            return "the token is not that of this job and attempt"
        worker = (hello.job, hello.attempt, hello.rank)
        before = self._workers.get(worker)
        if before is not None:
            before.end()
        self._strangers.pop(connection, None)
        self._workers[worker] = connection
        self._ranks.setdefault(worker[:2], set()).add(hello.rank)
        connection.welcome(worker)
        self._listener.worker_attached(*worker)
        return ""

    def hear(self, connection: Connection, message: object) -> bool:
        """Pass on what a worker says; False if it makes no sense."""
        assert connection.worker is not None
        job, attempt, rank = connection.worker
        if isinstance(message, Ready) and rank == 0:
            if not connection.ask(message.request):
                return False
            self._listener.message_ready(job, attempt, *message)
        elif isinstance(message, Done) and rank == 0:
            connection.open.pop(message.request, None)
            self._listener.message_done(job, attempt, message.request)
        elif isinstance(message, Iteration) and rank == 0:
            self._listener.iteration_done(job, attempt, *message)
        elif isinstance(message, Compute):
            if not connection.ask(message.request):
                return False
            self._listener.compute_ready(job, attempt, rank, message.request)
        elif isinstance(message, Computed):
            connection.open.pop(message.request, None)
            self._listener.compute_done(job, attempt, rank, message.request)
        else:
            return False
        return True

    def _forget(self, worker: tuple[str, int, int]) -> Connection | None:
        connection = self._workers.pop(worker, None)
        if connection is not None:
            ranks = self._ranks[worker[:2]]
            ranks.discard(worker[2])
            if not ranks:
                del self._ranks[worker[:2]]
        return connection

    async def _serve(self, listening: socket.socket, ssl: tls.SSLContext | None) -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self),
            sock=listening,
            ssl=ssl,
            backlog=_ACCEPTS_A_TURN,
            ssl_handshake_timeout=None if ssl is None else HELLO_S,
            start_serving=False,
        )
        self._servers.append((server, listening))
        listening.listen(_WAITING_CONNECTIONS)
