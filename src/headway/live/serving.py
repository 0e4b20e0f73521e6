"""`headway serve`: everything that a scheduler is made of, put together and taken apart."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator

import msgspec
import uvicorn

from headway.domain.errors import InputError
from headway.live import log, notices, tokens
from headway.live.api import make_app
from headway.live.clock import Clock
from headway.live.core import Core
from headway.live.daemon import POLICY, Daemon, prepare_policy
from headway.live.eventlog import EventLog
from headway.live.executors import Attempt, Executor
from headway.live.executors.local import LocalExecutor, LocalNode, testbed_nodes, this_machine
from headway.live.gate import Gate
from headway.live.listening import bound_tcp_socket
from headway.live.places import Address, Places, claimed, write_address
from headway.live.recovery import restore
from headway.live.settings import DEFAULT_POLICY, LOOPBACK, ExecutorSettings, Settings
from headway.live.store import Store

MOST_FILES = 65_536
_EVERYWHERE = {"0.0.0.0": LOOPBACK, "::": "::1"}


def serve(settings: Settings, *, stop_jobs: bool = False) -> None:
    """Schedule until SIGTERM or SIGINT; with `stop_jobs` jobs then end too, else they go on."""
    with claimed(settings.folder) as places:
        token = tokens.read(places.token) if places.token.exists() else tokens.create(places.token)
        certificate = _certificate(settings)
        executor = _executor(settings, places)
        store = Store(places.database)
        policy = settings.policy or store.meta.get(POLICY) or DEFAULT_POLICY
        prepare_policy(policy)
        _allow_many_files()
        api = bound_tcp_socket(settings.api_host, settings.api_port)
        with contextlib.closing(api) as listening:
            scheduler = _Scheduler(settings, places, token, policy, store, executor)
            asyncio.run(scheduler.run(listening, certificate, stop_jobs))


class _Scheduler:
    """A scheduler's parts, and the order in which they begin and end."""

    def __init__(
        self,
        settings: Settings,
        places: Places,
        token: str,
        policy: str,
        store: Store,
        executor: Executor,
    ) -> None:
        self._settings, self._places, self._token = settings, places, token
        self._store, self._executor = store, executor
        network = settings.network_model()
        self._header = log.first_line(policy, network, 0)
        self._events = EventLog(places.events, settings.log_bytes)
        clock = Clock(store.clock_ns)
        core = Core(policy, network)
        self._daemon = Daemon(core, policy, store, self._events, clock, executor, self._environment)
        self._gate = Gate(self._daemon, token)
        self._daemon.gate = self._gate

    async def run(
        self, listening: socket.socket, certificate: ssl.SSLContext | None, stop_jobs: bool
    ) -> None:
        """Begin, wait for a signal, and end in the opposite order."""
        ending = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ending.set)
        async with contextlib.AsyncExitStack() as parts:
            self._store.start(self._daemon.clock.now_ns, self._told("state"))
            parts.push_async_callback(self._store.close)
            self._events.start(self._header, self._told("event log"))
            parts.push_async_callback(self._events.close)
            parts.push_async_callback(self._executor.close)
            parts.push_async_callback(self._daemon.close)
            await restore(self._daemon)
            address = self._settings.gate_address
            await self._gate.start(unix=self._places.gate, tcp=address, ssl=certificate)
            parts.push_async_callback(self._gate.close)
            beating = asyncio.create_task(self._daemon.beat())
            parts.callback(beating.cancel)
            server = self._server()
            serving = asyncio.create_task(server.serve([listening]))
            parts.push_async_callback(self._end_serving, server, serving)
            # What is there now stays: a collection that goes through it all would delay grants.
            gc.collect()
            gc.freeze()
            self._say_ready(listening)
            await ending.wait()
            notices.info("scheduler ends", stop_jobs=stop_jobs)
            if stop_jobs:
                await self._daemon.end_jobs()

    def _server(self) -> uvicorn.Server:
        about = {
            "network": self._settings.network,
            "executor": self._settings.executor.kind,
            "folder": str(self._settings.folder),
        }
        certificate, key = self._settings.certificate, self._settings.key
        return _Server(
            uvicorn.Config(
                make_app(self._daemon, self._token, about),
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=1,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )

    async def _end_serving(self, server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
        # Streams of changes end of themselves once nobody is told any more.
        self._daemon.hub.close()
        server.should_exit = True
        await serving

    def _say_ready(self, listening: socket.socket) -> None:
        host, port = listening.getsockname()[:2]
        host = _EVERYWHERE.get(host, host)
        secure = self._settings.certificate is not None
        url = f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        certificate = str(self._settings.certificate) if secure else None
        write_address(self._places, Address(url, certificate))
        notices.info(
            "scheduler ready",
            url=url,
            folder=str(self._places.folder),
            policy=self._daemon.policy,
            executor=self._settings.executor.kind,
        )

    def _environment(self, attempt: Attempt) -> dict[str, str]:
        """Return what tells a job's processes how to reach the gate."""
        gate = f"unix:{self._places.gate}"
        certificate = None
        if self._settings.executor.kind == "ray" and self._settings.gate_address is not None:
            gate = f"tcp:{self._settings.gate_address[0]}:{self._gate.port}"
            certificate = self._settings.certificate
        variables = {
            "HEADWAY_GATE": gate,
            "HEADWAY_JOB": attempt.job,
            "HEADWAY_ATTEMPT": str(attempt.number),
            "HEADWAY_JOB_TOKEN": tokens.job_token(self._token, attempt.job, attempt.number),
        }
        return variables | ({"HEADWAY_GATE_CERT": str(certificate)} if certificate else {})

    def _told(self, what: str) -> Callable[[str], None]:
        def told(problem: str) -> None:
            if problem:
                notices.warning(f"the {what} cannot be written", problem=problem)
            else:
                notices.info(f"the {what} is written again")
            self._daemon.hub.tell("storage", {"what": what, "problem": problem})

        return told


class _Server(uvicorn.Server):
    """A server that leaves signals to the scheduler."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _certificate(settings: Settings) -> ssl.SSLContext | None:
    if settings.certificate is None or settings.key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"cannot be used as a certificate with the key {settings.key}: {error}.",
            source=str(settings.certificate),
        ) from None
    return context


def _executor(settings: Settings, places: Places) -> Executor:
    if settings.executor.kind == "ray" and settings.gate_address is not None:
        from headway.live.executors.ray import RayExecutor

        gate_host, _ = settings.gate_address
        return RayExecutor(settings.executor.address, places.attempts, gate_host=gate_host)
    return LocalExecutor(places.attempts, _nodes(settings.executor))


def _nodes(settings: ExecutorSettings) -> list[LocalNode]:
    if settings.kind == "testbed":
        return testbed_nodes(settings.testbed, settings.slots, settings.memory_bytes)
    machine = this_machine(settings.slots, settings.memory_bytes)
    if settings.nodes == 1:
        return [machine]
    if machine.cuda:
        raise InputError("must be 1 on a machine with GPUs.", field="nodes")
    numbers = range(1, settings.nodes + 1)
    return [msgspec.structs.replace(machine, name=f"node{number}") for number in numbers]


def _allow_many_files() -> None:
    """Allow many connections, as far as the system does."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(MOST_FILES, most)
    if usual != resource.RLIM_INFINITY and usual < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
