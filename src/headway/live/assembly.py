"""Builds a scheduler from its settings, starts its parts and shuts them down in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import uvicorn

from headway.domain.errors import HeadwayError, InputError, MachineError
from headway.gate import tokens
from headway.gate.address import GateAddress
from headway.gate.environment import WorkerEnvironment
from headway.gate.server import Gate
from headway.gate.sockets import bind_tcp, is_loopback
from headway.interrupts import ending_signals
from headway.live import operator_log
from headway.live.api.app import make_app
from headway.live.api.daemon_calls import DaemonCalls
from headway.live.api.forecasts.service import ForecastService
from headway.live.api.past.service import PastService
from headway.live.api.server import ApiServer
from headway.live.certificate import Certificate
from headway.live.core.core import Core
from headway.live.daemon.clock import Clock
from headway.live.daemon.daemon import Daemon
from headway.live.daemon.errors import DamagedStateError
from headway.live.daemon.event_log.format import encode_header
from headway.live.daemon.event_log.parts import last_submitted, latest_time_ns
from headway.live.daemon.event_log.writer import EventLogWriter
from headway.live.daemon.policy_trial import Trial, try_policy
from headway.live.daemon.recovery import Unknown, restore
from headway.live.daemon.settings import (
    DEFAULT_POLICY,
    ELSEWHERE,
    LOOPBACK,
    ExecutorSettings,
    ServeSettings,
)
from headway.live.daemon.state_folder import (
    ApiAddress,
    StateFolder,
    locked_folder,
    published_address,
)
from headway.live.daemon.state_store import POLICY, StateStore, set_aside
from headway.live.executors import Attempt, Executor
from headway.live.executors.attempt_folders import last_job
from headway.live.executors.local.executor import LocalExecutor
from headway.live.executors.local.nodes import testbed_nodes, this_machine
from headway.live.executors.rank_plans import LaunchNode
from headway.live.executors.slurm.executor import SlurmExecutor

MAX_OPEN_FILES = 65_536
WATCH_INTERVAL_S = 2.0
_LOOPBACK_OF = {"0.0.0.0": LOOPBACK, "::": "::1"}


def serve(
    settings: ServeSettings, *, stop_jobs: bool = False, unknown: Unknown = Unknown.REFUSE
) -> bool:
    """Run a scheduler until SIGTERM or SIGINT; with `stop_jobs`, running jobs are stopped then too.

    `unknown` says what to do about attempts that run and are not in the database.

    Returns False if it ended because one of its parts failed, which has been logged.
    """
    with locked_folder(settings.folder) as folder:
        token = tokens.read(folder.token) if folder.token.exists() else tokens.create(folder.token)
        certificate = _certificate(settings)
        executor = _make_executor(settings, folder)
        store = _open_store(folder, unknown)
        policy = settings.policy or store.meta.get(POLICY) or DEFAULT_POLICY
        _check_decides(policy, settings, folder)
        # Compiles the policy, which is slow the first time, before any client can be waiting.
        scheduler = Scheduler(settings, folder, token, policy, store, executor)
        _raise_open_files_limit()
        api = bind_tcp(settings.api_host, settings.api_port)
        with contextlib.closing(api) as listening:
            return asyncio.run(scheduler.run(listening, certificate, stop_jobs, unknown))


class Scheduler:
    """The parts of a scheduler, and the order in which they start and stop."""

    def __init__(
        self,
        settings: ServeSettings,
        folder: StateFolder,
        token: str,
        policy: str,
        store: StateStore,
        executor: Executor,
    ) -> None:
        self._settings, self._folder, self._token = settings, folder, token
        self._store, self._executor = store, executor
        network = settings.network_model()
        # After a kill the log knows later times than the database.
        logged_ns = latest_time_ns(folder.event_log)
        clock = Clock(max(store.clock_ns, logged_ns))
        self._log_header = encode_header(
            policy,
            network,
            0,
            settings.leases,
            clock_ns=clock.began_ns,
            unix_ns=clock.began_unix_ns,
        )
        self._log = EventLogWriter(folder.event_log, settings.log_bytes)
        self._daemon = Daemon(
            Core(policy, network, 0, settings.leases),
            policy,
            store,
            self._log,
            clock,
            executor,
            self._job_environment,
        )
        self.gate = Gate(self._daemon.gate_events, token)
        self._daemon.grants.gate = self.gate
        self._daemon.on_executor_lost = self._executor_lost
        # A database that is new or was restored from a copy does not know all ids in use.
        self._daemon.registry.reserve_ids(last_job(folder.attempts))
        if logged_ns > store.clock_ns:
            self._daemon.registry.reserve_ids(last_submitted(folder.event_log))
        self._failed = False
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Shut down; `run` returns soon."""
        self._stopping.set()

    async def run(
        self,
        listening: socket.socket,
        certificate: Certificate | None,
        stop_jobs: bool,
        unknown: Unknown = Unknown.REFUSE,
    ) -> bool:
        """Start, wait for a signal or a failure, and shut down; return False after a failure."""
        asyncio.get_running_loop().set_exception_handler(operator_log.log_loop_error)
        for number in ending_signals():
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        async with contextlib.AsyncExitStack() as parts:
            self._warn_of_plain_text()
            self._store.start(self._daemon.clock.now_ns, self._storage_reporter("state"))
            parts.push_async_callback(self._store.close)
            self._log.start(self._log_header, self._storage_reporter("event log"))
            parts.push_async_callback(self._log.close)
            parts.push_async_callback(self._executor.close)
            parts.push_async_callback(self._daemon.close)
            # Jobs get the gate's address when they start, so it is bound before any job is
            # restored; workers that connect early wait until all jobs are known.
            addresses = [GateAddress(path=str(self._folder.gate))]
            if self._settings.gate_address is not None:
                host, port = self._settings.gate_address
                addresses.append(GateAddress(host=host, port=port))
            tls = None if certificate is None else certificate.context
            await self.gate.bind(*addresses, ssl=tls)
            parts.push_async_callback(self.gate.close)
            await restore(self._daemon, self._folder, unknown)
            self._store.set(POLICY, self._daemon.policy)
            await self.gate.accept()
            saving = self._essential_task(self._daemon.save_periodically(), "periodic saving")
            parts.callback(saving.cancel)
            watching = self._essential_task(self._watch_files(certificate), "watching files")
            parts.callback(watching.cancel)
            server = self._api_server(tls)
            serving = self._essential_task(server.serve_in_thread(listening), "API server")
            parts.push_async_callback(self._close_api, server, serving)
            # Everything that exists now stays: a collection that scans it would delay grants.
            gc.collect()
            gc.freeze()
            address = self._api_address(listening)
            parts.enter_context(published_address(self._folder, address))
            operator_log.info(
                "scheduler ready",
                url=address.url,
                folder=str(self._folder.path),
                policy=self._daemon.policy,
                executor=self._settings.executor.kind,
            )
            await self._stopping.wait()
            operator_log.info("scheduler stopping", stop_jobs=stop_jobs)
            if stop_jobs:
                await self._daemon.stop_jobs()
        return not self._failed

    def _executor_lost(self, problem: str) -> None:
        error = MachineError(problem)
        operator_log.failure("executor failed; the scheduler is stopping", error)
        self._failed = True
        self.stop()

    def _essential_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a task that the scheduler cannot do without: it shuts down if the task ends."""

        def ended(task: asyncio.Task[None]) -> None:
            if not self._stopping.is_set() and not task.cancelled():
                error = task.exception() or RuntimeError("ended unexpectedly")
                operator_log.failure(f"{name} failed; the scheduler is stopping", error)
                self._failed = True
                self.stop()

        task = asyncio.create_task(work)
        task.add_done_callback(ended)
        return task

    def _api_server(self, tls: ssl.SSLContext | None) -> ApiServer:
        settings = {
            "network": self._settings.network,
            "executor": self._settings.executor.kind,
            "folder": str(self._settings.folder),
        }
        calls = DaemonCalls()
        forecasts = ForecastService(self._daemon, calls, enabled=self._settings.forecasts)
        past = PastService(self._daemon, self._folder.event_log)
        return ApiServer(
            uvicorn.Config(
                make_app(self._daemon, self._token, settings, calls, forecasts, past),
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=1,
            ),
            tls,
            forecasts.run,
            past.run,
        )

    async def _close_api(self, server: ApiServer, serving: asyncio.Task[None]) -> None:
        # Streams of changes end when their subscriptions do.
        self._daemon.end_streams()
        server.should_exit = True
        await asyncio.wait([serving])

    def _api_address(self, listening: socket.socket) -> ApiAddress:
        host, port = listening.getsockname()[:2]
        host = _LOOPBACK_OF.get(host, host)
        certificate = self._settings.certificate
        scheme = "http" if certificate is None else "https"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        return ApiAddress(url, None if certificate is None else str(certificate))

    def _job_environment(self, attempt: Attempt) -> dict[str, str]:
        """Return the variables with which a job's processes reach the gate."""
        gate, certificate = GateAddress(path=str(self._folder.gate)), ""
        if self._settings.executor.kind in ELSEWHERE and self._settings.gate_address is not None:
            assert self.gate.port is not None
            gate = GateAddress(host=self._settings.gate_address[0], port=self.gate.port)
            certificate = str(self._settings.certificate or "")
        job_id, number = attempt.job_id, attempt.number
        token = tokens.job_token(self._token, job_id, number)
        return WorkerEnvironment(gate, job_id, number, token, certificate).variables()

    async def _watch_files(self, certificate: Certificate | None) -> None:
        """Listen anew when the gate's socket is deleted, and report a deleted state folder.

        Read the certificate again when it is renewed.
        """
        gone = False
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            if certificate is not None:
                _renew(certificate)
            try:
                for path in await self.gate.renew_files():
                    operator_log.warning("gate's socket was deleted; listening anew", path=path)
                gone = False
            except HeadwayError as error:
                if not gone:
                    operator_log.warning("gate's socket cannot be renewed", problem=str(error))
                    self._store.set(POLICY, self._daemon.policy)  # Finds out if it can be written.
                gone = True

    def _warn_of_plain_text(self) -> None:
        """Warn if tokens and output cross the network unencrypted."""
        settings = self._settings
        gate_host = None if settings.gate_address is None else settings.gate_address[0]
        hosts = {"api_host": settings.api_host, "gate_host": gate_host}
        for name, host in hosts.items():
            if settings.certificate is None and host is not None and not is_loopback(host):
                operator_log.warning(
                    "no certificate: tokens and the output of jobs cross the network in plain text",
                    setting=name,
                    host=host,
                )

    def _storage_reporter(self, what: str) -> Callable[[str], None]:
        def report(problem: str) -> None:
            if problem:
                operator_log.warning(f"{what} cannot be written", problem=problem)
            else:
                operator_log.info(f"{what} can be written again")
            self._daemon.feed.publish("storage", {"what": what, "problem": problem})

        return report


def _renew(certificate: Certificate) -> None:
    try:
        if certificate.renew():
            operator_log.info("certificate read again", path=str(certificate.path))
    except InputError as error:
        operator_log.warning("changed certificate not used", problem=str(error))


def _open_store(folder: StateFolder, unknown: Unknown) -> StateStore:
    """Open the database; set a damaged one aside if its jobs are to be rebuilt or forgotten."""
    try:
        return StateStore(folder.database)
    except DamagedStateError as error:
        if unknown is Unknown.REFUSE:
            raise
        aside = set_aside(folder.database)
        operator_log.warning("damaged state set aside", file=str(aside), problem=error.problem)
        return StateStore(folder.database)


def _check_decides(policy: str, settings: ServeSettings, folder: StateFolder) -> None:
    """Refuse to start with a policy that never decides, such as that of the last run."""
    try:
        asyncio.run(try_policy(Trial(policy, settings.network_model())))
    except HeadwayError as error:
        if settings.policy is not None:
            raise
        hint = "It was the last run's; choose another with --policy."
        raise InputError(f"{error} {hint}", source=str(folder.database)) from None


def _certificate(settings: ServeSettings) -> Certificate | None:
    """Return the certificate, checked for every host that clients are given."""
    if settings.certificate is None or settings.key is None:
        return None
    gate = settings.gate_address
    hosts = [] if gate is None else [gate[0]]
    if settings.api_host not in _LOOPBACK_OF:
        hosts.append(settings.api_host)
    return Certificate(settings.certificate, settings.key, hosts)


def _make_executor(settings: ServeSettings, folder: StateFolder) -> Executor:
    if settings.executor.kind == "ray" and settings.gate_address is not None:
        from headway.live.executors.ray.executor import RayExecutor

        gate_host, _ = settings.gate_address
        return RayExecutor(settings.executor.address, folder.attempts, gate_host=gate_host)
    if settings.executor.kind == "slurm":
        return SlurmExecutor(settings.executor.slurm(), folder.attempts)
    return LocalExecutor(folder.attempts, _local_nodes(settings.executor))


def _local_nodes(settings: ExecutorSettings) -> list[LaunchNode]:
    if settings.kind == "testbed":
        return testbed_nodes(settings.testbed, settings.slots, settings.memory_bytes)
    machine = this_machine(settings.slots, settings.memory_bytes)
    if settings.nodes == 1:
        return [machine]
    if machine.cuda:
        raise InputError("must be 1 on a machine with GPUs.", field="nodes")
    numbers = range(1, settings.nodes + 1)
    return [msgspec.structs.replace(machine, name=f"node{number}") for number in numbers]


def _raise_open_files_limit() -> None:
    """Allow many connections, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
