"""Takes every event through the same five steps.

1. Decide: the core handles the event and returns instructions.
2. Grant: grants go out before anything else, because jobs are waiting for them.
3. Log: the event and its instructions are appended to the event log, unless a worker reported
   nonsense that the core ignored: it changed nothing, and could be sent without end.
4. Save: the records of changed jobs are saved.
5. Act: the other instructions are carried out. A launch waits until its record is on disk, so that
   after a kill the next scheduler knows what may be running.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from headway.live import operator_log
from headway.live.core.core import Core
from headway.live.core.events import (
    AnyEvent,
    AnyInstruction,
    ComputeDone,
    ComputeReady,
    GrantMessage,
    GrantTurn,
    IterationDone,
    IterationProfiled,
    Launch,
    MessageDone,
    MessageReady,
    ReportStuck,
    Stop,
    Tick,
    WakeAt,
    WorkerLost,
)
from headway.live.daemon.attempts import Attempts
from headway.live.daemon.changes import Changes
from headway.live.daemon.clock import Clock
from headway.live.daemon.event_log.format import encode_entry
from headway.live.daemon.event_log.writer import EventLogWriter
from headway.live.daemon.grant_sender import GrantSender
from headway.live.daemon.job_registry import JobRegistry
from headway.live.daemon.policy_monitor import PolicyMonitor
from headway.live.executors import Attempt

_TRANSIENT = (
    MessageReady,
    MessageDone,
    ComputeReady,
    ComputeDone,
    IterationDone,
    IterationProfiled,
    WorkerLost,
    Tick,
)
"""Events that change no saved state unless the core returns instructions other than grants."""


class EventPipeline:
    """Runs the steps for one event at a time, all in the event loop's thread."""

    def __init__(
        self,
        core: Core,
        clock: Clock,
        log: EventLogWriter,
        registry: JobRegistry,
        attempts: Attempts,
        grants: GrantSender,
        policy_monitor: PolicyMonitor,
        changes: Changes,
    ) -> None:
        self._core, self._clock, self._log = core, clock, log
        self._registry, self._attempts, self._grants = registry, attempts, grants
        self._policy_monitor, self._changes = policy_monitor, changes
        self._busy = False
        self._pending: deque[AnyEvent] = deque()
        self._wake_ns = 0
        self._wake_timer: asyncio.TimerHandle | None = None

    def handle(self, event: AnyEvent) -> None:
        """Take an event through all steps; one raised while another is handled is queued."""
        if self._busy:
            self._pending.append(event)
            return
        self._busy = True
        try:
            self._run_steps(event)
            while self._pending:
                self._run_steps(self._pending.popleft())
        finally:
            self._busy = False

    def close(self) -> None:
        """Cancel the pending wake-up."""
        if self._wake_timer is not None:
            self._wake_timer.cancel()

    def _run_steps(self, event: AnyEvent) -> None:
        ignored = self._core.counts.ignored
        instructions = self._decide(event)
        others = self._grant(event, instructions)
        if self._core.counts.ignored == ignored or type(event) not in _TRANSIENT:
            self._log.add(encode_entry(event, instructions))
        lasting = others or type(event) not in _TRANSIENT
        if lasting:
            self._save(event, others)
            for instruction in others:
                self._act(instruction)
        if self._changes.noting and lasting:
            self._changes.lasting(event, others)
        elif self._changes.noting:
            self._changes.passing(event)

    def _decide(self, event: AnyEvent) -> Sequence[AnyInstruction]:
        try:
            instructions = self._core.handle(event)
        except Exception as error:
            operator_log.failure("event handling failed", error, of=type(event).__name__)
            instructions = _grant_anyway(event)
        self._policy_monitor.check()
        return instructions

    def _grant(
        self, event: AnyEvent, instructions: Sequence[AnyInstruction]
    ) -> list[AnyInstruction]:
        """Send all grants; return the other instructions."""
        others: list[AnyInstruction] = []
        for instruction in instructions:
            if type(instruction) is GrantMessage:
                self._grants.grant(instruction, cause=event)
            elif type(instruction) is GrantTurn:
                self._grants.grant_turn(instruction)
            else:
                others.append(instruction)
        return others

    def _save(self, event: AnyEvent, instructions: Sequence[AnyInstruction]) -> None:
        changed = {getattr(one, "job_id", None) for one in (event, *instructions)}
        if self._attempts.closing:
            # A launch that is not carried out leaves its job queued for the next scheduler.
            changed -= {one.job_id for one in instructions if isinstance(one, Launch)}
        for job_id in changed:
            known = None if job_id is None else self._core.job(job_id)
            if known is not None and job_id in self._registry:
                self._registry.copy_from_core(known)

    def _act(self, instruction: AnyInstruction) -> None:
        if isinstance(instruction, Launch):
            attempt = Attempt(instruction.job_id, instruction.attempt)
            self._attempts.launch(attempt, self._registry[attempt.job_id].spec, instruction.slots)
        elif isinstance(instruction, Stop):
            attempt = Attempt(instruction.job_id, instruction.attempt)
            self._grants.release(attempt, "this attempt is being stopped")
            self._attempts.stop(attempt)
        elif isinstance(instruction, ReportStuck):
            values = {"job": instruction.job_id, "attempt": instruction.attempt}
            if instruction.problem:
                operator_log.warning("job is stuck", **values, problem=instruction.problem)
            else:
                operator_log.info("job is no longer stuck", **values)
            self._registry.publish(instruction.job_id)
        elif isinstance(instruction, WakeAt):
            self._wake_at(instruction.at_ns)

    def _wake_at(self, at_ns: int) -> None:
        """Schedule a Tick unless an earlier one is due: the core asks again after each."""
        if self._wake_timer is not None:
            if at_ns >= self._wake_ns:
                return
            self._wake_timer.cancel()
        self._wake_ns = at_ns
        delay_s = max(0, at_ns - self._clock.now_ns()) / 1e9
        self._wake_timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._wake_timer = None
        # The loop's clock is coarser than ours: a Tick must not come before the time asked for.
        self.handle(Tick(at_ns=max(self._wake_ns, self._clock.now_ns())))


def _grant_anyway(event: AnyEvent) -> list[AnyInstruction]:
    """Return the grant that was asked for: training continues even if the core fails."""
    if isinstance(event, MessageReady):
        return [GrantMessage(job_id=event.job_id, attempt=event.attempt, request=event.request)]
    if isinstance(event, ComputeReady):
        return [
            GrantTurn(
                job_id=event.job_id, attempt=event.attempt, rank=event.rank, request=event.request
            )
        ]
    return []
