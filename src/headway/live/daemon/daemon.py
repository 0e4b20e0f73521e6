"""The scheduler: turns what users and the executor say into events, and owns what handles them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from headway.live import operator_log
from headway.live.core.core import Core
from headway.live.core.events import (
    NEVER_STARTED,
    JobCancelled,
    JobExited,
    JobSpec,
    JobStarted,
    JobSubmitted,
    NodeDrained,
    NodeLost,
    NodeUp,
    PolicyChanged,
    PriorityChanged,
)
from headway.live.core.forecast import Forecast
from headway.live.core.job_state import JobState
from headway.live.core.jobs import LiveJob
from headway.live.core.rules import Rules
from headway.live.daemon.attempts import Attempts
from headway.live.daemon.change_feed import ChangeFeed
from headway.live.daemon.changes import Changes
from headway.live.daemon.clock import Clock
from headway.live.daemon.errors import (
    ConflictError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from headway.live.daemon.event_log.writer import EventLogWriter
from headway.live.daemon.event_pipeline import EventPipeline
from headway.live.daemon.gate_events import GateEvents
from headway.live.daemon.grant_sender import GrantSender
from headway.live.daemon.job_record import JobRecord, Prediction
from headway.live.daemon.job_registry import JobRegistry
from headway.live.daemon.metrics import Metrics, StateCollector
from headway.live.daemon.policy_monitor import PolicyMonitor
from headway.live.daemon.policy_trial import MAX_JOBS, Trial
from headway.live.daemon.predictions import Predictions
from headway.live.daemon.state_store import CLOCK, DRAINED, POLICY, StateStore
from headway.live.executors import Attempt, AttemptEnd, Executor, ExecutorNode

SAVE_INTERVAL_S = 10.0
"""How often iteration counts and the clock are saved."""
STOP_TIMEOUT_S = 30.0
ATTACH_TIMEOUT_S = 30.0
"""How long a job on several nodes may run before one of its workers connects to the gate."""
MAX_LOST_NODES = 100
"""Lost nodes that are remembered; beyond that the one lost first is forgotten."""


class Daemon:
    """Takes requests from the API and reports from the executor; `gate_events` hears workers."""

    def __init__(
        self,
        core: Core,
        policy: str,
        store: StateStore,
        log: EventLogWriter,
        clock: Clock,
        executor: Executor,
        environment: Callable[[Attempt], Mapping[str, str]],
    ) -> None:
        self.core, self.policy, self.clock = core, policy, clock
        self.store, self.log, self.executor = store, log, executor
        self.feed, self.metrics = ChangeFeed(), Metrics()
        self.changes, self.pages = Changes(), ChangeFeed()
        self.predictions = Predictions(store.jobs, self.metrics)
        self.registry = JobRegistry(store, clock, self.feed, self.metrics, self.predictions)
        self.attempts = Attempts(
            executor, store, environment, self._attempt_started, self.conclude_attempt
        )
        self.grants = GrantSender(self.metrics)
        self.pipeline = EventPipeline(
            core,
            clock,
            log,
            self.registry,
            self.attempts,
            self.grants,
            PolicyMonitor(core, self.metrics),
            self.changes,
        )
        self.gate_events = GateEvents(
            self.pipeline, clock, self.registry, self.attempts, self.grants
        )
        self.metrics.registry.register(
            StateCollector(
                core, self.registry.counts, lambda: len(self.ungated()), lambda: not store.problem
            )
        )
        self.on_executor_lost: Callable[[str], None] = lambda _: None
        """Called when the executor cannot go on."""
        self.nodes: dict[str, ExecutorNode] = {}
        self.lost: dict[str, ExecutorNode] = {}  # the latest nodes that are gone
        self.drained: set[str] = set(msgspec.json.decode(store.meta.get(DRAINED, "[]")))
        # Drained by the cluster's administrators; the executor reports them at every start.
        self._drained_there: set[str] = set()
        self._changing = asyncio.Lock()  # Changes of policy and nodes are stored one by one.
        # Ends reported while jobs are being restored.
        self._held_ends: list[AttemptEnd] | None = None

    def is_ungated(self, job: LiveJob) -> bool:
        """Return whether a job runs on several nodes and does not ask the gate."""
        return (
            job.state is JobState.RUNNING
            and len(job.node_names) > 1
            and self.clock.now_ns() - job.running_ns >= ATTACH_TIMEOUT_S * 1e9
            and not self.attempts.has_attached(Attempt(job.job_id, job.attempts))
        )

    def ungated(self) -> list[str]:
        """Return the running jobs that should ask the gate and do not."""
        placed = self.core.state.arrays.placed.values()
        return [job.job_id for job in placed if self.is_ungated(job)]

    # Reports from the executor.

    def node_up(self, node: ExecutorNode) -> None:
        """Add a node, drained if it was drained before."""
        operator_log.info(
            "node added", node=node.name, gpus=node.gpus, memory_bytes=node.memory_bytes
        )
        self.nodes[node.name] = node
        self.lost.pop(node.name, None)
        at_ns = self.clock.now_ns()
        draining = self.is_drained(node.name)
        self.pipeline.handle(
            NodeUp(at_ns=at_ns, node=node.name, gpus=node.gpus, memory_bytes=node.memory_bytes)
        )
        if draining:
            self.pipeline.handle(NodeDrained(at_ns=at_ns, node=node.name, draining=True))
        self.feed.publish("node", {"node": node.name, "up": True, "draining": draining})
        self.changes.nodes()

    def node_lost(self, name: str) -> None:
        """Remove a node."""
        operator_log.warning("node lost", node=name)
        if (node := self.nodes.pop(name, None)) is not None:
            self.lost[name] = node
        if len(self.lost) > MAX_LOST_NODES:
            del self.lost[next(iter(self.lost))]
        self.pipeline.handle(NodeLost(at_ns=self.clock.now_ns(), node=name))
        self.feed.publish("node", {"node": name, "up": False, "draining": self.is_drained(name)})
        self.changes.nodes()

    def node_drained(self, name: str, draining: bool) -> None:
        """Drain a node as its cluster's administrators do, or undo that."""
        if draining:
            self._drained_there.add(name)
        else:
            self._drained_there.discard(name)
        self._tell_drained(name)

    def is_drained(self, node: str) -> bool:
        """Return whether a node takes no new jobs."""
        return node in self.drained or node in self._drained_there

    def _tell_drained(self, node: str) -> None:
        """Tell the core and all listeners whether a node takes new jobs."""
        draining = self.is_drained(node)
        operator_log.info("node drained" if draining else "node undrained", node=node)
        up = node in self.nodes
        if up or not draining:  # A node that joins is drained then.
            at_ns = self.clock.now_ns()
            self.pipeline.handle(NodeDrained(at_ns=at_ns, node=node, draining=draining))
        self.feed.publish("node", {"node": node, "up": up, "draining": draining})
        self.changes.nodes()

    def executor_lost(self, problem: str) -> None:
        """End the scheduler and leave jobs running: the next one finds them."""
        self.on_executor_lost(problem)

    def attempt_waits(self, attempt: Attempt, why: str) -> None:
        """Show why a launched attempt has not started its ranks, or that it has."""
        self.attempts.waits(attempt, why)
        self.changes.job(attempt.job_id)

    def attempt_ended(self, ended: AttemptEnd) -> None:
        """Handle the end of an attempt's last process, or a failure to start any."""
        # What a program prints about its failure need not be text that can be stored.
        reason = ended.reason.encode(errors="replace").decode()
        ended = msgspec.structs.replace(ended, reason=reason)
        if self._held_ends is not None:
            self._held_ends.append(ended)
        elif ended.code == NEVER_STARTED:
            self.attempts.failed_to_start(ended)
            self.changes.job(ended.attempt.job_id)
        else:
            self.conclude_attempt(ended)

    def hold_ends(self) -> None:
        """Keep reported ends until `release_ends`, because their jobs are not restored yet."""
        self._held_ends = []

    def release_ends(self) -> list[AttemptEnd]:
        """Return the ends held so far, and hold no more."""
        held, self._held_ends = self._held_ends or [], None
        return held

    def conclude_attempt(self, ended: AttemptEnd) -> None:
        """Close an attempt: forget it, release its workers and let the core decide what follows."""
        attempt = ended.attempt
        self.attempts.ended(ended)
        self.grants.release(attempt, "this attempt is over")
        operator_log.info(
            "attempt ended",
            job=attempt.job_id,
            attempt=attempt.number,
            code=ended.code,
            reason=ended.reason,
        )
        self.pipeline.handle(
            JobExited(
                at_ns=self.clock.now_ns(),
                job_id=attempt.job_id,
                attempt=attempt.number,
                code=ended.code,
                reason=ended.reason,
            )
        )

    def _attempt_started(self, attempt: Attempt) -> None:
        at_ns = self.clock.now_ns()
        self.pipeline.handle(JobStarted(at_ns=at_ns, job_id=attempt.job_id, attempt=attempt.number))

    # Forecasts.

    async def take_forecast(self, forecast: Forecast | None, problem: str = "") -> None:
        """Show what is going to happen; None, and the problem, if that is not known at present."""
        if forecast is None:
            self.predictions.clear(problem)
        else:
            await self.predictions.take(forecast, self.registry.unfinished_job, self._predict_first)
        self.feed.publish("forecast", self.predictions.view)

    def _predict_first(self, job_id: str, prediction: Prediction) -> None:
        self.registry.update(job_id, first_prediction=prediction)

    # Requests from users.

    async def submit(self, spec: JobSpec) -> JobRecord:
        """Queue a job; on return it is on disk."""
        if self.attempts.closing:
            raise UnavailableError("the scheduler is shutting down.")
        record = await self.registry.add(spec)
        operator_log.info("job submitted", job=record.job_id, gpus=spec.gpus, name=spec.name)
        self.pipeline.handle(
            JobSubmitted(at_ns=self.clock.now_ns(), job_id=record.job_id, spec=spec)
        )
        return self.registry[record.job_id]

    async def cancel(self, job_id: str) -> None:
        """Cancel a job, queued or running; on return that is on disk.

        On a full disk it is cancelled too (the job may be what fills the disk), and StorageError
        says that the next scheduler may not know.
        """
        self._cancel(job_id)
        try:
            await self.store.flush()
        except StorageError as error:
            raise StorageError(
                f"job {job_id} is cancelled, but that is not stored yet: a scheduler that starts "
                f"before it is would run it again. {_capitalized(str(error))}"
            ) from None

    def _cancel(self, job_id: str) -> None:
        record = self.registry[job_id]
        if record.finished:
            raise ConflictError(f"job {job_id} is already {record.state}.")
        operator_log.info("job cancelled", job=job_id)
        self.registry.update(job_id, cancelled=True)
        self.pipeline.handle(JobCancelled(at_ns=self.clock.now_ns(), job_id=job_id))

    async def set_priority(self, job_id: str, priority: int) -> None:
        """Give a job another priority; on return that is on disk."""
        record = self.registry[job_id]
        if record.finished:
            raise ConflictError(f"job {job_id} is already {record.state}.")
        operator_log.info("priority changed", job=job_id, priority=priority)
        spec = msgspec.structs.replace(record.spec, priority=priority)
        self.registry.update(job_id, spec=spec)
        self.pipeline.handle(
            PriorityChanged(at_ns=self.clock.now_ns(), job_id=job_id, priority=priority)
        )
        await self.store.flush()

    async def drain(self, node: str, draining: bool) -> None:
        """Place no new jobs on a node, or allow them again, once that is on disk.

        One that administrators have drained stays so.
        """
        if node not in self.nodes:
            raise NotFoundError(f"there is no node {node}.")
        async with self._changing:
            drained = self.drained | {node} if draining else self.drained - {node}
            await self.store.put(DRAINED, msgspec.json.encode(sorted(drained)).decode())
            self.drained = drained
        self._tell_drained(node)

    def trial_of(self, policy: str) -> Trial:
        """Return a trial of a policy on the present nodes and unfinished jobs."""
        nodes = [
            NodeUp(at_ns=0, node=node.name, gpus=node.gpus, memory_bytes=node.memory_bytes)
            for node in self.nodes.values()
        ]
        jobs = [
            JobSubmitted(
                at_ns=0,
                job_id=record.job_id,
                spec=msgspec.structs.replace(record.spec, environment={}),
            )
            for record in self.registry.unfinished()[:MAX_JOBS]
        ]
        return Trial(policy, self.core.state.arrays.network, [*nodes, *jobs])

    async def set_policy(self, policy: str) -> None:
        """Switch to another policy, which decides if it was tried, once that is on disk."""
        # Compile it in a thread first, so that the event loop does not have to.
        await asyncio.to_thread(Rules, policy)
        async with self._changing:
            await self.store.put(POLICY, policy)
            self.policy = policy
            self.pipeline.handle(PolicyChanged(at_ns=self.clock.now_ns(), policy=policy))
        operator_log.info("policy changed", policy=policy)
        self.feed.publish("policy", {"policy": policy})

    # Saving and shutdown.

    async def save_periodically(self) -> None:
        """Save progress and the clock every `SAVE_INTERVAL_S`, until cancelled."""
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            self.save_progress()

    def save_progress(self) -> None:
        """Save the iteration counts of active jobs, and the clock."""
        for record in self.registry.active():
            if (known := self.core.job(record.job_id)) is not None:
                self.registry.copy_from_core(known)
        self.store.set(CLOCK, "")  # Every write sets it to the time of the write.

    async def stop_jobs(self) -> None:
        """Cancel all active jobs and wait until they have ended; queued jobs stay queued."""
        self.attempts.closing = True
        for record in self.registry.active():
            self._cancel(record.job_id)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while self.attempts and time.monotonic() < deadline_s:
            await asyncio.sleep(0.05)

    def end_streams(self) -> None:
        """End all streams of changes."""
        self.feed.close()
        self.pages.close()

    async def close(self) -> None:
        """Finish pending work and leave jobs running."""
        self.end_streams()
        self.pipeline.close()
        await self.attempts.close()
        self.save_progress()


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
