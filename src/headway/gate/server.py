"""The gate's server: workers connect to it, ask before they send or compute, and wait for grants.

It decides nothing: requests go to a handler, and the handler's grants go back. A worker that stops
reading or answering, or breaks the protocol, is disconnected without affecting others.
"""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
from typing import Protocol

from headway.domain.errors import InputError
from headway.gate import frames, tokens
from headway.gate.address import GateAddress
from headway.gate.connections import HELLO_TIMEOUT_S, Connection, WorkerId
from headway.gate.frames import Frame
from headway.gate.protocol import OLDEST_VERSION, VERSION, encode
from headway.gate.sockets import SocketFile, bind_tcp, bind_unix

MAX_ANONYMOUS = 1024
"""Connections without a Hello; when there is one more, the oldest is closed."""

_ACCEPTS_PER_TURN = 16
_BACKLOG = 1024


class GateHandler(Protocol):
    """What a gate reports to its user; called in the event loop's thread."""

    def worker_attached(self, job_id: str, attempt: int, rank: int) -> None:
        """A rank of an attempt has proved who it is."""

    def message_ready(
        self, job_id: str, attempt: int, request: int, message_bytes: int, unsent_bytes: int
    ) -> None:
        """A worker asks to start a message; call `Gate.grant` now or later."""

    def message_done(self, job_id: str, attempt: int, request: int) -> None:
        """A worker's message has ended."""

    def compute_ready(self, job_id: str, attempt: int, rank: int, request: int) -> None:
        """A worker asks for a turn to compute; call `Gate.grant` now or later."""

    def compute_done(self, job_id: str, attempt: int, rank: int, request: int) -> None:
        """A worker's computation has ended."""

    def iteration_done(
        self,
        job_id: str,
        attempt: int,
        iterations: int,
        forward_ns: int,
        backward_ns: int,
        gradient_bytes: int,
    ) -> None:
        """A worker reports its iterations so far; 0 ns or bytes means unknown."""

    def profiled(self, job_id: str, attempt: int, profile: frames.Profile) -> None:
        """A worker reports its average iteration."""

    def worker_lost(self, job_id: str, attempt: int, rank: int, hung: bool) -> None:
        """A rank's connection has ended, and its open requests with it; `hung` if by silence."""


class Gate:
    """Listens on Unix sockets and TCP addresses; `secret` is the key of the job tokens."""

    def __init__(self, handler: GateHandler, secret: str) -> None:
        self._handler = handler
        self._secret = secret
        self._workers: dict[WorkerId, Connection] = {}
        self._ranks: dict[tuple[str, int], set[int]] = {}  # connected ranks of each attempt
        self._anonymous: dict[Connection, None] = {}  # oldest first
        self._servers: list[tuple[asyncio.Server, socket.socket]] = []
        self._files: list[SocketFile] = []
        self._port: int | None = None
        self._closed = False

    @property
    def connected(self) -> int:
        """The number of workers that have proved who they are."""
        return len(self._workers)

    @property
    def port(self) -> int | None:
        """The TCP port that this gate listens on."""
        return self._port

    async def start(self, *addresses: GateAddress, ssl: tls.SSLContext | None = None) -> None:
        """Listen and accept workers; `ssl` is for TCP only. Port 0 picks a free one."""
        await self.bind(*addresses, ssl=ssl)
        await self.accept()

    async def bind(self, *addresses: GateAddress, ssl: tls.SSLContext | None = None) -> None:
        """Listen on the addresses; workers that connect wait until `accept`."""
        if not addresses:
            raise InputError("a gate needs a Unix socket, a TCP address or both.")
        self._closed = False
        try:
            for address in addresses:
                if address.path:
                    bound, file = bind_unix(address.path)
                    self._files.append(file)
                    await self._listen(bound, None)
                else:
                    bound = await asyncio.to_thread(bind_tcp, address.host, address.port)
                    self._port = bound.getsockname()[1]
                    await self._listen(bound, ssl)
        except BaseException:
            await self.close()
            raise

    async def accept(self) -> None:
        """Accept the workers that wait, and all that connect from now on."""
        for server, bound in self._servers:
            await server.start_serving()
            # asyncio accepts up to its backlog in one turn: let more wait than it should accept.
            bound.listen(_BACKLOG)

    async def renew_files(self) -> list[str]:
        """Listen anew where the file of a Unix socket was deleted; return the paths.

        Workers that are connected stay connected.
        """
        renewed = []
        for index, file in enumerate(self._files):
            if file.exists():
                continue
            bound, self._files[index] = bind_unix(file.path)
            await self._listen(bound, None)
            server, bound = self._servers[-1]
            await server.start_serving()
            bound.listen(_BACKLOG)
            renewed.append(file.path)
        return renewed

    def grant(self, job_id: str, attempt: int, request: int, rank: int = 0) -> bool:
        """Grant a worker's request; False if no such request waits."""
        connection = self._workers.get(WorkerId(job_id, attempt, rank))
        if connection is None or connection.open_requests.get(request, True):
            return False
        connection.open_requests[request] = True
        connection.send(encode(frames.Grant(request)))
        return True

    def refuse(self, job_id: str, attempt: int, text: str, rank: int | None = None) -> None:
        """Disconnect a rank, or all ranks, of an attempt with a reason and without `worker_lost`.

        It continues ungated, and tries to connect again every few seconds.
        """
        ranks = [*self._ranks.get((job_id, attempt), ())] if rank is None else [rank]
        for one in ranks:
            connection = self._forget(WorkerId(job_id, attempt, one))
            if connection is not None:
                connection.refuse(text)

    async def close(self) -> None:
        """Disconnect every worker and close the sockets; the handler is not called."""
        loop = asyncio.get_running_loop()
        self._closed = True
        for _, bound in self._servers:
            loop.remove_reader(bound)
        connections = [*self._workers.values(), *self._anonymous]
        self._workers, self._ranks, self._anonymous = {}, {}, {}
        for connection in connections:
            connection.end()
        # Sockets that were just accepted become connections in the loop's next two turns, with TLS
        # after the handshake. Servers that are closed before these turns would leave them open.
        for _ in range(2):
            await asyncio.sleep(0)
        for server, _ in self._servers:
            server.close()
        for file in self._files:
            file.remove()
        self._servers, self._files, self._port = [], [], None
        await asyncio.sleep(0)  # Transports close in the loop's next turn.

    def connection_opened(self, connection: Connection) -> None:
        """Keep a new connection; close the oldest one without a Hello if there are too many."""
        self._anonymous[connection] = None
        if self._closed:
            connection.end()
        elif len(self._anonymous) > MAX_ANONYMOUS:
            next(iter(self._anonymous)).end()

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection, and report it if it was a worker's."""
        self._anonymous.pop(connection, None)
        worker = connection.worker
        if worker is not None and self._workers.get(worker) is connection:
            self._forget(worker)
            self._handler.worker_lost(*worker, hung=connection.hung)

    def hello_received(self, connection: Connection, hello: frames.Hello) -> str:
        """Welcome a worker whose token is valid, else return why not."""
        if not OLDEST_VERSION <= hello.version <= VERSION:
            return f"this gate speaks versions {OLDEST_VERSION} to {VERSION}, not {hello.version}"
        token = tokens.job_token(self._secret, hello.job_id, hello.attempt)
        if not tokens.same(hello.token, token):
            return "the token is not that of this job and attempt"
        worker = WorkerId(hello.job_id, hello.attempt, hello.rank)
        earlier = self._workers.get(worker)
        if earlier is not None:
            earlier.end()
        self._anonymous.pop(connection, None)
        self._workers[worker] = connection
        self._ranks.setdefault((worker.job_id, worker.attempt), set()).add(worker.rank)
        connection.welcome(worker)
        self._handler.worker_attached(*worker)
        return ""

    def frame_received(self, connection: Connection, frame: Frame) -> bool:
        """Pass a worker's frame to the handler; False if a worker may not send it."""
        assert connection.worker is not None
        job_id, attempt, rank = connection.worker
        if isinstance(frame, frames.Ready) and rank == 0:
            if not connection.open_request(frame.request):
                return False
            self._handler.message_ready(job_id, attempt, *frame)
        elif isinstance(frame, frames.Done) and rank == 0:
            connection.open_requests.pop(frame.request, None)
            self._handler.message_done(job_id, attempt, frame.request)
        elif isinstance(frame, frames.Iteration) and rank == 0:
            self._handler.iteration_done(job_id, attempt, *frame)
        elif isinstance(frame, frames.Profile) and rank == 0:
            self._handler.profiled(job_id, attempt, frame)
        elif isinstance(frame, frames.Compute):
            if not connection.open_request(frame.request):
                return False
            self._handler.compute_ready(job_id, attempt, rank, frame.request)
        elif isinstance(frame, frames.Computed):
            connection.open_requests.pop(frame.request, None)
            self._handler.compute_done(job_id, attempt, rank, frame.request)
        else:
            return False
        return True

    def _forget(self, worker: WorkerId) -> Connection | None:
        connection = self._workers.pop(worker, None)
        if connection is not None:
            attempt = (worker.job_id, worker.attempt)
            self._ranks[attempt].discard(worker.rank)
            if not self._ranks[attempt]:
                del self._ranks[attempt]
        return connection

    async def _listen(self, bound: socket.socket, ssl: tls.SSLContext | None) -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self),
            sock=bound,
            ssl=ssl,
            backlog=_ACCEPTS_PER_TURN,
            ssl_handshake_timeout=None if ssl is None else HELLO_TIMEOUT_S,
            start_serving=False,
        )
        self._servers.append((server, bound))
        bound.listen(_BACKLOG)
