"""`headway serve`: everything that a scheduler is made of, put together and taken apart."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import uvicorn

from headway.domain.errors import InputError
from headway.gate import tokens
from headway.gate.address import GateAddress
from headway.gate.environment import WorkerEnvironment
from headway.gate.server import Gate
from headway.gate.sockets import bind_tcp
from headway.live import operator_log
from headway.live.api.routes import make_app
from headway.live.api.server import ApiServer
from headway.live.core.core import Core
from headway.live.daemon import log_format
from headway.live.daemon.clock import Clock
from headway.live.daemon.daemon import POLICY, Daemon
from headway.live.daemon.event_log import EventLog
from headway.live.daemon.recovery import restore
from headway.live.daemon.settings import DEFAULT_POLICY, LOOPBACK, ExecutorSettings, Settings
from headway.live.daemon.state_folder import Address, Places, claimed, published
from headway.live.daemon.store import Store
from headway.live.executors import Attempt, Executor
from headway.live.executors.attempt_folders import last_job
from headway.live.executors.local.executor import LocalExecutor
from headway.live.executors.local.nodes import testbed_nodes, this_machine
from headway.live.executors.rank_plans import LaunchNode

MOST_FILES = 65_536
_EVERYWHERE = {"0.0.0.0": LOOPBACK, "::": "::1"}


def serve(settings: Settings, *, stop_jobs: bool = False) -> bool:
    """Schedule until SIGTERM or SIGINT; with `stop_jobs` jobs then end too, else they go on.

    False: it ended because a part of it failed, which has been told.
    """
    with claimed(settings.folder) as places:
        token = tokens.read(places.token) if places.token.exists() else tokens.create(places.token)
        certificate = _certificate(settings)
        executor = _executor(settings, places)
        store = Store(places.database)
        policy = settings.policy or store.meta.get(POLICY) or DEFAULT_POLICY
        # Compiles the policy, which takes long the first time: before anybody can wait for it.
        scheduler = _Scheduler(settings, places, token, policy, store, executor)
        _allow_many_files()
        api = bind_tcp(settings.api_host, settings.api_port)
        with contextlib.closing(api) as listening:
            return asyncio.run(scheduler.run(listening, certificate, stop_jobs))


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
        self._header = log_format.first_line(policy, network, 0)
        self._events = EventLog(places.events, settings.log_bytes)
        clock = Clock(store.clock_ns)
        core = Core(policy, network)
        self._daemon = Daemon(core, policy, store, self._events, clock, executor, self._environment)
        self._gate = Gate(self._daemon, token)
        self._daemon.gate = self._gate
        # A database that is new, or an old one again, does not know them all.
        self._daemon.book.count_from(last_job(places.attempts))
        self._failed = False

    async def run(
        self, listening: socket.socket, certificate: ssl.SSLContext | None, stop_jobs: bool
    ) -> bool:
        """Begin, wait for a signal or a failure, and end in the opposite order."""
        self._ending = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ending.set)
        async with contextlib.AsyncExitStack() as parts:
            self._store.start(self._daemon.clock.now_ns, self._told("state"))
            parts.push_async_callback(self._store.close)
            self._events.start(self._header, self._told("event log"))
            parts.push_async_callback(self._events.close)
            parts.push_async_callback(self._executor.close)
            parts.push_async_callback(self._daemon.close)
            # Jobs are told the gate's address when they start; workers that come before all jobs
            # are known wait.
            addresses = [GateAddress(path=str(self._places.gate))]
            if self._settings.gate_address is not None:
                host, port = self._settings.gate_address
                addresses.append(GateAddress(host=host, port=port))
            await self._gate.bind(*addresses, ssl=certificate)
            parts.push_async_callback(self._gate.close)
            await restore(self._daemon)
            await self._gate.accept()
            beating = self._watched(self._daemon.beat(), "what saves progress")
            parts.callback(beating.cancel)
            server = self._server()
            serving = self._watched(server.serve([listening]), "the API")
            parts.push_async_callback(self._end_serving, server, serving)
            # What is there now stays: a collection that goes through it all would delay grants.
            gc.collect()
            gc.freeze()
            parts.enter_context(published(self._places, self._address(listening)))
            self._say_ready(listening)
            await self._ending.wait()
            operator_log.info("scheduler ends", stop_jobs=stop_jobs)
            if stop_jobs:
                await self._daemon.end_jobs()
        return not self._failed

    def _watched(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Do something as long as the scheduler runs: it ends if this does."""

        def ended(task: asyncio.Task[None]) -> None:
            if not self._ending.is_set() and not task.cancelled():
                error = task.exception() or RuntimeError("it ended by itself")
                operator_log.failure(f"{what} failed, and the scheduler ends", error)
                self._failed = True
                self._ending.set()

        task = asyncio.create_task(work)
        task.add_done_callback(ended)
        return task

    def _server(self) -> ApiServer:
        about = {
            "network": self._settings.network,
            "executor": self._settings.executor.kind,
            "folder": str(self._settings.folder),
        }
        certificate, key = self._settings.certificate, self._settings.key
        return ApiServer(
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

    async def _end_serving(self, server: ApiServer, serving: asyncio.Task[None]) -> None:
        # Streams of changes end of themselves once nobody is told any more.
        self._daemon.hub.close()
        server.should_exit = True
        await asyncio.wait([serving])

    def _address(self, listening: socket.socket) -> Address:
        host, port = listening.getsockname()[:2]
        host = _EVERYWHERE.get(host, host)
        secure = self._settings.certificate is not None
        url = f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        certificate = str(self._settings.certificate) if secure else None
        return Address(url, certificate)

    def _say_ready(self, listening: socket.socket) -> None:
        operator_log.info(
            "scheduler ready",
            url=self._address(listening).url,
            folder=str(self._places.folder),
            policy=self._daemon.policy,
            executor=self._settings.executor.kind,
        )

    def _environment(self, attempt: Attempt) -> dict[str, str]:
        """Return what tells a job's processes how to reach the gate."""
        gate, certificate = GateAddress(path=str(self._places.gate)), ""
        if self._settings.executor.kind == "ray" and self._settings.gate_address is not None:
            assert self._gate.port is not None
            gate = GateAddress(host=self._settings.gate_address[0], port=self._gate.port)
            certificate = str(self._settings.certificate or "")
        token = tokens.job_token(self._token, attempt.job_id, attempt.number)
        job_id, number = attempt.job_id, attempt.number
        return WorkerEnvironment(gate, job_id, number, token, certificate).variables()

    def _told(self, what: str) -> Callable[[str], None]:
        def told(problem: str) -> None:
            if problem:
                operator_log.warning(f"the {what} cannot be written", problem=problem)
            else:
                operator_log.info(f"the {what} is written again")
            self._daemon.hub.tell("storage", {"what": what, "problem": problem})

        return told


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
        from headway.live.executors.ray.executor import RayExecutor

        gate_host, _ = settings.gate_address
        return RayExecutor(settings.executor.address, places.attempts, gate_host=gate_host)
    return LocalExecutor(places.attempts, _nodes(settings.executor))


def _nodes(settings: ExecutorSettings) -> list[LaunchNode]:
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
